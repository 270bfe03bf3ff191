-- SPDX-License-Identifier: Apache-2.0
-- SPDX-FileCopyrightText: SuperSLM contributors

-- SuperSLM for LuaJIT's ffi. One file; needs LuaJIT (LÖVE has it) and the shared library.
--
--   local superslm = require "superslm"
--   local model = superslm.load("model.sslm")
--   local pool = model:pool(model:pages(512))
--   local sequence = pool:sequence(512)
--   sequence:prefill(model:tokenize("Once upon a time"))
--   local text = model:detokenizer()
--   for _ = 1, 40 do io.write(text:push(model:decode({sequence}, model.layers)[1])) end
--   sequence:close(); pool:close(); model:close()
--
-- Close objects in the reverse order of their making. Ids are Lua tables. No callback goes from the library to
-- Lua: a hook would be called on other threads, which LuaJIT does not survive.

local ffi = require "ffi"

ffi.cdef [[
typedef struct sslm_model_s* sslm_model;
typedef struct sslm_seq_s* sslm_seq;
typedef struct sslm_prefix_s* sslm_prefix;
typedef struct sslm_kv_pool_s* sslm_kv_pool;
typedef struct sslm_workspace_s* sslm_workspace;
typedef struct { int32_t max_batch, max_chunk_budget, max_layer_budget; uint32_t reserved; } sslm_config;
typedef struct { uint8_t pending_bytes[3]; uint8_t pending_count; } sslm_detok_state;
typedef struct {
  int32_t layer_budget; uint32_t struct_size; int32_t mode, alpha_q15, anti_lm_max_order, top_k;
  int64_t q_ln2, q_b, q_c;
} sslm_decode_params;
typedef struct {
  uint32_t struct_size;
  int32_t layers, hidden, heads, kv_heads, head_dim, mlp, vocab, cap, weight_bits, has_tokenizer,
    tokenizer_size, schema_count, stop_id_count, stop_ids[16];
  uint8_t file_digest[32], model_digest[32];
} sslm_ext_model_info_out;
typedef struct {
  uint32_t struct_size; int32_t verdict, tokens, expected_tokens, recorded, computed;
} sslm_ext_self_check_out;

int sslm_model_map(const void* data, size_t size, sslm_model* out);
int sslm_model_unmap(sslm_model model);
size_t sslm_workspace_size(sslm_model model, const sslm_config* config);
int sslm_workspace_create(sslm_model, const sslm_config*, void* buf, size_t size, sslm_workspace* out);
int sslm_workspace_destroy(sslm_workspace ws);
size_t sslm_kv_page_size(sslm_model model);
size_t sslm_kv_pages_for_budget(sslm_model model, int32_t budget);
size_t sslm_kv_page_pool_overhead_size(sslm_model model, uint32_t page_count);
int sslm_kv_page_pool_create(sslm_model, void* buf, size_t size, uint32_t page_count, sslm_kv_pool* out);
int sslm_kv_pool_destroy(sslm_kv_pool pool);
int sslm_seq_create_budgeted(sslm_model model, sslm_kv_pool* pool, int32_t budget, sslm_seq* out);
int sslm_seq_release(sslm_seq seq);
int sslm_seq_reset(sslm_seq seq);
int sslm_seq_adopt_prefix(sslm_seq seq, sslm_prefix prefix);
int sslm_seq_save(sslm_seq seq, void* buf, size_t* n);
int sslm_seq_restore_shared(sslm_model, sslm_kv_pool*, const void* blob, size_t size, sslm_prefix, sslm_seq* out,
                            uint32_t* out_shared_pages);
int sslm_prefix_begin_budgeted(sslm_model model, sslm_kv_pool* pool, int32_t budget, sslm_prefix* out);
int sslm_prefix_prefill(sslm_model, sslm_prefix, const int32_t* tokens, int32_t count, int32_t chunk_budget,
                        int kind, sslm_workspace ws, int32_t* consumed);
int sslm_prefix_freeze(sslm_prefix prefix);
int sslm_prefix_release(sslm_prefix prefix);
int sslm_prefill(sslm_model, sslm_seq, const int32_t* tokens, int32_t count, int32_t chunk_budget, int kind,
                 sslm_workspace ws, int32_t* consumed);
int sslm_decode_step(sslm_model, sslm_seq* seqs, int32_t n, const sslm_decode_params* params, sslm_workspace ws,
                     int32_t* out_tokens);
int sslm_detokenize_stream(sslm_model, sslm_detok_state*, const int32_t* tokens, int32_t n, char* utf8,
                           int32_t* out_n);
uint32_t sslm_ext_version(void);
const char* sslm_ext_status_name(int status);
const char* sslm_ext_kernel_tier(void);
int sslm_ext_model_info(sslm_model model, sslm_ext_model_info_out* out);
int sslm_ext_model_check(const void* data, size_t size, char* message, size_t* n);
int sslm_ext_self_check(sslm_model model, sslm_workspace ws, sslm_ext_self_check_out* out);
int sslm_ext_tokenize(sslm_model, const char* utf8, size_t len, uint32_t flags, int32_t* out, size_t* n);
int sslm_ext_chat_ids(sslm_model, int32_t role, int32_t part, int32_t* out, size_t* n);

void* malloc(size_t size);
void free(void* block);
void* fopen(const char* path, const char* mode);
int fclose(void* file);
int fseek(void* file, long offset, int whence);
long ftell(void* file);
size_t fread(void* block, size_t size, size_t count, void* file);
]]

local DRAFTS = 1 -- SSLM_EXT_VERSION these declarations were written for
local OK, BUFFER_TOO_SMALL = 0, 2
local ALIGNMENT = 64
local ROLES = { system = 0, user = 1, assistant = 2 }
local PARTS = { prefix = 0, suffix = 1, opening = 2 }

local C = ffi.load(os.getenv("SUPERSLM_LIBRARY") or "superslm")
if C.sslm_ext_version() ~= DRAFTS then error("superslm.lua and the loaded library differ in their drafts") end

local superslm = {}

-- Every refusal becomes a Lua error whose text begins with the verb and the status.
local function check(status, verb, more)
  if status == OK then return end
  error(verb .. ": " .. ffi.string(C.sslm_ext_status_name(status)) .. (more and ": " .. more or ""), 3)
end

-- Memory to lend, aligned, given back when the last reference to the table goes.
local function buffer(size)
  local block = ffi.C.malloc(size + ALIGNMENT)
  if block == nil then error("out of memory: " .. tostring(size) .. " bytes") end
  local address = ffi.cast("uintptr_t", block)
  local start = ffi.cast("char*", block) + (ALIGNMENT - tonumber(address % ALIGNMENT)) % ALIGNMENT
  return { block = ffi.gc(block, ffi.C.free), start = start, size = size }
end

local function read_file(path)
  local file = ffi.C.fopen(path, "rb")
  if file == nil then error("cannot open " .. path) end
  ffi.C.fseek(file, 0, 2)
  local bytes = buffer(tonumber(ffi.C.ftell(file)))
  ffi.C.fseek(file, 0, 0)
  local read = ffi.C.fread(bytes.start, 1, bytes.size, file)
  ffi.C.fclose(file)
  if read ~= bytes.size then error("cannot read " .. path) end
  return bytes
end

local function id_array(ids)
  return ffi.new("int32_t[?]", math.max(#ids, 1), ids)
end

local function id_table(array, n)
  local ids = {}
  for i = 1, n do ids[i] = array[i - 1] end
  return ids
end

-- Calls `ask(out, n)` twice: for the size and for the ids.
local function ids_of(verb, ask)
  local n = ffi.new("size_t[1]", 0)
  local status = ask(nil, n)
  if status == OK then return {} end
  if status ~= BUFFER_TOO_SMALL then check(status, verb) end
  local out = ffi.new("int32_t[?]", n[0])
  check(ask(out, n), verb)
  return id_table(out, tonumber(n[0]))
end

-- ---- Model ----

local Model = {}
Model.__index = Model

-- Maps an artifact. Raises an error that says why it is refused.
function superslm.load(path)
  local bytes = read_file(path)
  local out = ffi.new("sslm_model[1]")
  local status = C.sslm_model_map(bytes.start, bytes.size, out)
  if status ~= OK then
    local why, n = ffi.new("char[256]"), ffi.new("size_t[1]", 256)
    C.sslm_ext_model_check(bytes.start, bytes.size, why, n)
    check(status, "sslm_model_map", path .. ": " .. ffi.string(why))
  end
  local self = setmetatable({ handle = out[0], bytes = bytes, stop = {} }, Model)
  local info = ffi.new("sslm_ext_model_info_out")
  info.struct_size = ffi.sizeof(info)
  check(C.sslm_ext_model_info(self.handle, info), "sslm_ext_model_info")
  self.layers, self.cap, self.vocab = info.layers, info.cap, info.vocab
  for i = 0, info.stop_id_count - 1 do self.stop[info.stop_ids[i]] = true end
  self.tier = ffi.string(C.sslm_ext_kernel_tier())
  return self
end

function Model:close() check(C.sslm_model_unmap(self.handle), "sslm_model_unmap") end

-- True, or false and the first difference: whether this machine computes what the converter's did.
function Model:verify()
  local out = ffi.new("sslm_ext_self_check_out")
  out.struct_size = ffi.sizeof(out)
  check(C.sslm_ext_self_check(self.handle, nil, out), "sslm_ext_self_check")
  if out.verdict == 0 then return true end
  if out.verdict == 2 then return false, "logits or K/V bytes differ behind equal tokens" end
  return false, ("token %d is %d, recorded is %d"):format(out.tokens, out.computed, out.recorded)
end

-- Ids of text; nothing in it becomes a control token.
function Model:tokenize(text)
  return ids_of("sslm_ext_tokenize", function(out, n)
    return C.sslm_ext_tokenize(self.handle, text, #text, 0, out, n)
  end)
end

-- Ids around a turn: role "system", "user", "assistant"; part "prefix", "suffix", "opening".
function Model:chat(role, part)
  return ids_of("sslm_ext_chat_ids", function(out, n)
    return C.sslm_ext_chat_ids(self.handle, ROLES[role], PARTS[part], out, n)
  end)
end

-- Pages that a sequence or prefix of `budget` positions reserves.
function Model:pages(budget)
  return tonumber(C.sslm_kv_pages_for_budget(self.handle, budget))
end

-- One step of at most `layers` layers for each sequence: ids, or false where a token is unfinished.
function Model:decode(sequences, layers, workspace)
  local n = #sequences
  local handles, tokens = ffi.new("sslm_seq[?]", n), ffi.new("int32_t[?]", n)
  for i, sequence in ipairs(sequences) do handles[i - 1] = sequence.handle end
  local params = ffi.new("sslm_decode_params")
  params.layer_budget = layers
  local space = workspace and workspace.handle or nil
  check(C.sslm_decode_step(self.handle, handles, n, params, space, tokens), "sslm_decode_step")
  local ids = id_table(tokens, n)
  for i, id in ipairs(ids) do
    if id >= 0 then sequences[i].pending = id else ids[i] = false end
  end
  return ids
end

local Detokenizer = {}
Detokenizer.__index = Detokenizer

-- A stream of ids to text that never splits a character.
function Model:detokenizer()
  return setmetatable({ model = self, state = ffi.new("sslm_detok_state") }, Detokenizer)
end

function Detokenizer:push(id)
  local token, text, n = ffi.new("int32_t[1]", id), ffi.new("char[512]"), ffi.new("int32_t[1]", 512)
  check(C.sslm_detokenize_stream(self.model.handle, self.state, token, 1, text, n), "sslm_detokenize_stream")
  return ffi.string(text, n[0])
end

-- ---- Workspace and pool ----

local Workspace = {}
Workspace.__index = Workspace

-- Scratch for calls of up to `batch` sequences or `chunk` prompt tokens; within it no call allocates.
function Model:workspace(batch, chunk)
  local config = ffi.new("sslm_config", batch, chunk, self.layers, 0)
  local memory = buffer(tonumber(C.sslm_workspace_size(self.handle, config)))
  local out = ffi.new("sslm_workspace[1]")
  check(C.sslm_workspace_create(self.handle, config, memory.start, memory.size, out), "sslm_workspace_create")
  return setmetatable({ handle = out[0], memory = memory }, Workspace)
end

function Workspace:close() check(C.sslm_workspace_destroy(self.handle), "sslm_workspace_destroy") end

local Pool = {}
Pool.__index = Pool

-- K/V memory of `pages` pages.
function Model:pool(pages)
  local page, overhead = C.sslm_kv_page_size(self.handle), C.sslm_kv_page_pool_overhead_size(self.handle, pages)
  local memory = buffer(tonumber(page) * pages + tonumber(overhead))
  local out = ffi.new("sslm_kv_pool[1]")
  check(C.sslm_kv_page_pool_create(self.handle, memory.start, memory.size, pages, out), "sslm_kv_page_pool_create")
  return setmetatable({ model = self, handle = out, memory = memory }, Pool)
end

function Pool:close() check(C.sslm_kv_pool_destroy(self.handle[0]), "sslm_kv_pool_destroy") end

-- ---- Prefix and sequence ----

local CHUNK = 64 -- prompt tokens per library call

local function prefill(verb, model, handle, ids, workspace)
  local array, consumed, done = id_array(ids), ffi.new("int32_t[1]"), 0
  local space = workspace and workspace.handle or nil
  while done < #ids do
    check(C[verb](model.handle, handle, array + done, #ids - done, CHUNK, 0, space, consumed), verb)
    done = done + consumed[0]
  end
end

local Prefix = {}
Prefix.__index = Prefix

-- A prompt read once and frozen: sequences adopt it and share its pages.
function Pool:prefix(ids, budget, workspace)
  local out = ffi.new("sslm_prefix[1]")
  check(C.sslm_prefix_begin_budgeted(self.model.handle, self.handle, budget, out), "sslm_prefix_begin_budgeted")
  local self_ = setmetatable({ handle = out[0] }, Prefix)
  prefill("sslm_prefix_prefill", self.model, out[0], ids, workspace)
  check(C.sslm_prefix_freeze(out[0]), "sslm_prefix_freeze")
  return self_
end

function Prefix:close() check(C.sslm_prefix_release(self.handle), "sslm_prefix_release") end

local Sequence = {}
Sequence.__index = Sequence

-- An empty conversation that may grow by `budget` positions.
function Pool:sequence(budget)
  local out = ffi.new("sslm_seq[1]")
  check(C.sslm_seq_create_budgeted(self.model.handle, self.handle, budget, out), "sslm_seq_create_budgeted")
  return setmetatable({ model = self.model, handle = out[0] }, Sequence)
end

-- The sequence of a blob, sharing the pages of the prefix it adopted. `pending` belongs to the host's save.
function Pool:restore(blob, prefix, pending)
  local out = ffi.new("sslm_seq[1]")
  local shared = prefix and prefix.handle or nil
  check(C.sslm_seq_restore_shared(self.model.handle, self.handle, blob, #blob, shared, out, nil),
    "sslm_seq_restore_shared")
  return setmetatable({ model = self.model, handle = out[0], pending = pending }, Sequence)
end

function Sequence:close() check(C.sslm_seq_release(self.handle), "sslm_seq_release") end

-- Empties it and starts from a frozen prefix.
function Sequence:adopt(prefix)
  check(C.sslm_seq_reset(self.handle), "sslm_seq_reset")
  check(C.sslm_seq_adopt_prefix(self.handle, prefix.handle), "sslm_seq_adopt_prefix")
  self.pending = nil
end

-- Appends ids. The token decoded last is not in the context yet: put `sequence.pending` in front to keep it.
function Sequence:prefill(ids, workspace)
  prefill("sslm_prefill", self.model, self.handle, ids, workspace)
  self.pending = nil
end

-- The sequence as a string of bytes, in any state.
function Sequence:save()
  local n = ffi.new("size_t[1]", 0)
  C.sslm_seq_save(self.handle, nil, n)
  local blob = ffi.new("char[?]", n[0])
  check(C.sslm_seq_save(self.handle, blob, n), "sslm_seq_save")
  return ffi.string(blob, n[0])
end

-- ---- Other Lua states of the process, such as love.thread ----

-- A handle as a string that a Channel can carry.
function superslm.lend(object)
  return ffi.string(ffi.new("uintptr_t[1]", ffi.cast("uintptr_t", object.handle)), ffi.sizeof("uintptr_t"))
end

local function borrow(kind, bytes)
  local address = ffi.new("uintptr_t[1]")
  ffi.copy(address, bytes, ffi.sizeof(address))
  return ffi.cast(kind, address[0])
end

-- A prefill on another thread; nothing else may use the sequence or the workspace meanwhile.
function superslm.prefill_lent(model, sequence, workspace, ids)
  prefill("sslm_prefill", { handle = borrow("sslm_model", model) }, borrow("sslm_seq", sequence), ids,
    { handle = borrow("sslm_workspace", workspace) })
end

return superslm
