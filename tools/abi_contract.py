# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The frozen surface written out a second time, and how its checks report differences."""

from __future__ import annotations

import os
from typing import Any

STRICT = os.environ.get("SUPERSLM_STRICT") == "1"

# struct: (size, alignment, {field: (offset, bytes)}).
LAYOUTS: dict[str, tuple[int, int, dict[str, tuple[int, int]]]] = {
    "sslm_config": (
        16,
        4,
        {"max_batch": (0, 4), "max_chunk_budget": (4, 4), "max_layer_budget": (8, 4), "reserved": (12, 4)},
    ),
    "sslm_detok_state": (4, 1, {"pending_bytes": (0, 3), "pending_count": (3, 1)}),
    "sslm_decode_params": (
        48,
        8,
        {
            "layer_budget": (0, 4),
            "struct_size": (4, 4),
            "mode": (8, 4),
            "alpha_q15": (12, 4),
            "anti_lm_max_order": (16, 4),
            "top_k": (20, 4),
            "q_ln2": (24, 8),
            "q_b": (32, 8),
            "q_c": (40, 8),
        },
    ),
    "sslm_stats_out": (
        32,
        8,
        {
            "decode_step_ceiling": (0, 8),
            "decode_step_actual": (8, 8),
            "forced_token_count": (16, 8),
            "kv_blocks_resident": (24, 4),
            "schema_accepting": (28, 4),
        },
    ),
    "sslm_kv_pool_stats_out": (
        24,
        8,
        {
            "struct_size": (0, 4),
            "page_count": (4, 4),
            "free_pages": (8, 4),
            "shared_pages": (12, 4),
            "page_positions": (16, 8),
        },
    ),
    "sslm_seq_kv_stats_out": (
        56,
        8,
        {
            "struct_size": (0, 4),
            "mode": (4, 4),
            "origin": (8, 8),
            "budget": (16, 4),
            "reserved0": (20, 4),
            "limit": (24, 8),
            "context_length": (32, 8),
            "mapped_private_pages": (40, 4),
            "shared_pages": (44, 4),
            "reserve_pages": (48, 4),
            "materialized_pages": (52, 4),
        },
    ),
    "sslm_parallel_for": (
        24,
        8,
        {"run": (0, 8), "host_ctx": (8, 8), "max_tasks": (16, 4), "reserved": (20, 4)},
    ),
}
STATUSES = (
    "OK INVALID_ARGUMENT BUFFER_TOO_SMALL MISALIGNED_BUFFER ARTIFACT_REJECTED ADAPTER_MODEL_MISMATCH "
    "RESTORE_MODEL_MISMATCH RESTORE_KV_MISMATCH MODEL_HAS_LIVE_SEQUENCES POOL_HAS_LIVE_HANDLES "
    "ADAPTER_HAS_LIVE_SEQUENCES ADAPTER_SWAP_MIDTOKEN_REJECTED SEQ_RESET_MIDTOKEN_REJECTED PREFIX_FROZEN_REJECTED "
    "KV_POOL_EXHAUSTED TOKEN_ID_OUT_OF_RANGE CONTEXT_CAP_EXCEEDED TOKEN_ID_UNMAPPED SCHEMA_NOT_FOUND "
    "SCHEMA_BIND_REJECTED SCHEMA_SPAN_UNBOUND PREFIX_SCHEMA_MISMATCH RESTORE_SCHEMA_MISMATCH "
    "SCHEMA_SPAN_UNREACHABLE SCHEMA_UNSATISFIABLE ALLOCATION_FAILED NUMERIC_STEP_REFUSED RESTORE_RESIDUAL_LOST "
    "GPU_SHADER_BINARY_STALE KV_BUDGET_EXCEEDED"
).split()
MACROS = {
    "SSLM_ABI_ALIGNMENT_BYTES": 64,
    "SSLM_PARALLEL_FOR_MATVEC": 2,
    "SSLM_PARALLEL_FOR_MAX_TASKS": 256,
    "SSLM_DECODE_MODE_GREEDY": 0,
    "SSLM_DECODE_MODE_DAMPED_GREEDY": 1,
    "SSLM_DAMPED_GREEDY_DEFAULT_ALPHA_Q15": 65536,
    "SSLM_DAMPED_GREEDY_DEFAULT_ANTI_LM_ORDER": 2,
    "SSLM_DAMPED_GREEDY_DEFAULT_TOP_K": 6,
}
FROZEN_VERBS = 51

Problems = list[str]


def compare(what: str, wanted: Any, got: Any) -> Problems:
    """One line for each difference of two values; dicts and lists are compared by entry."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        keys = [*wanted, *(key for key in got if key not in wanted)]
        return [p for key in keys for p in compare(f"{what}: {key}", wanted.get(key), got.get(key))]
    if isinstance(wanted, list) and isinstance(got, list) and set(wanted) != set(got):
        missing = [f"{what}: {name} is missing" for name in wanted if name not in set(got)]
        return missing + [f"{what}: {name} is not in the headers" for name in got if name not in set(wanted)]
    return [] if wanted == got else [f"{what}: {got}, expected {wanted}"]


def missing(tool: str) -> Problems:
    """A tool that is not there: a problem where everything must be checked, a note elsewhere."""
    if STRICT:
        return [f"{tool} was not found"]
    print(f"note: {tool} was not found, its check is left out")
    return []
