/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */
#ifndef SUPERSLM_SSLM_EXT_H
#define SUPERSLM_SSLM_EXT_H

/* Draft functions beside the frozen 51 verbs of sslm_abi.h. They follow the same rules and thread tags, but
 * may change between releases: compare sslm_ext_version() with SSLM_EXT_VERSION before calling any other of
 * them. */

#ifndef SSLM_ENABLE_DRAFT_EXTENSIONS
#error "sslm_ext.h is a draft that may change between releases: define SSLM_ENABLE_DRAFT_EXTENSIONS to use it"
#endif

#include "superslm/sslm_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SSLM_EXT_VERSION 1u      /* raised whenever a declaration below changes its meaning */
#define SSLM_EXT_DIGEST_BYTES 32 /* SHA-256 */
#define SSLM_EXT_MAX_STOP_IDS 16

/* Shape and identity of a model. The caller sets struct_size; fields are only appended. */
typedef struct sslm_ext_model_info_out {
  uint32_t struct_size;                    /* sizeof(sslm_ext_model_info_out) */
  int32_t layers;                          /* decoder layers */
  int32_t hidden;                          /* width of the residual */
  int32_t heads;                           /* query heads */
  int32_t kv_heads;                        /* key and value heads */
  int32_t head_dim;                        /* channels per head */
  int32_t mlp;                             /* width of the feed-forward part */
  int32_t vocab;                           /* token ids are [0, vocab) */
  int32_t cap;                             /* context cap in positions */
  int32_t weight_bits;                     /* 8 or 4; 0 when the artifact holds both */
  int32_t has_tokenizer;                   /* 1 when the text verbs work, else 0 */
  int32_t tokenizer_size;                  /* ids [0, tokenizer_size) have text; 0 without a tokenizer */
  int32_t schema_count;                    /* schemas in the artifact */
  int32_t stop_id_count;                   /* ids in stop_ids, 0..SSLM_EXT_MAX_STOP_IDS */
  int32_t stop_ids[SSLM_EXT_MAX_STOP_IDS]; /* ids after which a reply is over; the host stops, not decode */
  uint8_t file_digest[SSLM_EXT_DIGEST_BYTES];  /* identifies the file */
  uint8_t model_digest[SSLM_EXT_DIGEST_BYTES]; /* identifies what determines arithmetic and token ids */
} sslm_ext_model_info_out;

SSLM_LAYOUT_SIZE(sslm_ext_model_info_out, 184);
SSLM_LAYOUT_FIELD(sslm_ext_model_info_out, stop_ids, 56);
SSLM_LAYOUT_FIELD(sslm_ext_model_info_out, file_digest, 120);
SSLM_LAYOUT_FIELD(sslm_ext_model_info_out, model_digest, 152);

/* A turn's speaker and its side, for sslm_ext_chat_ids. */
#define SSLM_EXT_CHAT_SYSTEM 0
#define SSLM_EXT_CHAT_USER 1
#define SSLM_EXT_CHAT_ASSISTANT 2
#define SSLM_EXT_CHAT_PREFIX 0  /* ids in front of the turn's text */
#define SSLM_EXT_CHAT_SUFFIX 1  /* ids behind it */
#define SSLM_EXT_CHAT_OPENING 2 /* of the system role: ids that open a conversation without a system turn */

/* A flag of sslm_ext_tokenize: the text of a special token becomes that token. Never set it for players'
 * text. */
#define SSLM_EXT_TOKENIZE_SPECIAL 0x1u

/* A flag of sslm_ext_workspace_set_parallel. */
#define SSLM_EXT_PARALLEL_SPREAD 0x1u

/* One entry's draw, see sslm_ext_decode_sample. Probabilities are Q15 (32768 is 1), logits Q16 nats. */
typedef struct sslm_ext_sample_params {
  uint32_t struct_size;          /* sizeof(sslm_ext_sample_params); also the distance of the entries */
  int32_t top_k;                 /* keeps the best top_k tokens; 0: all */
  uint64_t seed;                 /* a draw depends on nothing but this, the logits and the length */
  uint64_t inverse_temperature;  /* round(log2(e) / temperature * 2^32), 1..2^47-1 */
  int32_t top_p_q15;             /* 1..32768: keeps the best tokens that together reach it; 32768: all */
  int32_t min_p_q15;             /* 0..32768: drops tokens less likely than this part of the best one */
  const int32_t* banned;         /* [banned_count] ids that are never drawn */
  const int32_t* bias_tokens;    /* [bias_count] ids */
  const int32_t* bias_q16;       /* [bias_count] added to their logits */
  const int32_t* penalty_tokens; /* [penalty_count] ids that the host has counted */
  const int32_t* penalty_counts; /* [penalty_count] >= 0 */
  int32_t banned_count;          /* 0: the array may be null, as for the other counts */
  int32_t bias_count;
  int32_t penalty_count;
  int32_t frequency_q16; /* taken off a penalised logit once per count */
  int32_t presence_q16;  /* taken off once */
  uint32_t reserved;     /* 0 */
} sslm_ext_sample_params;

/* 96 bytes with 64-bit pointers, 80 on wasm32. */
SSLM_LAYOUT_SIZE(sslm_ext_sample_params, (5 * sizeof(void*) + 63) / 8 * 8);
SSLM_LAYOUT_FIELD(sslm_ext_sample_params, inverse_temperature, 16);
SSLM_LAYOUT_FIELD(sslm_ext_sample_params, banned, 32);
SSLM_LAYOUT_FIELD(sslm_ext_sample_params, banned_count, 32 + 5 * sizeof(void*));

/* What a self-check found, see sslm_ext_self_check. */
#define SSLM_EXT_SELF_CHECK_VERIFIED 0       /* tokens, logits and K/V bytes are as recorded */
#define SSLM_EXT_SELF_CHECK_TOKEN_DIFFERS 1  /* token `tokens` (from 0) is `computed`, not `recorded` */
#define SSLM_EXT_SELF_CHECK_DIGEST_DIFFERS 2 /* all tokens agree, logits or K/V bytes behind them do not */

/* The caller sets struct_size; fields are only appended. */
typedef struct sslm_ext_self_check_out {
  uint32_t struct_size;    /* sizeof(sslm_ext_self_check_out) */
  int32_t verdict;         /* SSLM_EXT_SELF_CHECK_* */
  int32_t tokens;          /* leading tokens that agree, 0..expected_tokens */
  int32_t expected_tokens; /* tokens of the record */
  int32_t recorded;        /* the record's token compared last */
  int32_t computed;        /* this machine's token in its place */
} sslm_ext_self_check_out;

SSLM_LAYOUT_SIZE(sslm_ext_self_check_out, 24);
SSLM_LAYOUT_FIELD(sslm_ext_self_check_out, computed, 20);

/* SSLM_EXT_VERSION of the library that is loaded. [pure] */
SUPERSLM_API uint32_t sslm_ext_version(void);

/* The name of a status, such as "SSLM_OK"; "unknown status" for any other value. Static, NUL-terminated.
 * [pure] */
SUPERSLM_API const char* sslm_ext_status_name(sslm_status status);

/* The name of the kernel tier in use on this machine, such as "scalar" or "avx2". Static, NUL-terminated.
 * Every tier gives the same bits. [pure] */
SUPERSLM_API const char* sslm_ext_kernel_tier(void);

/* Writes the model's shape and identity. Refuses: null; a struct_size below that of this release's struct.
 * Only the fields of this release are written. [pure] */
SUPERSLM_API sslm_status sslm_ext_model_info(sslm_model model, sslm_ext_model_info_out* out);

/* Checks `size` bytes of an artifact as sslm_model_map does and says why they are refused: section, field,
 * value. `message` (may be null) takes the text, cut to the capacity `*n` and NUL-terminated where *n >= 1;
 * on exit `*n` is the length of the whole text without its terminator, 0 when the artifact is good. `n` may
 * be null when `message` is. Returns what sslm_model_map would: OK, ARTIFACT_REJECTED, or INVALID_ARGUMENT
 * for null data. [pure] */
SUPERSLM_API sslm_status sslm_ext_model_check(const void* data, size_t size, char* message, size_t* n);

/* Checks `size` bytes of an adapter as sslm_adapter_map does and says why they are refused, as above. Returns
 * what sslm_adapter_map would: OK, ARTIFACT_REJECTED, ADAPTER_MODEL_MISMATCH, ALLOCATION_FAILED, or
 * INVALID_ARGUMENT for a null base or data. [pure] */
SUPERSLM_API sslm_status sslm_ext_adapter_check(sslm_model base, const void* data, size_t size, char* message,
                                                size_t* n);

/* Replays the record that the converter stored in the artifact and says whether this machine computes the
 * same, or where it first differs: for a game's first start on a player's machine. Costs a short prompt and
 * 64 decode steps. `ws` may be null; its hook is used and so checked too. K/V memory of up to cap positions
 * and one row of logits are taken from the heap and given back. A difference is a verdict, not a refusal.
 * Refuses: null model or out; a struct_size below this release's; an artifact without a record
 * (ARTIFACT_REJECTED). [excl: ws] */
SUPERSLM_API sslm_status sslm_ext_self_check(sslm_model model, sslm_workspace ws,
                                             sslm_ext_self_check_out* out);

/* Bytes of a workspace whose installed hook may be spread over `max_tasks` tasks (1..256), see
 * sslm_ext_workspace_set_parallel; give them to sslm_workspace_create as buf_size. 0 where
 * sslm_workspace_size is 0, and for max_tasks outside its range. [pure] */
SUPERSLM_API size_t sslm_ext_workspace_size_parallel(sslm_model model, const sslm_config* config,
                                                     int32_t max_tasks);

/* With SSLM_EXT_PARALLEL_SPREAD the workspace's hook is also used by prefills of two or more tokens, by
 * attention and by the work between the matrices, for single sequences and joint passes; with 0, as at
 * first, only as parallel_for.h says. The same bits either way. A hook that misbehaves in such a prefill
 * leaves the sequence unchanged and *consumed 0. A workspace too small for the hook's max_tasks runs these
 * steps on the calling thread. Refuses: null ws; another flag. [excl: ws] */
SUPERSLM_API sslm_status sslm_ext_workspace_set_parallel(sslm_workspace ws, uint32_t flags);

/* Writes the logits (Q16 nats, one per id) from which the next decode step of a sequence that rests ready,
 * after a prefill or adopt, would choose; no schema mask. `*n` is the capacity in ids on entry and the
 * vocabulary on exit. Nothing about the sequence changes. Refuses: null model, seq or n; a sequence that is
 * empty, pending or mid-token; null or short out (BUFFER_TOO_SMALL, *n = vocabulary). [seq-lock, excl: ws] */
SUPERSLM_API sslm_status sslm_ext_seq_logits(sslm_model model, sslm_seq seq, sslm_workspace ws, int32_t* out,
                                             size_t* n);

/* Writes the token ids of `len` bytes of UTF-8 (0 bytes and NUL characters allowed). `flags` is 0 or
 * SSLM_EXT_TOKENIZE_SPECIAL; without it no text can become a control token. `*n` is the capacity in ids on
 * entry and the count on exit. Refuses: null model or n; null utf8 with len > 0; another flag; no tokenizer
 * (ARTIFACT_REJECTED); null or short out (BUFFER_TOO_SMALL, *n = ids needed). [pure] */
SUPERSLM_API sslm_status sslm_ext_tokenize(sslm_model model, const char* utf8, size_t len, uint32_t flags,
                                           int32_t* out, size_t* n);

/* Writes the ids in front of (SSLM_EXT_CHAT_PREFIX) or behind (SSLM_EXT_CHAT_SUFFIX) a turn of `role`. A
 * conversation: SYSTEM prefix, text, suffix (or SYSTEM OPENING alone); then for each turn USER prefix, text,
 * suffix, ASSISTANT prefix, and when the reply has ended ASSISTANT suffix. Texts come from sslm_ext_tokenize
 * without a flag. `*n` is the capacity in ids on entry and the count on exit. Refuses: null model or n; an
 * unknown role or part; a model without a chat format (ARTIFACT_REJECTED); null or short out
 * (BUFFER_TOO_SMALL, *n = ids needed). [pure] */
SUPERSLM_API sslm_status sslm_ext_chat_ids(sslm_model model, int32_t role, int32_t part, int32_t* out,
                                           size_t* n);

/* Appends `n` tokens as a prompt-span prefill does and writes the log-probability of each, given all before
 * it, to out[i] (Q16 nats, <= 0 up to rounding); `*consumed` counts the tokens admitted. In an empty sequence
 * nothing predicts the first token: out[0] is 0. Refuses and stops as sslm_prefill, and refuses null out and
 * a sequence that is pending or mid-token. [excl: seq, ws] */
SUPERSLM_API sslm_status sslm_ext_score(sslm_model model, sslm_seq seq, const int32_t* tokens, int32_t n,
                                        sslm_workspace ws, int32_t* out, int32_t* consumed);

/* Decodes as sslm_decode_step_v2 does and draws each token instead of taking the best: params[i] belongs to
 * seqs[i]. Bias comes first, then penalties, both saturating at 32 bits; banned tokens and those the bound
 * schema does not allow are taken out before top_k, top_p and min_p. A draw is a function of the seed, the
 * sequence's length and its logits: a replay needs the seed only, and batches, slices and processors change
 * nothing. -2 also stands where every token was banned; nothing has advanced then. The anti-LM of damped
 * greedy is left alone. Refuses as sslm_decode_step_v2, and a struct_size below this release's or unlike the
 * first entry's, a field outside its range, a null array with a count, an id outside [0, vocab): all
 * INVALID_ARGUMENT before any sequence is touched. [seq-lock, excl: ws] */
SUPERSLM_API sslm_status sslm_ext_decode_sample(sslm_model model, sslm_seq* seqs, int32_t n,
                                                int32_t layer_budget, const sslm_ext_sample_params* params,
                                                sslm_workspace ws, int32_t* out_tokens);

/* Writes a frozen prefix as a blob, so that a shipped game restores its world prompt instead of prefilling
 * it. A nested prefix (sslm_prefix_begin_from) carries its own positions only and names its parent by the
 * content it builds on; the parent may have been released. `*n` is the capacity in bytes on entry and the
 * exact size on exit. Refuses: null n or prefix; an open prefix; null or short buf (BUFFER_TOO_SMALL, *n =
 * size). [excl: release of prefix] */
SUPERSLM_API sslm_status sslm_ext_prefix_save(sslm_prefix prefix, void* buf, size_t* n);

/* Rebuilds a frozen prefix of a blob of sslm_ext_prefix_save (`size` bytes, untrusted, not used after the
 * call) in a pool of the model; it draws the pages its content needs, and a nested one shares the full pages
 * of its parent again. `parent_or_null` is that parent: frozen, of this pool, and of the content the blob
 * names (ignored for a blob without a parent); it may be released afterwards. `*out` is null after a refusal:
 * the checks of sslm_seq_restore for blob and pool (RESTORE_MODEL_MISMATCH for a blob of another model), then
 * INVALID_ARGUMENT for a missing or other parent, then KV_POOL_EXHAUSTED or ALLOCATION_FAILED.
 * [pool-lock, excl: release of parent] */
SUPERSLM_API sslm_status sslm_ext_prefix_restore(sslm_model model, sslm_kv_pool* pool, const void* blob,
                                                 size_t size, sslm_prefix parent_or_null, sslm_prefix* out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SUPERSLM_SSLM_EXT_H */
