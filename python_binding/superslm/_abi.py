# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The C ABI in ctypes: every enum, struct and signature of the public headers.

`tools/check_abi.py` compares this file with the headers and fails on any difference.
"""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum
from typing import Any

SSLM_ABI_ALIGNMENT_BYTES = 64
SSLM_PARALLEL_FOR_MATVEC = 0x2
SSLM_PARALLEL_FOR_MAX_TASKS = 256
SSLM_DECODE_MODE_GREEDY = 0
SSLM_DECODE_MODE_DAMPED_GREEDY = 1
SSLM_DAMPED_GREEDY_DEFAULT_ALPHA_Q15 = 65536
SSLM_DAMPED_GREEDY_DEFAULT_ANTI_LM_ORDER = 2
SSLM_DAMPED_GREEDY_DEFAULT_TOP_K = 6
SSLM_EXT_VERSION = 1
SSLM_EXT_MAX_STOP_IDS = 16
SSLM_EXT_DIGEST_BYTES = 32
SSLM_EXT_CHAT_SYSTEM = 0
SSLM_EXT_CHAT_USER = 1
SSLM_EXT_CHAT_ASSISTANT = 2
SSLM_EXT_CHAT_PREFIX = 0
SSLM_EXT_CHAT_SUFFIX = 1
SSLM_EXT_CHAT_OPENING = 2
SSLM_EXT_TOKENIZE_SPECIAL = 0x1
SSLM_EXT_PARALLEL_SPREAD = 0x1
SSLM_EXT_SELF_CHECK_VERIFIED = 0
SSLM_EXT_SELF_CHECK_TOKEN_DIFFERS = 1
SSLM_EXT_SELF_CHECK_DIGEST_DIFFERS = 2


class Status(IntEnum):
    """`sslm_status`."""

    SSLM_OK = 0
    SSLM_INVALID_ARGUMENT = 1
    SSLM_BUFFER_TOO_SMALL = 2
    SSLM_MISALIGNED_BUFFER = 3
    SSLM_ARTIFACT_REJECTED = 4
    SSLM_ADAPTER_MODEL_MISMATCH = 5
    SSLM_RESTORE_MODEL_MISMATCH = 6
    SSLM_RESTORE_KV_MISMATCH = 7
    SSLM_MODEL_HAS_LIVE_SEQUENCES = 8
    SSLM_POOL_HAS_LIVE_HANDLES = 9
    SSLM_ADAPTER_HAS_LIVE_SEQUENCES = 10
    SSLM_ADAPTER_SWAP_MIDTOKEN_REJECTED = 11
    SSLM_SEQ_RESET_MIDTOKEN_REJECTED = 12
    SSLM_PREFIX_FROZEN_REJECTED = 13
    SSLM_KV_POOL_EXHAUSTED = 14
    SSLM_TOKEN_ID_OUT_OF_RANGE = 15
    SSLM_CONTEXT_CAP_EXCEEDED = 16
    SSLM_TOKEN_ID_UNMAPPED = 17
    SSLM_SCHEMA_NOT_FOUND = 18
    SSLM_SCHEMA_BIND_REJECTED = 19
    SSLM_SCHEMA_SPAN_UNBOUND = 20
    SSLM_PREFIX_SCHEMA_MISMATCH = 21
    SSLM_RESTORE_SCHEMA_MISMATCH = 22
    SSLM_SCHEMA_SPAN_UNREACHABLE = 23
    SSLM_SCHEMA_UNSATISFIABLE = 24
    SSLM_ALLOCATION_FAILED = 25
    SSLM_NUMERIC_STEP_REFUSED = 26
    SSLM_RESTORE_RESIDUAL_LOST = 27
    SSLM_GPU_SHADER_BINARY_STALE = 28
    SSLM_KV_BUDGET_EXCEEDED = 29


class SpanKind(IntEnum):
    """`sslm_span_kind`."""

    SSLM_SPAN_PROMPT = 0
    SSLM_SPAN_SCHEMA_CONTENT = 1


# As in C, SSLM_OK and the others are names of this module.
globals().update({**Status.__members__, **SpanKind.__members__})


class sslm_model_s(Structure):
    """Incomplete: behind `sslm_model`."""


class sslm_seq_s(Structure):
    """Incomplete: behind `sslm_seq`."""


class sslm_prefix_s(Structure):
    """Incomplete: behind `sslm_prefix`."""


class sslm_adapter_s(Structure):
    """Incomplete: behind `sslm_adapter`."""


class sslm_kv_pool_s(Structure):
    """Incomplete: behind `sslm_kv_pool`."""


class sslm_workspace_s(Structure):
    """Incomplete: behind `sslm_workspace`."""


class sslm_schema_s(Structure):
    """Incomplete: behind `sslm_schema`."""


sslm_model = POINTER(sslm_model_s)
sslm_seq = POINTER(sslm_seq_s)
sslm_prefix = POINTER(sslm_prefix_s)
sslm_adapter = POINTER(sslm_adapter_s)
sslm_kv_pool = POINTER(sslm_kv_pool_s)
sslm_workspace = POINTER(sslm_workspace_s)
sslm_schema = POINTER(sslm_schema_s)

sslm_status = c_int
sslm_span_kind = c_int

sslm_task_fn = CFUNCTYPE(None, c_void_p, c_int32)
sslm_run_tasks_fn = CFUNCTYPE(None, c_void_p, c_int32, sslm_task_fn, c_void_p)


class sslm_parallel_for(Structure):
    """The host's job system."""

    _fields_ = [
        ("run", sslm_run_tasks_fn),
        ("host_ctx", c_void_p),
        ("max_tasks", c_int32),
        ("reserved", c_uint32),
    ]


class sslm_config(Structure):
    """The call shape a workspace is sized for."""

    _fields_ = [
        ("max_batch", c_int32),
        ("max_chunk_budget", c_int32),
        ("max_layer_budget", c_int32),
        ("reserved", c_uint32),
    ]


class sslm_detok_state(Structure):
    """The tail of a UTF-8 character that waits for its rest."""

    _fields_ = [("pending_bytes", c_uint8 * 3), ("pending_count", c_uint8)]


class sslm_decode_params(Structure):
    """Parameters of the decode verbs."""

    _fields_ = [
        ("layer_budget", c_int32),
        ("struct_size", c_uint32),
        ("mode", c_int32),
        ("alpha_q15", c_int32),
        ("anti_lm_max_order", c_int32),
        ("top_k", c_int32),
        ("q_ln2", c_int64),
        ("q_b", c_int64),
        ("q_c", c_int64),
    ]


class sslm_stats_out(Structure):
    """Counters of a sequence."""

    _fields_ = [
        ("decode_step_ceiling", c_int64),
        ("decode_step_actual", c_int64),
        ("forced_token_count", c_int64),
        ("kv_blocks_resident", c_int32),
        ("schema_accepting", c_int32),
    ]


class sslm_kv_pool_stats_out(Structure):
    """Pages of a pool."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("page_count", c_uint32),
        ("free_pages", c_uint32),
        ("shared_pages", c_uint32),
        ("page_positions", c_int64),
    ]


class sslm_seq_kv_stats_out(Structure):
    """K/V bookkeeping of a sequence."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("mode", c_uint32),
        ("origin", c_int64),
        ("budget", c_int32),
        ("reserved0", c_int32),
        ("limit", c_int64),
        ("context_length", c_int64),
        ("mapped_private_pages", c_uint32),
        ("shared_pages", c_uint32),
        ("reserve_pages", c_uint32),
        ("materialized_pages", c_uint32),
    ]


class sslm_ext_model_info_out(Structure):
    """Shape and identity of a model."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("layers", c_int32),
        ("hidden", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("mlp", c_int32),
        ("vocab", c_int32),
        ("cap", c_int32),
        ("weight_bits", c_int32),
        ("has_tokenizer", c_int32),
        ("tokenizer_size", c_int32),
        ("schema_count", c_int32),
        ("stop_id_count", c_int32),
        ("stop_ids", c_int32 * SSLM_EXT_MAX_STOP_IDS),
        ("file_digest", c_uint8 * SSLM_EXT_DIGEST_BYTES),
        ("model_digest", c_uint8 * SSLM_EXT_DIGEST_BYTES),
    ]


class sslm_ext_sample_params(Structure):
    """One entry's draw."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("top_k", c_int32),
        ("seed", c_uint64),
        ("inverse_temperature", c_uint64),
        ("top_p_q15", c_int32),
        ("min_p_q15", c_int32),
        ("banned", POINTER(c_int32)),
        ("bias_tokens", POINTER(c_int32)),
        ("bias_q16", POINTER(c_int32)),
        ("penalty_tokens", POINTER(c_int32)),
        ("penalty_counts", POINTER(c_int32)),
        ("banned_count", c_int32),
        ("bias_count", c_int32),
        ("penalty_count", c_int32),
        ("frequency_q16", c_int32),
        ("presence_q16", c_int32),
        ("reserved", c_uint32),
    ]


class sslm_ext_self_check_out(Structure):
    """Whether this machine computes an artifact's golden record, or where it first differs."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("verdict", c_int32),
        ("tokens", c_int32),
        ("expected_tokens", c_int32),
        ("recorded", c_int32),
        ("computed", c_int32),
    ]


STRUCTS: tuple[type[Structure], ...] = (
    sslm_parallel_for,
    sslm_config,
    sslm_detok_state,
    sslm_decode_params,
    sslm_stats_out,
    sslm_kv_pool_stats_out,
    sslm_seq_kv_stats_out,
    sslm_ext_model_info_out,
    sslm_ext_sample_params,
    sslm_ext_self_check_out,
)

_i32p = POINTER(c_int32)
_u32p = POINTER(c_uint32)
_sizep = POINTER(c_size_t)
_charp = POINTER(c_char)
_prefill_tail = [_i32p, c_int32, c_int32, sslm_span_kind, sslm_workspace, _i32p]
_decode = [sslm_model, POINTER(sslm_seq), c_int32, POINTER(sslm_decode_params), sslm_workspace, _i32p]
_pool_create = [sslm_model, c_void_p, c_size_t, c_uint32, POINTER(sslm_kv_pool)]

# name: (result, arguments). The frozen verbs, in the header's order.
VERBS: dict[str, tuple[Any, list[Any]]] = {
    "sslm_model_map": (sslm_status, [c_void_p, c_size_t, POINTER(sslm_model)]),
    "sslm_model_unmap": (sslm_status, [sslm_model]),
    "sslm_workspace_size": (c_size_t, [sslm_model, POINTER(sslm_config)]),
    "sslm_workspace_create": (
        sslm_status,
        [sslm_model, POINTER(sslm_config), c_void_p, c_size_t, POINTER(sslm_workspace)],
    ),
    "sslm_workspace_destroy": (sslm_status, [sslm_workspace]),
    "sslm_workspace_set_parallel_for": (sslm_status, [sslm_workspace, POINTER(sslm_parallel_for)]),
    "sslm_kv_block_size": (c_size_t, [sslm_model]),
    "sslm_kv_pool_overhead_size": (c_size_t, [sslm_model, c_uint32]),
    "sslm_kv_pool_create": (sslm_status, _pool_create),
    "sslm_kv_page_positions": (c_int64, [sslm_model]),
    "sslm_kv_page_size": (c_size_t, [sslm_model]),
    "sslm_kv_pages_for_budget": (c_size_t, [sslm_model, c_int32]),
    "sslm_kv_page_pool_overhead_size": (c_size_t, [sslm_model, c_uint32]),
    "sslm_kv_page_pool_create": (sslm_status, _pool_create),
    "sslm_kv_pool_contiguous_size": (c_size_t, [sslm_model, c_uint32]),
    "sslm_kv_pool_create_contiguous": (sslm_status, _pool_create),
    "sslm_kv_pool_destroy": (sslm_status, [sslm_kv_pool]),
    "sslm_kv_pool_stats": (sslm_status, [sslm_kv_pool, POINTER(sslm_kv_pool_stats_out)]),
    "sslm_seq_state_size": (c_size_t, [sslm_model]),
    "sslm_seq_create": (sslm_status, [sslm_model, POINTER(sslm_kv_pool), POINTER(sslm_seq)]),
    "sslm_seq_create_budgeted": (
        sslm_status,
        [sslm_model, POINTER(sslm_kv_pool), c_int32, POINTER(sslm_seq)],
    ),
    "sslm_seq_release": (sslm_status, [sslm_seq]),
    "sslm_seq_reset": (sslm_status, [sslm_seq]),
    "sslm_seq_adopt_prefix": (sslm_status, [sslm_seq, sslm_prefix]),
    "sslm_seq_save": (sslm_status, [sslm_seq, c_void_p, _sizep]),
    "sslm_seq_restore": (
        sslm_status,
        [sslm_model, POINTER(sslm_kv_pool), c_void_p, c_size_t, POINTER(sslm_seq)],
    ),
    "sslm_seq_restore_shared": (
        sslm_status,
        [sslm_model, POINTER(sslm_kv_pool), c_void_p, c_size_t, sslm_prefix, POINTER(sslm_seq), _u32p],
    ),
    "sslm_seq_set_adapter": (sslm_status, [sslm_seq, sslm_adapter]),
    "sslm_seq_set_schema": (sslm_status, [sslm_seq, sslm_schema]),
    "sslm_seq_schema_bound": (sslm_status, [sslm_seq, _i32p]),
    "sslm_seq_kv_stats": (sslm_status, [sslm_seq, POINTER(sslm_seq_kv_stats_out)]),
    "sslm_prefix_begin": (sslm_status, [sslm_model, POINTER(sslm_kv_pool), POINTER(sslm_prefix)]),
    "sslm_prefix_begin_budgeted": (
        sslm_status,
        [sslm_model, POINTER(sslm_kv_pool), c_int32, POINTER(sslm_prefix)],
    ),
    "sslm_prefix_begin_from": (sslm_status, [sslm_prefix, c_int32, POINTER(sslm_prefix)]),
    "sslm_prefix_prefill": (sslm_status, [sslm_model, sslm_prefix, *_prefill_tail]),
    "sslm_prefix_freeze": (sslm_status, [sslm_prefix]),
    "sslm_prefix_release": (sslm_status, [sslm_prefix]),
    "sslm_prefix_set_schema": (sslm_status, [sslm_prefix, sslm_schema]),
    "sslm_adapter_map": (sslm_status, [c_void_p, c_size_t, sslm_model, POINTER(sslm_adapter)]),
    "sslm_adapter_release": (sslm_status, [sslm_adapter]),
    "sslm_adapter_residency": (c_size_t, [sslm_adapter]),
    "sslm_prefill": (sslm_status, [sslm_model, sslm_seq, *_prefill_tail]),
    "sslm_decode_step": (sslm_status, _decode),
    "sslm_decode_step_v2": (sslm_status, _decode),
    "sslm_decode_params_init": (
        sslm_status,
        [sslm_model, c_int32, c_int32, POINTER(sslm_decode_params)],
    ),
    "sslm_stats": (sslm_status, [sslm_model, sslm_seq, POINTER(sslm_stats_out)]),
    "sslm_tokenize": (sslm_status, [sslm_model, c_char_p, _i32p, _i32p]),
    "sslm_detokenize_stream": (
        sslm_status,
        [sslm_model, POINTER(sslm_detok_state), _i32p, c_int32, _charp, _i32p],
    ),
    "sslm_schema_lookup": (sslm_status, [sslm_model, c_char_p, POINTER(sslm_schema)]),
    "sslm_schema_count": (c_size_t, [sslm_model]),
    "sslm_schema_name": (sslm_status, [sslm_model, c_int32, _charp, _sizep]),
}

# The draft extensions.
EXTENSIONS: dict[str, tuple[Any, list[Any]]] = {
    "sslm_ext_version": (c_uint32, []),
    "sslm_ext_status_name": (c_char_p, [sslm_status]),
    "sslm_ext_kernel_tier": (c_char_p, []),
    "sslm_ext_model_info": (sslm_status, [sslm_model, POINTER(sslm_ext_model_info_out)]),
    "sslm_ext_model_check": (sslm_status, [c_void_p, c_size_t, _charp, _sizep]),
    "sslm_ext_adapter_check": (sslm_status, [sslm_model, c_void_p, c_size_t, _charp, _sizep]),
    "sslm_ext_self_check": (sslm_status, [sslm_model, sslm_workspace, POINTER(sslm_ext_self_check_out)]),
    "sslm_ext_workspace_size_parallel": (c_size_t, [sslm_model, POINTER(sslm_config), c_int32]),
    "sslm_ext_workspace_set_parallel": (sslm_status, [sslm_workspace, c_uint32]),
    "sslm_ext_seq_logits": (sslm_status, [sslm_model, sslm_seq, sslm_workspace, _i32p, _sizep]),
    # The text may hold NUL characters, so it is a pointer to bytes and not a C string.
    "sslm_ext_tokenize": (sslm_status, [sslm_model, c_char_p, c_size_t, c_uint32, _i32p, _sizep]),
    "sslm_ext_chat_ids": (sslm_status, [sslm_model, c_int32, c_int32, _i32p, _sizep]),
    "sslm_ext_score": (
        sslm_status,
        [sslm_model, sslm_seq, _i32p, c_int32, sslm_workspace, _i32p, _i32p],
    ),
    "sslm_ext_decode_sample": (
        sslm_status,
        [
            sslm_model,
            POINTER(sslm_seq),
            c_int32,
            c_int32,
            POINTER(sslm_ext_sample_params),
            sslm_workspace,
            _i32p,
        ],
    ),
    "sslm_ext_prefix_save": (sslm_status, [sslm_prefix, c_void_p, _sizep]),
    "sslm_ext_prefix_restore": (
        sslm_status,
        [sslm_model, POINTER(sslm_kv_pool), c_void_p, c_size_t, sslm_prefix, POINTER(sslm_prefix)],
    ),
}
