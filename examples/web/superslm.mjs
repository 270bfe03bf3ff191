// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// SuperSLM for browsers, workers and Node: a plain ES module over superslm.wasm, which imports nothing. All memory
// that is lent to the library lies in the module's own memory; close() gives it back. Close in reverse order.

const DRAFTS = 1; // SSLM_EXT_VERSION this file was written for
const OK = 0, BUFFER_TOO_SMALL = 2, ALIGNMENT = 64, PROMPT_SPAN = 0;
const ROLES = { system: 0, user: 1, assistant: 2 };
const PARTS = { prefix: 0, suffix: 1, opening: 2 };
const CONFIG_BYTES = 16, PARAMS_BYTES = 48, INFO_BYTES = 184, SELF_CHECK_BYTES = 24, DETOK_BYTES = 4;
const INFO_FIELDS = ['layers', 'hidden', 'heads', 'kvHeads', 'headDim', 'mlp', 'vocab', 'cap', 'weightBits',
  'hasTokenizer', 'tokenizerSize', 'schemaCount'];
const STOP_IDS_AT = 56;
const NOTHING = new Uint8Array(0);

// What a verb refused, with the name of the status.
export class SuperSLMError extends Error {
  constructor(verb, status, name, more) {
    super(`${verb}: ${name}${more ? `: ${more}` : ''}`);
    this.name = 'SuperSLMError';
    this.status = status;
  }
}

// Resolves before the next picture is drawn, or as soon as other work is done where nothing is drawn.
export function nextFrame() {
  return new Promise((resolve) => (globalThis.requestAnimationFrame ?? setTimeout)(resolve));
}

// The library: one instance of the WebAssembly module and its memory.
export class SuperSLM {
  // `source`: a URL, a Response, bytes, or a compiled WebAssembly.Module.
  static async load(source = new URL('superslm.wasm', import.meta.url)) {
    if (source instanceof WebAssembly.Module) return new SuperSLM(await WebAssembly.instantiate(source, {}));
    if (isAddress(source)) source = await fetch(source);
    const bytes = source instanceof Response ? await (await found(source)).arrayBuffer() : source;
    return new SuperSLM((await WebAssembly.instantiate(bytes, {})).instance);
  }

  #scratch = 0;
  #scratchSize = 0;

  constructor(instance) {
    this.verbs = instance.exports;
    this.verbs._initialize();
    if (this.verbs.sslm_ext_version() !== DRAFTS) {
      throw new Error('superslm.mjs and superslm.wasm differ in their draft functions: take both from one release');
    }
  }

  // The kernels in use: simd128 or scalar. Both give the same bits.
  get tier() { return this.textAt(this.verbs.sslm_ext_kernel_tier()); }

  // Views are made for each use: they end when the memory grows.
  bytes(address, size) { return new Uint8Array(this.verbs.memory.buffer, address, size); }
  words(address, count) { return new Int32Array(this.verbs.memory.buffer, address, count); }

  textAt(address) {
    const memory = new Uint8Array(this.verbs.memory.buffer);
    return new TextDecoder().decode(memory.slice(address >>> 0, memory.indexOf(0, address >>> 0)));
  }

  // Memory that stays until free().
  allocate(size) {
    const address = this.verbs.aligned_alloc(ALIGNMENT, Math.ceil(size / ALIGNMENT) * ALIGNMENT) >>> 0;
    if (address === 0) throw new RangeError(`no memory for ${size} bytes`);
    return address;
  }

  free(address) { this.verbs.free(address); }

  // Memory for the arguments of one call; the next call of scratch() reuses it.
  scratch(size) {
    if (size > this.#scratchSize) {
      if (this.#scratch !== 0) this.free(this.#scratch);
      this.#scratchSize = Math.max(size, 4096);
      this.#scratch = this.allocate(this.#scratchSize);
    }
    this.bytes(this.#scratch, size).fill(0);
    return this.#scratch;
  }

  // Calls a verb and throws what it refuses; `more` may say why.
  call(verb, ...words) {
    const status = this.verbs[verb](...words);
    if (status !== OK) throw this.error(verb, status);
  }

  error(verb, status, more) {
    return new SuperSLMError(verb, status, this.textAt(this.verbs.sslm_ext_status_name(status)), more);
  }

  // Calls a verb that makes an object and returns its handle.
  make(verb, ...words) {
    const out = this.scratch(4);
    this.call(verb, ...words, out);
    return this.words(out, 1)[0];
  }

  // Calls a verb that writes a list of unknown length: `ask(out, n, input)`, where `input` are bytes that it reads.
  // `width` is that of an element.
  list(verb, width, input, ask) {
    const before = 8 + Math.ceil(input.length / 8) * 8;
    for (let capacity = 256;;) {
      const n = this.scratch(before + capacity * width);
      this.words(n, 1)[0] = capacity;
      this.bytes(n + 8, input.length).set(input);
      const status = ask(n + before, n, n + 8);
      const count = this.words(n, 1)[0] >>> 0;
      if (status === OK) return this.bytes(n + before, count * width).slice();
      if (status !== BUFFER_TOO_SMALL) throw this.error(verb, status);
      capacity = count;
    }
  }

  // Copies bytes, or what a URL or a Response gives, into memory; a download is written as it arrives.
  async place(source, onProgress = () => {}) {
    if (isAddress(source)) source = await fetch(source);
    if (source instanceof Response) {
      const size = Number((await found(source)).headers.get('content-length'));
      if (size > 0 && !source.headers.has('content-encoding')) return this.#receive(source, size, onProgress);
      source = await source.arrayBuffer();
    }
    const bytes = ArrayBuffer.isView(source)
      ? new Uint8Array(source.buffer, source.byteOffset, source.byteLength) : new Uint8Array(source);
    const address = this.allocate(bytes.length);
    this.bytes(address, bytes.length).set(bytes);
    onProgress(bytes.length, bytes.length);
    return { address, size: bytes.length };
  }

  async #receive(response, size, onProgress) {
    const address = this.allocate(size);
    try {
      let at = 0;
      for (const reader = response.body.getReader();;) {
        const { done, value } = await reader.read();
        if (done) break;
        if (at + value.length > size) throw new Error(`${response.url}: more than the ${size} bytes announced`);
        this.bytes(address + at, value.length).set(value);
        onProgress(at += value.length, size);
      }
      if (at !== size) throw new Error(`${response.url}: ended after ${at} of ${size} bytes`);
      return { address, size };
    } catch (error) {
      this.free(address);
      throw error;
    }
  }
}

function isAddress(source) { return typeof source === 'string' || source instanceof URL; }

async function found(response) {
  if (response.ok) return response;
  throw new Error(`${response.url}: ${response.status} ${response.statusText}`);
}

// A mapped artifact, and the scratch memory of its calls.
export class Model {
  // `source` as in SuperSLM.place. `chunk`: prompt tokens of one call at most; `batch`: sequences of one decode().
  static async load(library, source, { onProgress, chunk = 32, batch = 1 } = {}) {
    const { address, size } = await library.place(source, onProgress);
    try {
      return new Model(library, address, size, chunk, batch);
    } catch (error) {
      library.free(address);
      throw error;
    }
  }

  #artifact;
  #workspaceMemory;

  constructor(library, address, size, chunk, batch) {
    this.library = library;
    this.chunk = chunk;
    this.#artifact = address;
    this.handle = this.#map(address, size);
    this.info = this.#readInfo();
    this.stopIds = new Set(this.info.stopIds);
    this.#makeWorkspace(chunk, batch);
  }

  #map(address, size) {
    const { library } = this, out = library.scratch(8);
    const status = library.verbs.sslm_model_map(address, size, out);
    if (status === OK) return library.words(out, 1)[0];
    const why = library.list('sslm_ext_model_check', 1, NOTHING, (text, n) => {
      library.verbs.sslm_ext_model_check(address, size, text, n);
      return OK;
    });
    throw library.error('sslm_model_map', status, new TextDecoder().decode(why));
  }

  #readInfo() {
    const { library } = this, out = library.scratch(INFO_BYTES);
    library.words(out, 1)[0] = INFO_BYTES;
    library.call('sslm_ext_model_info', this.handle, out);
    const words = library.words(out, INFO_BYTES / 4);
    const info = Object.fromEntries(INFO_FIELDS.map((name, i) => [name, words[1 + i]]));
    info.stopIds = Array.from(words.slice(STOP_IDS_AT / 4, STOP_IDS_AT / 4 + words[STOP_IDS_AT / 4 - 1]));
    return info;
  }

  #makeWorkspace(chunk, batch) {
    const { library } = this, config = library.scratch(CONFIG_BYTES + 4);
    library.words(config, 3).set([batch, chunk, this.info.layers]);
    const size = library.verbs.sslm_workspace_size(this.handle, config) >>> 0;
    this.#workspaceMemory = library.allocate(size);
    library.call('sslm_workspace_create', this.handle, config, this.#workspaceMemory, size, config + CONFIG_BYTES);
    this.workspace = library.words(config + CONFIG_BYTES, 1)[0];
  }

  close() {
    this.library.call('sslm_workspace_destroy', this.workspace);
    this.library.call('sslm_model_unmap', this.handle);
    this.library.free(this.#workspaceMemory);
    this.library.free(this.#artifact);
  }

  // Null when this machine computes what the converter's did, else the first difference. Costs about 100 tokens.
  verify() {
    const { library } = this, out = library.scratch(SELF_CHECK_BYTES);
    library.words(out, 1)[0] = SELF_CHECK_BYTES;
    library.call('sslm_ext_self_check', this.handle, this.workspace, out);
    const [, verdict, tokens, , recorded, computed] = library.words(out, 6);
    if (verdict === 0) return null;
    if (verdict === 2) return 'logits or K/V bytes differ behind equal tokens';
    return `token ${tokens} is ${computed}, recorded is ${recorded}`;
  }

  // Ids of text; nothing in it becomes a control token.
  tokenize(text) {
    const { library } = this, utf8 = new TextEncoder().encode(text);
    return asIds(library.list('sslm_ext_tokenize', 4, utf8, (out, n, input) => library.verbs.sslm_ext_tokenize(
      this.handle, input, utf8.length, 0, out, n)));
  }

  // The ids around a turn: chat('user', 'prefix'), tokenize(line), chat('user', 'suffix').
  chat(role, part) {
    const { library } = this;
    return asIds(library.list('sslm_ext_chat_ids', 4, NOTHING, (out, n) => library.verbs.sslm_ext_chat_ids(
      this.handle, ROLES[role], PARTS[part], out, n)));
  }

  // Pages that a sequence of `budget` positions reserves.
  pagesFor(budget) { return this.library.verbs.sslm_kv_pages_for_budget(this.handle, budget) >>> 0; }

  // At most `layers` layers of one token for each sequence: ids, or null where a token is unfinished.
  decode(sequences, layers = this.info.layers) {
    const { library } = this, count = sequences.length;
    const params = library.scratch(PARAMS_BYTES + 8 * count), handles = params + PARAMS_BYTES, out = handles + 4 * count;
    library.words(params, 1)[0] = layers;
    library.words(handles, count).set(sequences.map((sequence) => sequence.handle));
    library.call('sslm_decode_step', this.handle, handles, count, params, this.workspace, out);
    return Array.from(library.words(out, count), (id, i) => {
      if (id < 0) return null;
      sequences[i].pending = id;
      return id;
    });
  }
}

function asIds(bytes) { return Array.from(new Int32Array(bytes.buffer)); }

// Ids to text, whole characters only. A saved game keeps `state`, where a character may wait for its rest.
export class Detokenizer {
  #state = new Uint8Array(DETOK_BYTES + 4); // and room for an id

  constructor(model, state = []) {
    this.model = model;
    this.#state.set(state);
  }

  get state() { return this.#state.slice(0, DETOK_BYTES); }

  push(id) {
    const { library, handle } = this.model;
    const text = library.list('sslm_detokenize_stream', 1, this.#state, (out, n, state) => {
      library.words(state + DETOK_BYTES, 1)[0] = id;
      const status = library.verbs.sslm_detokenize_stream(handle, state, state + DETOK_BYTES, 1, out, n);
      this.#state = library.bytes(state, DETOK_BYTES + 4).slice();
      return status;
    });
    return new TextDecoder().decode(text);
  }
}

// K/V memory for sequences and prefixes.
export class Pool {
  #memory;

  constructor(model, pages) {
    const { library, handle } = model;
    this.model = model;
    const size = (library.verbs.sslm_kv_page_size(handle) >>> 0) * pages +
      (library.verbs.sslm_kv_page_pool_overhead_size(handle, pages) >>> 0);
    this.#memory = library.allocate(size);
    this.handle = library.make('sslm_kv_page_pool_create', handle, this.#memory, size, pages);
  }

  close() {
    this.model.library.call('sslm_kv_pool_destroy', this.handle);
    this.model.library.free(this.#memory);
  }

  // Verbs that make a holder take the address of the pool's handle.
  make(verb, ...words) {
    const { library } = this.model, out = library.scratch(8);
    library.words(out + 4, 1)[0] = this.handle;
    library.call(verb, this.model.handle, out + 4, ...words, out);
    return library.words(out, 1)[0];
  }
}

// One call of a prefill verb with at most `chunk` ids; returns how many were taken.
function feed(verb, holder, ids, chunk) {
  const { library, handle, workspace } = holder.model;
  const out = library.scratch(4 + 4 * ids.length);
  library.words(out + 4, ids.length).set(ids);
  library.call(verb, handle, holder.handle, out + 4, ids.length, chunk, PROMPT_SPAN, workspace, out);
  return library.words(out, 1)[0];
}

// A prompt that is read once and frozen; sequences adopt it and share its pages.
export class Prefix {
  constructor(pool, budget) {
    this.model = pool.model;
    this.handle = pool.make('sslm_prefix_begin_budgeted', budget);
  }

  feed(ids, chunk = this.model.chunk) { return feed('sslm_prefix_prefill', this, ids, chunk); }
  freeze() { this.model.library.call('sslm_prefix_freeze', this.handle); }
  close() { this.model.library.call('sslm_prefix_release', this.handle); }
}

// One conversation. `pending` is the token decoded last: put it in front of what is fed next to keep it.
export class Sequence {
  constructor(pool, budget) {
    this.model = pool.model;
    this.pending = null;
    this.handle = pool.make('sslm_seq_create_budgeted', budget);
  }

  // The sequence of a saved blob. `pending`: what it was when saved.
  static restore(pool, blob, pending = null) {
    const { library } = pool.model, bytes = library.allocate(blob.length);
    try {
      library.bytes(bytes, blob.length).set(blob);
      const handle = pool.make('sslm_seq_restore', bytes, blob.length);
      return Object.assign(Object.create(Sequence.prototype), { model: pool.model, handle, pending });
    } finally {
      library.free(bytes);
    }
  }

  close() { this.model.library.call('sslm_seq_release', this.handle); }

  reset() {
    this.model.library.call('sslm_seq_reset', this.handle);
    this.pending = null;
  }

  adopt(prefix) {
    this.model.library.call('sslm_seq_adopt_prefix', this.handle, prefix.handle);
    this.pending = null;
  }

  // Appends at most `chunk` ids; returns how many were taken.
  feed(ids, chunk = this.model.chunk) {
    const taken = feed('sslm_prefill', this, ids, chunk);
    this.pending = null;
    return taken;
  }

  // At most `layers` layers of the next token: its id, or null while it is unfinished.
  step(layers) { return this.model.decode([this], layers)[0]; }

  // The reply to `ids`, piece by piece as it is decoded. Each frame reads `chunk` prompt tokens or runs `layers`
  // layers; `frame` is waited for in between. `text` goes on with a text that was begun before.
  async *generate(ids, { maxTokens = 256, layers = this.model.info.layers, chunk = 4, frame = nextFrame,
    text = new Detokenizer(this.model) } = {}) {
    let rest = this.pending === null ? ids : [this.pending, ...ids];
    for (; rest.length > 0; await frame()) rest = rest.slice(this.feed(rest.slice(0, chunk), chunk));
    for (let count = 0; count < maxTokens; await frame()) {
      const id = this.step(layers);
      if (id === null) continue;
      if (this.model.stopIds.has(id)) return;
      count += 1;
      yield text.push(id);
    }
  }

  // The sequence in any state, mid-token included; the same bytes on every machine. Keep `pending` beside them.
  save() {
    const { library } = this.model;
    return library.list('sslm_seq_save', 1, NOTHING, (out, n) => library.verbs.sslm_seq_save(this.handle, out, n));
  }
}
