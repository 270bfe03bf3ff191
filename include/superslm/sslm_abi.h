/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* SuperSLM runs small language models inside games: integer arithmetic only, the same bits on every machine,
 * no threads, no files, no hidden memory. The host maps an artifact (.sslm), lends buffers, and calls verbs.
 *
 * Levels of use
 *   1. Talk:   sslm_model_map, sslm_kv_pool_create, sslm_seq_create, sslm_prefill, sslm_decode_step,
 *              sslm_detokenize_stream. Ids come from sslm_tokenize for text of your own; for players'
 *              text and for chat turns from sslm_ext_tokenize and sslm_ext_chat_ids (sslm_ext.h).
 *   2. Frames: a workspace makes prefill and decode free of heap allocations; chunk and layer budgets cut the
 *              work into slices; sslm_workspace_set_parallel_for lends the host's job system.
 *   3. Casts:  page pools and budgets, frozen prefixes shared by many sequences, save and restore, adapters,
 *              schemas that keep the output in a language the host can parse.
 *
 * Frozen: the 51 verbs, 30 statuses, structs and macros of this header and of parallel_for.h. Names, layouts
 * and ordinals never change; statuses are only appended. Draft functions live in sslm_ext.h.
 *
 * Common rules
 *   - Checks run in a fixed order and the first that fails decides the status. A refusal changes nothing
 *     unless the verb says so. A verb with an out-handle sets it to null first; a null `out` is
 *     SSLM_INVALID_ARGUMENT.
 *   - A null handle or pointer is SSLM_INVALID_ARGUMENT unless the verb allows it; so is an object of another
 *     model. Sizing verbs return 0 for those, and SIZE_MAX where no buffer could be large enough.
 *   - SSLM_ALLOCATION_FAILED may come from any verb that allocates; everything drawn is given back.
 *   - Using a handle after its release is undefined, except in a decode batch (-3).
 *   - The last token that decode emitted is pending: its K/V row is written by the next decode step. A
 *     prefill in between drops it: to keep it, pass it again as the first token of that prefill.
 *
 * Thread tags: [pure] any number of threads. [excl: x] no other call may use the same x meanwhile. [seq-lock]
 * takes the sequence's lock: serialises with decode, save, reset, adopt, kv-stats and release of that
 * sequence. [pool-lock] takes the pool's lock: safe against every other verb on the pool.
 *
 * Defining SUPERSLM_ABI_ENUM_ONLY before the include gives the types without the functions; a later plain
 * include still declares them. C99 and C++. */

#ifndef SUPERSLM_SSLM_ABI_TYPES
#define SUPERSLM_SSLM_ABI_TYPES

#include <stddef.h>
#include <stdint.h>

#include "superslm/api.h"
#include "superslm/parallel_for.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Handles: pointers to incomplete structs, passed by value ---- */

typedef struct sslm_model_s* sslm_model;         /* a mapped artifact, immutable */
typedef struct sslm_seq_s* sslm_seq;             /* one conversation: a context and its K/V rows */
typedef struct sslm_prefix_s* sslm_prefix;       /* a context to start sequences from; shared once frozen */
typedef struct sslm_adapter_s* sslm_adapter;     /* a mapped LoRA adapter of one model */
typedef struct sslm_kv_pool_s* sslm_kv_pool;     /* K/V memory in the host's buffer */
typedef struct sslm_workspace_s* sslm_workspace; /* scratch memory in the host's buffer */
typedef struct sslm_schema_s* sslm_schema; /* an automaton inside its model; never released by the host */

/* ---- Macros ---- */

#define SSLM_ABI_ALIGNMENT_BYTES 64u /* alignment of every workspace and pool buffer */
#define SSLM_HAS_PAGED_KV_ABI 1      /* the paged surface: budgets, page pools, nested prefixes, statistics */
#define SSLM_SCHEMA_NONE ((sslm_schema)0)

#define SSLM_DECODE_MODE_GREEDY 0        /* the largest logit, lowest id on ties */
#define SSLM_DECODE_MODE_DAMPED_GREEDY 1 /* greedy with a penalty on what the sequence itself repeats */
#define SSLM_DAMPED_GREEDY_DEFAULT_ALPHA_Q15 65536 /* 2.0 in Q15 */
#define SSLM_DAMPED_GREEDY_DEFAULT_ANTI_LM_ORDER 2
#define SSLM_DAMPED_GREEDY_DEFAULT_TOP_K 6

/* In C++ the enums have the fixed type int, so any int a caller passes can be checked. */
#ifdef __cplusplus
#define SSLM_ENUM_REPRESENTATION : int
#else
#define SSLM_ENUM_REPRESENTATION
#endif

/* ---- Statuses: ordinals fixed for ever, new ones only appended ---- */

typedef enum sslm_status SSLM_ENUM_REPRESENTATION {
  SSLM_OK = 0,
  SSLM_INVALID_ARGUMENT = 1,  /* malformed call or blob, wrong model, pool or lifecycle state, hook fault */
  SSLM_BUFFER_TOO_SMALL = 2,  /* the caller's buffer is short; size queries use it */
  SSLM_MISALIGNED_BUFFER = 3, /* the buffer is not 64-byte aligned */
  SSLM_ARTIFACT_REJECTED = 4, /* the artifact cannot be used, or lacks the part the verb needs */
  SSLM_ADAPTER_MODEL_MISMATCH = 5,          /* the adapter was made for another base */
  SSLM_RESTORE_MODEL_MISMATCH = 6,          /* the blob's model digest differs */
  SSLM_RESTORE_KV_MISMATCH = 7,             /* the blob's K/V precision differs */
  SSLM_MODEL_HAS_LIVE_SEQUENCES = 8,        /* unmap while a sequence, prefix or adapter lives */
  SSLM_POOL_HAS_LIVE_HANDLES = 9,           /* pool destroy while a sequence or prefix made from it lives */
  SSLM_ADAPTER_HAS_LIVE_SEQUENCES = 10,     /* adapter release while it is bound */
  SSLM_ADAPTER_SWAP_MIDTOKEN_REJECTED = 11, /* adapter bind or unbind while mid-token */
  SSLM_SEQ_RESET_MIDTOKEN_REJECTED = 12,    /* reserved, never returned */
  SSLM_PREFIX_FROZEN_REJECTED = 13,         /* prefill of a frozen prefix */
  SSLM_KV_POOL_EXHAUSTED = 14,              /* fewer free pages than the verb must draw */
  SSLM_TOKEN_ID_OUT_OF_RANGE = 15,          /* prefill token outside [0, vocabulary) */
  SSLM_CONTEXT_CAP_EXCEEDED = 16,           /* write at the context cap */
  SSLM_TOKEN_ID_UNMAPPED = 17,              /* an id the tokenizer has no text for (padded vocabulary) */
  SSLM_SCHEMA_NOT_FOUND = 18,               /* no schema of that name */
  SSLM_SCHEMA_BIND_REJECTED = 19,           /* schema bind or unbind while the sequence is not bindable */
  SSLM_SCHEMA_SPAN_UNBOUND = 20,            /* schema-content prefill with no schema bound */
  SSLM_PREFIX_SCHEMA_MISMATCH = 21,         /* adopt: the prefix's schema progress does not fit */
  SSLM_RESTORE_SCHEMA_MISMATCH = 22,        /* the blob's schema or walk state does not resolve */
  SSLM_SCHEMA_SPAN_UNREACHABLE = 23,        /* a schema-content token has no transition */
  SSLM_SCHEMA_UNSATISFIABLE = 24,           /* reserved for the offline schema compiler */
  SSLM_ALLOCATION_FAILED = 25,              /* process memory exhausted */
  SSLM_NUMERIC_STEP_REFUSED = 26, /* a per-step gate of damped greedy declined; retry with other parameters */
  SSLM_RESTORE_RESIDUAL_LOST = 27,   /* an old blob in the one state its format could not carry */
  SSLM_GPU_SHADER_BINARY_STALE = 28, /* GPU only; never returned by these verbs */
  SSLM_KV_BUDGET_EXCEEDED = 29,      /* write at a budget holder's limit, the limit being below the cap */
  SSLM_STATUS_NEXT_FREE = 30         /* one past the last status; never returned */
} sslm_status;

/* Applies X to each status name in ordinal order. */
#define SSLM_STATUS_ENUM_LIST(X)         \
  X(SSLM_OK)                             \
  X(SSLM_INVALID_ARGUMENT)               \
  X(SSLM_BUFFER_TOO_SMALL)               \
  X(SSLM_MISALIGNED_BUFFER)              \
  X(SSLM_ARTIFACT_REJECTED)              \
  X(SSLM_ADAPTER_MODEL_MISMATCH)         \
  X(SSLM_RESTORE_MODEL_MISMATCH)         \
  X(SSLM_RESTORE_KV_MISMATCH)            \
  X(SSLM_MODEL_HAS_LIVE_SEQUENCES)       \
  X(SSLM_POOL_HAS_LIVE_HANDLES)          \
  X(SSLM_ADAPTER_HAS_LIVE_SEQUENCES)     \
  X(SSLM_ADAPTER_SWAP_MIDTOKEN_REJECTED) \
  X(SSLM_SEQ_RESET_MIDTOKEN_REJECTED)    \
  X(SSLM_PREFIX_FROZEN_REJECTED)         \
  X(SSLM_KV_POOL_EXHAUSTED)              \
  X(SSLM_TOKEN_ID_OUT_OF_RANGE)          \
  X(SSLM_CONTEXT_CAP_EXCEEDED)           \
  X(SSLM_TOKEN_ID_UNMAPPED)              \
  X(SSLM_SCHEMA_NOT_FOUND)               \
  X(SSLM_SCHEMA_BIND_REJECTED)           \
  X(SSLM_SCHEMA_SPAN_UNBOUND)            \
  X(SSLM_PREFIX_SCHEMA_MISMATCH)         \
  X(SSLM_RESTORE_SCHEMA_MISMATCH)        \
  X(SSLM_SCHEMA_SPAN_UNREACHABLE)        \
  X(SSLM_SCHEMA_UNSATISFIABLE)           \
  X(SSLM_ALLOCATION_FAILED)              \
  X(SSLM_NUMERIC_STEP_REFUSED)           \
  X(SSLM_RESTORE_RESIDUAL_LOST)          \
  X(SSLM_GPU_SHADER_BINARY_STALE)        \
  X(SSLM_KV_BUDGET_EXCEEDED)

typedef enum sslm_span_kind SSLM_ENUM_REPRESENTATION {
  SSLM_SPAN_PROMPT = 0,        /* ordinary input; never moves a bound schema's walk */
  SSLM_SPAN_SCHEMA_CONTENT = 1 /* output the schema forces; each token is checked and moves the walk */
} sslm_span_kind;

/* ---- Structs ---- */

/* The call shape a workspace is sized for. All-zero is invalid. The number of layers is `layers` of
 * sslm_ext_model_info, or decode_step_ceiling of sslm_stats where drafts are not used. */
typedef struct sslm_config {
  int32_t max_batch;        /* sequences per decode call, >= 1 */
  int32_t max_chunk_budget; /* tokens per prefill call, >= 1 */
  int32_t max_layer_budget; /* 1..layers of the model; checked only: a workspace covers any layer budget */
  uint32_t reserved;        /* 0 */
} sslm_config;

/* The tail of a UTF-8 character that waits for its rest. All-zero starts a text; a saved game keeps the four
 * bytes beside the blob of sslm_seq_save. */
typedef struct sslm_detok_state {
  uint8_t pending_bytes[3];
  uint8_t pending_count; /* 0..3 */
} sslm_detok_state;

/* Fill it with sslm_decode_params_init. sslm_decode_step reads layer_budget only. The number of layers: see
 * sslm_config. */
typedef struct sslm_decode_params {
  int32_t layer_budget;      /* layers per sequence in this call, 1..layers of the model */
  uint32_t struct_size;      /* sizeof(sslm_decode_params) */
  int32_t mode;              /* SSLM_DECODE_MODE_*; the fields below are read in damped mode only */
  int32_t alpha_q15;         /* strength of the penalty in Q15, 0..1048575 */
  int32_t anti_lm_max_order; /* longest repeated phrase it sees, in tokens, 1..82 */
  int32_t top_k;             /* candidates, 1..vocabulary */
  int64_t q_ln2;             /* constants of the model's logit scale, from sslm_decode_params_init */
  int64_t q_b;
  int64_t q_c;
} sslm_decode_params;

typedef struct sslm_stats_out {
  int64_t decode_step_ceiling; /* layers of the model, and so the largest layer budget */
  int64_t decode_step_actual;  /* layers of the model */
  int64_t forced_token_count;  /* tokens admitted as schema content since the last reset or adopt */
  int32_t kv_blocks_resident;  /* 1 */
  int32_t schema_accepting;    /* 1 when a schema is bound and its walk is in an accepting state, else 0 */
} sslm_stats_out;

typedef struct sslm_kv_pool_stats_out {
  uint32_t struct_size;   /* set by the caller: sizeof(sslm_kv_pool_stats_out) */
  uint32_t page_count;    /* pages of the pool */
  uint32_t free_pages;    /* pages no holder maps or reserves */
  uint32_t shared_pages;  /* distinct pages that at least one live holder maps by sharing */
  int64_t page_positions; /* positions per page; the context cap in a contiguous pool */
} sslm_kv_pool_stats_out;

typedef struct sslm_seq_kv_stats_out {
  uint32_t struct_size;          /* set by the caller: sizeof(sslm_seq_kv_stats_out) */
  uint32_t mode;                 /* 0 no budget, 1 budget */
  int64_t origin;                /* position the budget counts from: the adopted prefix's length, else 0 */
  int32_t budget;                /* positions; the context cap without a budget */
  int32_t reserved0;             /* 0 */
  int64_t limit;                 /* first position that is refused: min(origin + budget, context cap) */
  int64_t context_length;        /* committed positions */
  uint32_t mapped_private_pages; /* own pages in use, the materialised ones included */
  uint32_t shared_pages;         /* pages shared with a prefix */
  uint32_t reserve_pages;        /* held, not in use yet */
  uint32_t materialized_pages;   /* private copies of pages that were shared when the sequence was saved */
} sslm_seq_kv_stats_out;

/* ---- Layout, checked by every compiler that reads this header ---- */

#if defined(__cplusplus)
#define SSLM_LAYOUT_ASSERT(name, condition) static_assert(condition, #name)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define SSLM_LAYOUT_ASSERT(name, condition) _Static_assert(condition, #name)
#else
#define SSLM_LAYOUT_ASSERT(name, condition) typedef char sslm_layout_##name[(condition) ? 1 : -1]
#endif
#define SSLM_LAYOUT_SIZE(type, size) SSLM_LAYOUT_ASSERT(type##_size, sizeof(type) == (size))
#define SSLM_LAYOUT_FIELD(type, field, offset) \
  SSLM_LAYOUT_ASSERT(type##_##field, offsetof(type, field) == (offset))

SSLM_LAYOUT_SIZE(sslm_status, 4);
SSLM_LAYOUT_SIZE(sslm_span_kind, 4);

SSLM_LAYOUT_SIZE(sslm_config, 16);
SSLM_LAYOUT_FIELD(sslm_config, max_batch, 0);
SSLM_LAYOUT_FIELD(sslm_config, max_chunk_budget, 4);
SSLM_LAYOUT_FIELD(sslm_config, max_layer_budget, 8);
SSLM_LAYOUT_FIELD(sslm_config, reserved, 12);

SSLM_LAYOUT_SIZE(sslm_detok_state, 4);
SSLM_LAYOUT_FIELD(sslm_detok_state, pending_bytes, 0);
SSLM_LAYOUT_FIELD(sslm_detok_state, pending_count, 3);

SSLM_LAYOUT_SIZE(sslm_decode_params, 48);
SSLM_LAYOUT_FIELD(sslm_decode_params, layer_budget, 0);
SSLM_LAYOUT_FIELD(sslm_decode_params, struct_size, 4);
SSLM_LAYOUT_FIELD(sslm_decode_params, mode, 8);
SSLM_LAYOUT_FIELD(sslm_decode_params, alpha_q15, 12);
SSLM_LAYOUT_FIELD(sslm_decode_params, anti_lm_max_order, 16);
SSLM_LAYOUT_FIELD(sslm_decode_params, top_k, 20);
SSLM_LAYOUT_FIELD(sslm_decode_params, q_ln2, 24);
SSLM_LAYOUT_FIELD(sslm_decode_params, q_b, 32);
SSLM_LAYOUT_FIELD(sslm_decode_params, q_c, 40);

SSLM_LAYOUT_SIZE(sslm_stats_out, 32);
SSLM_LAYOUT_FIELD(sslm_stats_out, decode_step_ceiling, 0);
SSLM_LAYOUT_FIELD(sslm_stats_out, decode_step_actual, 8);
SSLM_LAYOUT_FIELD(sslm_stats_out, forced_token_count, 16);
SSLM_LAYOUT_FIELD(sslm_stats_out, kv_blocks_resident, 24);
SSLM_LAYOUT_FIELD(sslm_stats_out, schema_accepting, 28);

SSLM_LAYOUT_SIZE(sslm_kv_pool_stats_out, 24);
SSLM_LAYOUT_FIELD(sslm_kv_pool_stats_out, struct_size, 0);
SSLM_LAYOUT_FIELD(sslm_kv_pool_stats_out, page_count, 4);
SSLM_LAYOUT_FIELD(sslm_kv_pool_stats_out, free_pages, 8);
SSLM_LAYOUT_FIELD(sslm_kv_pool_stats_out, shared_pages, 12);
SSLM_LAYOUT_FIELD(sslm_kv_pool_stats_out, page_positions, 16);

SSLM_LAYOUT_SIZE(sslm_seq_kv_stats_out, 56);
SSLM_LAYOUT_FIELD(sslm_seq_kv_stats_out, struct_size, 0);
SSLM_LAYOUT_FIELD(sslm_seq_kv_stats_out, mode, 4);
SSLM_LAYOUT_FIELD(sslm_seq_kv_stats_out, origin, 8);
SSLM_LAYOUT_FIELD(sslm_seq_kv_stats_out, budget, 16);
SSLM_LAYOUT_FIELD(sslm_seq_kv_stats_out, reserved0, 20);
SSLM_LAYOUT_FIELD(sslm_seq_kv_stats_out, limit, 24);
SSLM_LAYOUT_FIELD(sslm_seq_kv_stats_out, context_length, 32);
SSLM_LAYOUT_FIELD(sslm_seq_kv_stats_out, mapped_private_pages, 40);
SSLM_LAYOUT_FIELD(sslm_seq_kv_stats_out, shared_pages, 44);
SSLM_LAYOUT_FIELD(sslm_seq_kv_stats_out, reserve_pages, 48);
SSLM_LAYOUT_FIELD(sslm_seq_kv_stats_out, materialized_pages, 52);

/* The one struct with pointers; 32-bit hosts (wasm32) have it at half those offsets. */
SSLM_LAYOUT_SIZE(sslm_parallel_for, 2 * sizeof(void*) + 8);
SSLM_LAYOUT_FIELD(sslm_parallel_for, run, 0);
SSLM_LAYOUT_FIELD(sslm_parallel_for, host_ctx, sizeof(void*));
SSLM_LAYOUT_FIELD(sslm_parallel_for, max_tasks, 2 * sizeof(void*));
SSLM_LAYOUT_FIELD(sslm_parallel_for, reserved, 2 * sizeof(void*) + 4);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SUPERSLM_SSLM_ABI_TYPES */

#if !defined(SUPERSLM_ABI_ENUM_ONLY) && !defined(SUPERSLM_SSLM_ABI_FUNCTIONS)
#define SUPERSLM_SSLM_ABI_FUNCTIONS

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Model ---- */

/* Makes a model of the artifact at `data` (`size` bytes, any alignment, 64 is fastest; a read-only file
 * mapping is meant). The bytes are used in place: keep them mapped and unchanged until sslm_model_unmap.
 * Refuses: null out or data; damaged, foreign or unsupported bytes (ARTIFACT_REJECTED; sslm_ext_model_check
 * says why). [pure] */
SUPERSLM_API sslm_status sslm_model_map(const void* data, size_t size, sslm_model* out);

/* Ends the model. Pools and workspaces may outlive it and may then only be destroyed.
 * Refuses: null; a live sequence, prefix or adapter (MODEL_HAS_LIVE_SEQUENCES; the model stays usable).
 * [excl: model] */
SUPERSLM_API sslm_status sslm_model_unmap(sslm_model model);

/* ---- Workspace: `ws` may be null wherever a verb takes one; the call then uses the heap ---- */

/* Bytes of workspace that cover calls of the shape `config`; 0 for null or a field out of range. [pure] */
SUPERSLM_API size_t sslm_workspace_size(sslm_model model, const sslm_config* config);

/* Makes a workspace in `buf` (64-byte aligned, at least sslm_workspace_size bytes), which stays the host's
 * and must outlive it. It serves any sequence of its model, one call at a time. A call larger than `config`
 * is not refused: it uses the heap. Refuses, in order: null out; null model or invalid config; null buf;
 * BUFFER_TOO_SMALL; MISALIGNED_BUFFER. [pure] */
SUPERSLM_API sslm_status sslm_workspace_create(sslm_model model, const sslm_config* config, void* buf,
                                               size_t buf_size, sslm_workspace* out);

/* Ends the workspace; never frees its buffer. Refuses: null. [excl: ws] */
SUPERSLM_API sslm_status sslm_workspace_destroy(sslm_workspace ws);

/* Installs a copy of the host's job-system hook, or clears it when `pf` is null; see parallel_for.h.
 * Refuses: null ws; another bit of `reserved` than SSLM_PARALLEL_FOR_MATVEC; max_tasks outside 0..256; a null
 * `run` with max_tasks > 1. A refusal keeps the hook that was installed. [excl: ws] */
SUPERSLM_API sslm_status sslm_workspace_set_parallel_for(sslm_workspace ws, const sslm_parallel_for* pf);

/* ---- K/V memory: a block holds one full context, a page sslm_kv_page_positions positions ---- */

/* Bytes of K/V for one full context, page slack excluded; 0 on null. [pure] */
SUPERSLM_API size_t sslm_kv_block_size(sslm_model model);

/* Bytes that a pool of `block_count` blocks needs beside block_count * sslm_kv_block_size. 0 on null;
 * SIZE_MAX when no such pool can exist. [pure] */
SUPERSLM_API size_t sslm_kv_pool_overhead_size(sslm_model model, uint32_t block_count);

/* Makes a pool for at least `block_count` holders without a budget, in `buf` (64-byte aligned, at least
 * block_count * sslm_kv_block_size + sslm_kv_pool_overhead_size bytes). The buffer stays the host's, must
 * outlive the pool, and is not written here. Refuses, in order: null out; null model or buf; block_count 0;
 * too many pages (all INVALID_ARGUMENT); BUFFER_TOO_SMALL; MISALIGNED_BUFFER. [pure] */
SUPERSLM_API sslm_status sslm_kv_pool_create(sslm_model model, void* buf, size_t buf_size,
                                             uint32_t block_count, sslm_kv_pool* out);

/* Positions per page: a constant of the model. 0 on null or overflow. [pure] */
SUPERSLM_API int64_t sslm_kv_page_positions(sslm_model model);

/* Bytes per page; 0 on null or overflow. [pure] */
SUPERSLM_API size_t sslm_kv_page_size(sslm_model model);

/* Pages a holder of `budget` positions (1..context cap) reserves in a block or page pool; 0 on null or a
 * budget out of range. In a contiguous pool every holder reserves one page. [pure] */
SUPERSLM_API size_t sslm_kv_pages_for_budget(sslm_model model, int32_t budget);

/* Bytes that a pool of `page_count` pages needs beside page_count * sslm_kv_page_size. 0 on null; SIZE_MAX
 * when it cannot be represented. [pure] */
SUPERSLM_API size_t sslm_kv_page_pool_overhead_size(sslm_model model, uint32_t page_count);

/* Makes a pool of `page_count` pages (below UINT32_MAX) in `buf` (64-byte aligned, at least
 * page_count * sslm_kv_page_size + sslm_kv_page_pool_overhead_size bytes). Otherwise as sslm_kv_pool_create,
 * with the same order of refusals; page_count UINT32_MAX is refused last. [pure] */
SUPERSLM_API sslm_status sslm_kv_page_pool_create(sslm_model model, void* buf, size_t buf_size,
                                                  uint32_t page_count, sslm_kv_pool* out);

/* Total bytes of a contiguous pool of `block_count` blocks. 0 on null; SIZE_MAX when no such pool can exist.
 * [pure] */
SUPERSLM_API size_t sslm_kv_pool_contiguous_size(sslm_model model, uint32_t block_count);

/* Makes a pool whose pages are whole contexts, in `buf` (64-byte aligned, sslm_kv_pool_contiguous_size
 * bytes): one page per holder, nothing shared. Otherwise as sslm_kv_pool_create, with the same order of
 * refusals. [pure] */
SUPERSLM_API sslm_status sslm_kv_pool_create_contiguous(sslm_model model, void* buf, size_t buf_size,
                                                        uint32_t block_count, sslm_kv_pool* out);

/* Ends the pool; never frees its buffer; allowed after the model is unmapped.
 * Refuses: null; a live sequence or prefix made from it (POOL_HAS_LIVE_HANDLES). [excl: pool] */
SUPERSLM_API sslm_status sslm_kv_pool_destroy(sslm_kv_pool pool);

/* Writes one consistent snapshot of the pool. Refuses: null; out->struct_size other than
 * sizeof(sslm_kv_pool_stats_out). [pool-lock] */
SUPERSLM_API sslm_status sslm_kv_pool_stats(sslm_kv_pool pool, sslm_kv_pool_stats_out* out);

/* ---- Sequence ---- */

/* Bytes no save blob of this model ever exceeds; 0 on null. [pure] */
SUPERSLM_API size_t sslm_seq_state_size(sslm_model model);

/* Makes an empty sequence that may grow to the context cap; its pages are reserved now. `pool` points to the
 * pool's handle.
 * Refuses, in order: null out; null model, pool or *pool; a pool of another model; too few free pages
 * (KV_POOL_EXHAUSTED). [pool-lock] */
SUPERSLM_API sslm_status sslm_seq_create(sslm_model model, sslm_kv_pool* pool, sslm_seq* out);

/* Makes an empty sequence that may write `budget` positions (1..context cap) beyond its origin; it reserves
 * sslm_kv_pages_for_budget pages and shares the pages of a prefix it adopts.
 * Refuses, in order: as sslm_seq_create, with a budget out of range before KV_POOL_EXHAUSTED. [pool-lock] */
SUPERSLM_API sslm_status sslm_seq_create_budgeted(sslm_model model, sslm_kv_pool* pool, int32_t budget,
                                                  sslm_seq* out);

/* Ends the sequence and gives its pages back; waits for a decode in flight. A concurrent decode batch may
 * name it and reports -3; racing any other verb is undefined. Refuses: null. [seq-lock, pool-lock] */
SUPERSLM_API sslm_status sslm_seq_release(sslm_seq seq);

/* Empties the sequence in any state, mid-token included. Keeps schema, adapter, budget and reserved pages.
 * Refuses: null. [seq-lock, pool-lock] */
SUPERSLM_API sslm_status sslm_seq_reset(sslm_seq seq);

/* Replaces the content by that of a frozen prefix, ready to decode unless the prefix is empty. A sequence
 * with a budget shares the prefix's full pages and copies at most one; without one it copies all. Draws no
 * page. Refuses: null; a prefix not frozen, of another model, or (budget) of another pool;
 * PREFIX_SCHEMA_MISMATCH when the prefix has walked a schema that the sequence has not bound. The prefix must
 * not be released meanwhile. [seq-lock, pool-lock] */
SUPERSLM_API sslm_status sslm_seq_adopt_prefix(sslm_seq seq, sslm_prefix prefix);

/* Writes the sequence as a blob to `buf`. `*n` is the capacity on entry and the blob's exact size on exit;
 * the sequence is unchanged, whatever its state. What the host keeps itself, it saves itself: the text's
 * sslm_detok_state, the last emitted token, the layers done. Refuses: null n or seq; a null or short buf
 * (BUFFER_TOO_SMALL, *n = bytes needed). [seq-lock] */
SUPERSLM_API sslm_status sslm_seq_save(sslm_seq seq, void* buf, size_t* n);

/* Makes a sequence of a blob (`n` bytes at `buf`, untrusted): sslm_seq_restore_shared without a prefix.
 * [pool-lock] */
SUPERSLM_API sslm_status sslm_seq_restore(sslm_model model, sslm_kv_pool* pool, const void* buf, size_t n,
                                          sslm_seq* out);

/* Makes a sequence that continues exactly as the saved one, without adapter. `prefix_or_null` is a hint:
 * where its content is the blob's, full pages are shared and counted in *out_shared_pages (may be null);
 * otherwise they are the sequence's own, which takes as many more free pages.
 * Refuses: null out, model, pool or blob; a malformed blob (INVALID_ARGUMENT); RESTORE_MODEL_MISMATCH,
 * RESTORE_KV_MISMATCH, RESTORE_SCHEMA_MISMATCH, RESTORE_RESIDUAL_LOST; KV_POOL_EXHAUSTED.
 * The prefix must not be released meanwhile. [pool-lock] */
SUPERSLM_API sslm_status sslm_seq_restore_shared(sslm_model model, sslm_kv_pool* pool, const void* blob,
                                                 size_t size, sslm_prefix prefix_or_null, sslm_seq* out,
                                                 uint32_t* out_shared_pages);

/* Binds an adapter, or unbinds with null. Survives reset and adopt; not saved.
 * Refuses: null seq; a sequence mid-token (ADAPTER_SWAP_MIDTOKEN_REJECTED); an adapter of another model
 * (ADAPTER_MODEL_MISMATCH). [excl: seq] */
SUPERSLM_API sslm_status sslm_seq_set_adapter(sslm_seq seq, sslm_adapter adapter);

/* Binds a schema and starts its walk, or unbinds with SSLM_SCHEMA_NONE. Allowed after create and reset, until
 * the first prefill, decode or adopt. Refuses: null seq; a sequence past that point (SCHEMA_BIND_REJECTED); a
 * schema of another model. [excl: seq] */
SUPERSLM_API sslm_status sslm_seq_set_schema(sslm_seq seq, sslm_schema schema);

/* Writes 1 when a schema is bound, else 0. Refuses: null.
 * [excl: seq, against verbs that change the binding] */
SUPERSLM_API sslm_status sslm_seq_schema_bound(sslm_seq seq, int32_t* out_schema_bound);

/* Writes the sequence's K/V bookkeeping. Refuses: null; out->struct_size other than
 * sizeof(sslm_seq_kv_stats_out). Must not race a prefill of the sequence. [seq-lock] */
SUPERSLM_API sslm_status sslm_seq_kv_stats(sslm_seq seq, sslm_seq_kv_stats_out* out);

/* ---- Prefix: filled once, frozen, then adopted by any number of sequences ---- */

/* Makes an open prefix that may grow to the context cap. Refuses: as sslm_seq_create. [pool-lock] */
SUPERSLM_API sslm_status sslm_prefix_begin(sslm_model model, sslm_kv_pool* pool, sslm_prefix* out);

/* Makes an open prefix of at most `budget` positions (1..context cap). Refuses: as sslm_seq_create_budgeted.
 * [pool-lock] */
SUPERSLM_API sslm_status sslm_prefix_begin_budgeted(sslm_model model, sslm_kv_pool* pool, int32_t budget,
                                                    sslm_prefix* out);

/* Makes an open prefix that continues a frozen one in the same pool by at most `budget` positions (1..context
 * cap), sharing its full pages. Any number of threads may begin from one parent, which must not be released
 * meanwhile. Refuses, in order: null out; null parent; a parent not frozen; a budget out of range (all
 * INVALID_ARGUMENT); KV_POOL_EXHAUSTED. [pool-lock] */
SUPERSLM_API sslm_status sslm_prefix_begin_from(sslm_prefix parent, int32_t budget, sslm_prefix* out);

/* Appends tokens to an open prefix; arguments, refusals and *consumed as sslm_prefill, except that a frozen
 * prefix is refused (PREFIX_FROZEN_REJECTED) and no adapter shapes it. [excl: prefix, ws] */
SUPERSLM_API sslm_status sslm_prefix_prefill(sslm_model model, sslm_prefix prefix, const int32_t* tokens,
                                             int32_t count, int32_t chunk_budget, sslm_span_kind kind,
                                             sslm_workspace ws, int32_t* consumed);

/* Closes the prefix for writing and returns the pages it does not use. Again: OK, no effect. Refuses: null.
 * [excl: prefix, pool-lock] */
SUPERSLM_API sslm_status sslm_prefix_freeze(sslm_prefix prefix);

/* Ends the prefix, open or frozen. Pages that others still share stay until the last of them lets go; no
 * adopt, begin_from or restore may be reading it. Refuses: null. [excl: prefix, pool-lock] */
SUPERSLM_API sslm_status sslm_prefix_release(sslm_prefix prefix);

/* Binds a schema and starts its walk, or unbinds with SSLM_SCHEMA_NONE.
 * Refuses: null prefix; a prefix that is frozen or has content; a schema of another model. [excl: prefix] */
SUPERSLM_API sslm_status sslm_prefix_set_schema(sslm_prefix prefix, sslm_schema schema);

/* ---- Adapter ---- */

/* Makes a LoRA adapter of the bytes at `data` (`size` bytes, any alignment), used in place until release. It
 * counts as a live handle of `base`. Refuses: null; unusable bytes or a rank outside 1..256
 * (ARTIFACT_REJECTED); an adapter made for another base (ADAPTER_MODEL_MISMATCH). [pure] */
SUPERSLM_API sslm_status sslm_adapter_map(const void* data, size_t size, sslm_model base, sslm_adapter* out);

/* Ends the adapter. Refuses: null; an adapter bound to a sequence (ADAPTER_HAS_LIVE_SEQUENCES).
 * [excl: adapter] */
SUPERSLM_API sslm_status sslm_adapter_release(sslm_adapter adapter);

/* Bytes of the mapped adapter; 0 on null. [pure] */
SUPERSLM_API size_t sslm_adapter_residency(sslm_adapter adapter);

/* ---- Prefill and decode ---- */

/* Appends at most min(count, chunk_budget) of `tokens` (ids in [0, vocabulary)) to the context; *consumed
 * counts those admitted. OK with *consumed < count: call again with the rest; any chunking gives the same
 * state. Refuses: null; count < 0; chunk_budget < 1; unknown kind; schema content with none bound
 * (SCHEMA_SPAN_UNBOUND). Stops early, keeping what was admitted: TOKEN_ID_OUT_OF_RANGE, CONTEXT_CAP_EXCEEDED,
 * KV_BUDGET_EXCEEDED, SCHEMA_SPAN_UNREACHABLE. [excl: seq, ws] */
SUPERSLM_API sslm_status sslm_prefill(sslm_model model, sslm_seq seq, const int32_t* tokens, int32_t count,
                                      int32_t chunk_budget, sslm_span_kind kind, sslm_workspace ws,
                                      int32_t* consumed);

/* sslm_decode_step_v2 in greedy mode; only params->layer_budget is read. [seq-lock, excl: ws] */
SUPERSLM_API sslm_status sslm_decode_step(sslm_model model, sslm_seq* seqs, int32_t n,
                                          const sslm_decode_params* params, sslm_workspace ws,
                                          int32_t* out_tokens);

/* Advances each of `n` >= 1 sequences by at most params->layer_budget layers of one token. out_tokens[i]: the
 * id, now pending; -1 call again, or the entry that CONTEXT_CAP_EXCEEDED or KV_BUDGET_EXCEEDED stopped; -2
 * schema dead end; -3 released. A handle named twice takes two steps. Batches may overlap between threads.
 * Refuses before any step: null; a parameter out of range; damped mode without its constants
 * (ARTIFACT_REJECTED); an entry that is empty or of another model. A later refusal keeps entries before it
 * and leaves those after it untouched. [seq-lock, excl: ws] */
SUPERSLM_API sslm_status sslm_decode_step_v2(sslm_model model, sslm_seq* seqs, int32_t n,
                                             const sslm_decode_params* params, sslm_workspace ws,
                                             int32_t* out_tokens);

/* Writes the default parameters of a SSLM_DECODE_MODE_* with the given layer_budget (1..layers of the model).
 * Refuses: null; a budget or mode out of range; damped mode where the model has no constants for it
 * (ARTIFACT_REJECTED). [pure] */
SUPERSLM_API sslm_status sslm_decode_params_init(sslm_model model, int32_t mode, int32_t layer_budget,
                                                 sslm_decode_params* out);

/* Writes the sequence's counters. Refuses: null. [excl: seq, against verbs that change it] */
SUPERSLM_API sslm_status sslm_stats(sslm_model model, sslm_seq seq, sslm_stats_out* out);

/* ---- Text ---- */

/* Writes the token ids of `utf8` (NUL-terminated). `*n` is the capacity in ids on entry and the count on
 * exit. No begin, end or chat markers are added. The text of a special token becomes that token: never pass
 * a player's text here, sslm_ext_tokenize is for that. Refuses: null model, utf8 or n; a model without a
 * tokenizer (ARTIFACT_REJECTED); null or short tokens (BUFFER_TOO_SMALL, *n = ids needed). [pure] */
SUPERSLM_API sslm_status sslm_tokenize(sslm_model model, const char* utf8, int32_t* tokens, int32_t* n);

/* Writes the bytes of `n` tokens, whole characters only; an unfinished one waits in `state` for the next
 * call. Control tokens are written as text: compare an id with the model's stop ids first. `*out_n` is the
 * capacity in bytes on entry and the count on exit; no terminator is written.
 * Refuses, with `state` unchanged: null; n < 0; *out_n < 0; an invalid state; no tokenizer
 * (ARTIFACT_REJECTED); an id outside [0, vocabulary) or without text (TOKEN_ID_UNMAPPED); null or short utf8
 * (BUFFER_TOO_SMALL, *out_n = bytes needed). [pure] */
SUPERSLM_API sslm_status sslm_detokenize_stream(sslm_model model, sslm_detok_state* state,
                                                const int32_t* tokens, int32_t n, char* utf8, int32_t* out_n);

/* ---- Schemas ---- */

/* Finds a schema by its exact, case-sensitive name; the same name gives the same handle, valid as long as the
 * model. Refuses: null; an unknown name (SCHEMA_NOT_FOUND). [pure] */
SUPERSLM_API sslm_status sslm_schema_lookup(sslm_model model, const char* name, sslm_schema* out);

/* Number of schemas in the model; 0 on null. [pure] */
SUPERSLM_API size_t sslm_schema_count(sslm_model model);

/* Writes the name of schema `index` (0..count-1) without a terminator. `*n` is the capacity in bytes on entry
 * and the length on exit. Refuses: null n or model; an index out of range; null or short buf
 * (BUFFER_TOO_SMALL, *n = length). [pure] */
SUPERSLM_API sslm_status sslm_schema_name(sslm_model model, int32_t index, char* buf, size_t* n);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* functions */
