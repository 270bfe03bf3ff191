// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// SuperSLM for Node, NW.js and Electron through koffi (npm install koffi). Close objects in the reverse order of
// their making. Calls of `async` run on a worker thread of koffi: use their sequence and workspace for nothing
// else meanwhile.
'use strict';

const fs = require('node:fs');
const koffi = require('koffi');

const DRAFTS = 1; // SSLM_EXT_VERSION these declarations were written for
const OK = 0, BUFFER_TOO_SMALL = 2, ALIGNMENT = 64, CHUNK = 64;
const ROLES = { system: 0, user: 1, assistant: 2 };
const PARTS = { prefix: 0, suffix: 1, opening: 2 };

const lib = koffi.load(process.env.SUPERSLM_LIBRARY ||
  { win32: 'superslm.dll', darwin: 'libsuperslm.dylib' }[process.platform] || 'libsuperslm.so.1');
koffi.struct('sslm_config', { max_batch: 'int32', max_chunk: 'int32', max_layers: 'int32', reserved: 'uint32' });
koffi.struct('sslm_detok_state', { pending: koffi.array('uint8', 4) });
koffi.struct('sslm_decode_params', {
  layer_budget: 'int32', struct_size: 'uint32', mode: 'int32', alpha_q15: 'int32', order: 'int32', top_k: 'int32',
  q_ln2: 'int64', q_b: 'int64', q_c: 'int64',
});
koffi.struct('sslm_ext_model_info_out', {
  struct_size: 'uint32', layers: 'int32', hidden: 'int32', heads: 'int32', kv_heads: 'int32', head_dim: 'int32',
  mlp: 'int32', vocab: 'int32', cap: 'int32', weight_bits: 'int32', has_tokenizer: 'int32', tokenizer_size: 'int32',
  schema_count: 'int32', stop_id_count: 'int32', stop_ids: koffi.array('int32', 16),
  file_digest: koffi.array('uint8', 32), model_digest: koffi.array('uint8', 32),
});
koffi.struct('sslm_ext_self_check_out', {
  struct_size: 'uint32', verdict: 'int32', tokens: 'int32', expected_tokens: 'int32', recorded: 'int32',
  computed: 'int32',
});

// Handles travel as integers: a sequence's handle is a number, not an address.
const C = {};
for (const declaration of [
  'uint32 sslm_ext_version()',
  'const char* sslm_ext_status_name(int status)',
  'const char* sslm_ext_kernel_tier()',
  'int sslm_ext_model_info(intptr model, _Inout_ sslm_ext_model_info_out* out)',
  'int sslm_ext_model_check(void* data, size_t size, _Out_ uint8* message, _Inout_ size_t* n)',
  'int sslm_ext_self_check(intptr model, intptr ws, _Inout_ sslm_ext_self_check_out* out)',
  'int sslm_ext_tokenize(intptr model, const uint8* utf8, size_t len, uint32 flags, _Out_ int32* out, _Inout_ size_t* n)',
  'int sslm_ext_chat_ids(intptr model, int32 role, int32 part, _Out_ int32* out, _Inout_ size_t* n)',
  'int sslm_model_map(void* data, size_t size, _Out_ intptr* out)',
  'int sslm_model_unmap(intptr model)',
  'size_t sslm_workspace_size(intptr model, const sslm_config* config)',
  'int sslm_workspace_create(intptr model, const sslm_config* config, void* buf, size_t size, _Out_ intptr* out)',
  'int sslm_workspace_destroy(intptr ws)',
  'size_t sslm_kv_page_size(intptr model)',
  'size_t sslm_kv_pages_for_budget(intptr model, int32 budget)',
  'size_t sslm_kv_page_pool_overhead_size(intptr model, uint32 pages)',
  'int sslm_kv_page_pool_create(intptr model, void* buf, size_t size, uint32 pages, _Out_ intptr* out)',
  'int sslm_kv_pool_destroy(intptr pool)',
  'int sslm_prefix_begin_budgeted(intptr model, intptr* pool, int32 budget, _Out_ intptr* out)',
  'int sslm_prefix_prefill(intptr model, intptr prefix, const int32* ids, int32 n, int32 chunk, int kind, intptr ws, _Out_ int32* consumed)',
  'int sslm_prefix_freeze(intptr prefix)',
  'int sslm_prefix_release(intptr prefix)',
  'int sslm_seq_create_budgeted(intptr model, intptr* pool, int32 budget, _Out_ intptr* out)',
  'int sslm_seq_restore_shared(intptr model, intptr* pool, const uint8* blob, size_t size, intptr prefix, _Out_ intptr* out, void* shared)',
  'int sslm_seq_release(intptr seq)',
  'int sslm_seq_reset(intptr seq)',
  'int sslm_seq_adopt_prefix(intptr seq, intptr prefix)',
  'int sslm_seq_save(intptr seq, _Out_ uint8* blob, _Inout_ size_t* n)',
  'int sslm_prefill(intptr model, intptr seq, const int32* ids, int32 n, int32 chunk, int kind, intptr ws, _Out_ int32* consumed)',
  'int sslm_decode_step(intptr model, intptr* seqs, int32 n, const sslm_decode_params* params, intptr ws, _Out_ int32* out)',
  'int sslm_detokenize_stream(intptr model, _Inout_ sslm_detok_state* state, const int32* ids, int32 n, _Out_ uint8* text, _Inout_ int32* out_n)',
]) {
  const name = /(\w+)\(/.exec(declaration)[1];
  C[name] = lib.func(declaration);
}
if (C.sslm_ext_version() !== DRAFTS) throw new Error('superslm.js and the library differ in their draft functions');

function check(status, verb, more) {
  if (status === OK) return;
  const error = new Error(`${verb}: ${C.sslm_ext_status_name(status)}${more ? ': ' + more : ''}`);
  error.status = status;
  throw error;
}

// Memory to lend, aligned; it must stay referenced as long as the library uses it.
function lend(size) {
  const block = Buffer.alloc(Number(size) + ALIGNMENT);
  const past = Number(koffi.address(block) % BigInt(ALIGNMENT));
  return block.subarray(past === 0 ? 0 : ALIGNMENT - past, Number(size) + (past === 0 ? 0 : ALIGNMENT - past));
}

function readFile(path) {
  const bytes = lend(fs.statSync(path).size);
  const file = fs.openSync(path, 'r');
  try {
    for (let at = 0; at < bytes.length;) {
      const read = fs.readSync(file, bytes, at, bytes.length - at);
      if (read === 0) throw new Error(`cannot read ${path}`);
      at += read;
    }
  } finally {
    fs.closeSync(file);
  }
  return bytes;
}

function idsOf(verb, ask) {
  const n = [0];
  const status = ask(null, n);
  if (status === OK) return [];
  if (status !== BUFFER_TOO_SMALL) check(status, verb);
  const out = new Int32Array(Number(n[0]));
  check(ask(out, n), verb);
  return Array.from(out);
}

class Model {
  // Maps an artifact; throws the reason when it is refused.
  constructor(path) {
    this.bytes = readFile(path);
    const out = [0];
    const status = C.sslm_model_map(this.bytes, this.bytes.length, out);
    if (status !== OK) {
      const message = Buffer.alloc(256), n = [message.length];
      C.sslm_ext_model_check(this.bytes, this.bytes.length, message, n);
      check(status, 'sslm_model_map', `${path}: ${message.toString('utf8', 0, Math.min(255, Number(n[0])))}`);
    }
    this.handle = out[0];
    const info = { struct_size: koffi.sizeof('sslm_ext_model_info_out') };
    const full = Object.assign(koffi.decode(Buffer.alloc(info.struct_size), 'sslm_ext_model_info_out'), info);
    check(C.sslm_ext_model_info(this.handle, full), 'sslm_ext_model_info');
    this.layers = full.layers;
    this.stop = new Set(Array.from(full.stop_ids).slice(0, full.stop_id_count));
  }

  close() { check(C.sslm_model_unmap(this.handle), 'sslm_model_unmap'); }

  // Null when this machine computes what the converter's did, else the first difference.
  verify() {
    const size = koffi.sizeof('sslm_ext_self_check_out');
    const out = Object.assign(koffi.decode(Buffer.alloc(size), 'sslm_ext_self_check_out'), { struct_size: size });
    check(C.sslm_ext_self_check(this.handle, 0, out), 'sslm_ext_self_check');
    if (out.verdict === 0) return null;
    if (out.verdict === 2) return 'logits or K/V bytes differ behind equal tokens';
    return `token ${out.tokens} is ${out.computed}, recorded is ${out.recorded}`;
  }

  // Ids of text; nothing in it becomes a control token.
  tokenize(text) {
    const utf8 = Buffer.from(text, 'utf8');
    return idsOf('sslm_ext_tokenize', (out, n) => C.sslm_ext_tokenize(this.handle, utf8, utf8.length, 0, out, n));
  }

  chat(role, part) {
    return idsOf('sslm_ext_chat_ids', (out, n) => C.sslm_ext_chat_ids(this.handle, ROLES[role], PARTS[part], out, n));
  }

  pages(budget) { return Number(C.sslm_kv_pages_for_budget(this.handle, budget)); }

  // One step of at most `layers` layers for each sequence: ids, or null where a token is unfinished.
  decode(sequences, layers, workspace) {
    const out = new Int32Array(sequences.length);
    const handles = sequences.map((sequence) => sequence.handle);
    const params = { layer_budget: layers, struct_size: 0, mode: 0, alpha_q15: 0, order: 0, top_k: 0, q_ln2: 0, q_b: 0, q_c: 0 };
    const space = workspace ? workspace.handle : 0;
    check(C.sslm_decode_step(this.handle, handles, handles.length, params, space, out), 'sslm_decode_step');
    return Array.from(out, (id, i) => {
      if (id < 0) return null;
      sequences[i].pending = id;
      return id;
    });
  }

  detokenizer() { return new Detokenizer(this); }
}

class Detokenizer {
  constructor(model) {
    this.model = model;
    this.state = { pending: [0, 0, 0, 0] };
  }

  push(id) {
    const text = Buffer.alloc(512), n = [text.length];
    check(C.sslm_detokenize_stream(this.model.handle, this.state, [id], 1, text, n), 'sslm_detokenize_stream');
    return text.toString('utf8', 0, n[0]);
  }
}

// Scratch for calls of up to `batch` sequences or `chunk` prompt tokens.
class Workspace {
  constructor(model, batch, chunk) {
    const config = { max_batch: batch, max_chunk: chunk, max_layers: model.layers, reserved: 0 };
    this.memory = lend(C.sslm_workspace_size(model.handle, config));
    const out = [0];
    check(C.sslm_workspace_create(model.handle, config, this.memory, this.memory.length, out), 'sslm_workspace_create');
    this.handle = out[0];
  }

  close() { check(C.sslm_workspace_destroy(this.handle), 'sslm_workspace_destroy'); }
}

class Pool {
  constructor(model, pages) {
    this.model = model;
    const size = Number(C.sslm_kv_page_size(model.handle)) * pages + Number(C.sslm_kv_page_pool_overhead_size(model.handle, pages));
    this.memory = lend(size);
    const out = [0];
    check(C.sslm_kv_page_pool_create(model.handle, this.memory, size, pages, out), 'sslm_kv_page_pool_create');
    this.handle = out[0];
  }

  close() { check(C.sslm_kv_pool_destroy(this.handle), 'sslm_kv_pool_destroy'); }
}

// Runs a prefill verb over all ids; `call(ids, consumed)` is one library call.
function inChunks(ids, call) {
  for (let done = 0; done < ids.length;) {
    const consumed = [0];
    call(Int32Array.from(ids.slice(done)), consumed);
    done += consumed[0];
  }
}

// A prompt read once and frozen; sequences adopt it and share its pages.
class Prefix {
  constructor(pool, ids, budget, workspace) {
    const model = pool.model, out = [0];
    check(C.sslm_prefix_begin_budgeted(model.handle, [pool.handle], budget, out), 'sslm_prefix_begin_budgeted');
    this.handle = out[0];
    inChunks(ids, (rest, consumed) => check(
      C.sslm_prefix_prefill(model.handle, this.handle, rest, rest.length, CHUNK, 0, workspace.handle, consumed),
      'sslm_prefix_prefill'));
    check(C.sslm_prefix_freeze(this.handle), 'sslm_prefix_freeze');
  }

  close() { check(C.sslm_prefix_release(this.handle), 'sslm_prefix_release'); }
}

// One conversation. `pending` is the token decoded last: put it in front of the next prefill to keep it.
class Sequence {
  constructor(pool, budget) {
    this.model = pool.model;
    this.pending = null;
    const out = [0];
    check(C.sslm_seq_create_budgeted(this.model.handle, [pool.handle], budget, out), 'sslm_seq_create_budgeted');
    this.handle = out[0];
  }

  static restore(pool, blob, prefix, pending) {
    const out = [0];
    check(C.sslm_seq_restore_shared(pool.model.handle, [pool.handle], blob, blob.length, prefix ? prefix.handle : 0, out, null),
      'sslm_seq_restore_shared');
    return Object.assign(Object.create(Sequence.prototype), { model: pool.model, handle: out[0], pending });
  }

  close() { check(C.sslm_seq_release(this.handle), 'sslm_seq_release'); }

  adopt(prefix) {
    check(C.sslm_seq_reset(this.handle), 'sslm_seq_reset');
    check(C.sslm_seq_adopt_prefix(this.handle, prefix.handle), 'sslm_seq_adopt_prefix');
    this.pending = null;
  }

  // Appends ids on a worker thread, so that the game goes on.
  async prefill(ids, workspace) {
    for (let done = 0; done < ids.length;) {
      const rest = Int32Array.from(ids.slice(done)), consumed = [0];
      const status = await new Promise((resolve, reject) => C.sslm_prefill.async(
        this.model.handle, this.handle, rest, rest.length, CHUNK, 0, workspace.handle, consumed,
        (error, result) => error ? reject(error) : resolve(result)));
      check(status, 'sslm_prefill');
      done += consumed[0];
    }
    this.pending = null;
  }

  // The sequence in any state, mid-token included.
  save() {
    const n = [0];
    C.sslm_seq_save(this.handle, null, n);
    const blob = Buffer.alloc(Number(n[0]));
    check(C.sslm_seq_save(this.handle, blob, n), 'sslm_seq_save');
    return blob;
  }
}

module.exports = { Model, Workspace, Pool, Prefix, Sequence, tier: () => C.sslm_ext_kernel_tier() };
