# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Bugs in the verbs and in the host's job system."""

from __future__ import annotations

from planted.mutant import Mutant


def _verbs() -> tuple[Mutant, ...]:
    """Order of refusals, sizes of steps, what a refusal leaves behind."""
    return (
        Mutant(
            "refusal order: a bad id right behind the limit",
            "c_abi/abi/prefill.cpp",
            "i < count && i <= bound; ++i",
            "i < count && i < bound; ++i",
            "cell:cell_prefill/a_bad_id_and_the_budget_stop_in_the_documented_order",
        ),
        Mutant(
            "refusal order: a short pool buffer before a zero count",
            "c_abi/kv/pool.cpp",
            "  if (units == 0) return Status::kInvalid;",
            "  if (units == 0) return size < 64 ? Status::kTooSmall : Status::kInvalid;",
            "cell:cell_arguments/pools_of_all_kinds_refuse_in_the_same_order",
        ),
        Mutant(
            "refusal order: a page count of UINT32_MAX before the size",
            "c_abi/kv/pool.cpp",
            "if (kind != PoolKind::kPage && total >= UINT32_MAX)",
            "if (total >= UINT32_MAX)",
            "cell:cell_arguments/a_page_count_of_uint32_max_is_refused_last",
        ),
        Mutant(
            "refusal order: a misaligned workspace before a short one",
            "c_abi/abi/workspace.cpp",
            "if (buf_size < size) return SSLM_BUFFER_TOO_SMALL;",
            "if (buf_size < size && reinterpret_cast<uintptr_t>(buf) % 64 == 0) return SSLM_BUFFER_TOO_SMALL;",
            "cell:cell_arguments/a_workspace_buffer_one_byte_short_or_misaligned_is_refused_in_that_order",
        ),
        Mutant(
            "a fresh sequence is decoded",
            "c_abi/abi/decode.cpp",
            "sequences[i]->model != &model || abi::fresh(sequences[i]->state)",
            "sequences[i]->model != &model",
            "cell:cell_decode/a_fresh_sequence_is_refused_and_stays_bindable",
        ),
        Mutant(
            "decode goes one row past the limit",
            "c_abi/abi/decode.cpp",
            "if (state.length >= sequence.holder.limit()) return abi::limit_status(sequence);",
            "if (state.length > sequence.holder.limit()) return abi::limit_status(sequence);",
            "cell:cell_decode/a_pending_sequence_at_its_limit_is_refused_before_its_row_is_written",
        ),
        Mutant(
            "entries behind a failed one keep the page of their next row",
            "c_abi/abi/decode.cpp",
            "  close_rows(tables, done + 1, group.members);\n",
            "",
            "cell:cell_hook/a_fault_in_a_joint_pass_maps_no_page_for_the_entries_behind_it",
        ),
        Mutant(
            "a sequence named twice advances in one pass",
            "c_abi/abi/decode.cpp",
            "    if (sequence->in_group) break;",
            "    if (sequence->in_group) continue;",
            "cell:cell_decode/a_sequence_named_twice_takes_two_steps",
        ),
        Mutant(
            "the entry that a batch stops at is not marked",
            "c_abi/abi/decode.cpp",
            "      out_tokens[group.end] = kUnfinished;",
            "      out_tokens[begin] = kUnfinished;",
            "cell:cell_decode/a_refusal_keeps_the_entries_before_it_and_leaves_those_after_it_untouched",
        ),
        Mutant(
            "a released handle stays valid for the slot's next sequence",
            "c_abi/abi/registry.cpp",
            "slot->generation.store(generation + 1,",
            "slot->generation.store(generation,",
            "cell:cell_decode/a_released_sequence_is_minus_three_also_when_its_memory_is_used_again",
        ),
        Mutant(
            "slice resume: an unfinished token starts over",
            "c_abi/decode/decode.cpp",
            "  const int32_t begin = entries[0].state->layer_index;",
            "  const int32_t begin = 0;",
            "cell:cell_decode/every_layer_budget_gives_the_tokens_of_whole_steps",
        ),
        Mutant(
            "slice resume: sequences at different layers advance together",
            "c_abi/abi/decode.cpp",
            "if (group.members > 0 && !decode::same_start(*tables.group[0].state, sequence->state)) break;",
            "if (group.members > 0 && tables.group[0].state->ready != sequence->state.ready) break;",
            "cell:cell_decode/a_batch_of_sequences_at_different_layers_gives_each_its_solo_result",
        ),
        Mutant(
            "count put-back: a failed layer's clamps stay counted",
            "c_abi/decode/decode.cpp",
            "if (l > begin) commit(engine, entries[0], s.first_residual, first_counts, l);",
            "if (l > begin) commit(engine, entries[0], s.first_residual, s.row[0].counts, l);",
            "engine:engine_invariants",
        ),
        Mutant(
            "count put-back: an abandoned token's clamps stay counted",
            "c_abi/decode/counts.h",
            "  from.total -= part.total;",
            "  from.total -= 0;",
            "cell:cell_prefill/a_prefill_abandons_an_unfinished_token_as_if_it_never_began",
        ),
        Mutant(
            "an adopter counts the forced tokens of its prefix",
            "c_abi/abi/sequence.cpp",
            "  state.forced_token_count = 0;",
            "  state.forced_token_count += 0;",
            "cell:cell_schema/a_progressed_prefix_fits_its_own_schema_only",
        ),
        Mutant(
            "a restored sequence may bind a schema",
            "c_abi/abi/save.cpp",
            "  sequence->bindable = false;",
            "  sequence->bindable = true;",
            "cell:cell_save/every_state_survives_a_save_in_every_pool_kind",
        ),
        Mutant(
            "a failed history copy keeps the pages of the restore",
            "c_abi/abi/save.cpp",
            "    abi::destroy_context(sequence);\n    return SSLM_ALLOCATION_FAILED;",
            "    return SSLM_ALLOCATION_FAILED;",
            "cell:cell_restore/exhausted_memory_gives_back_what_a_restore_with_a_history_drew",
        ),
        Mutant(
            "a refused registration keeps the pages of the sequence",
            "c_abi/abi/sequence.cpp",
            "    destroy_context(sequence);\n  }\n  return handle;",
            "  }\n  return handle;",
            "cell:cell_lifecycle/exhausted_memory_gives_back_everything_that_was_drawn",
        ),
    )


def _hook() -> tuple[Mutant, ...]:
    """The host's job system."""
    return (
        Mutant(
            "a repeated or invented task index goes unnoticed",
            "c_abi/base/parallel.cpp",
            "  return !ledger.misused.load();",
            "  return true;",
            "cell:cell_hook/a_faulty_hook_in_decode_costs_no_state_at_any_group",
        ),
        Mutant(
            "task blocks are rounded to 32 rows",
            "c_abi/forward/linear.cpp",
            "ceil_div(ceil_div(rows, tasks), 64) * 64",
            "ceil_div(ceil_div(rows, tasks), 32) * 32",
            "engine:engine_invariants",
        ),
        Mutant(
            "a block that straddles two matrices loses the second",
            "c_abi/forward/linear.cpp",
            "    offset += rows;",
            "    offset += task.total_rows;",
            "cell:cell_hook/every_hook_gives_the_serial_tokens_counts_and_blobs",
        ),
        Mutant(
            "a hook failure in a one-token prefill loses the unfinished row",
            "c_abi/decode/prefill.cpp",
            "(one || engine.spreads()) && state.layer_index > 0;",
            "(one || engine.spreads()) && state.layer_index > 99;",
            "cell:cell_hook/a_faulty_hook_in_a_one_token_prefill_changes_nothing",
        ),
    )


VERBS = (*_verbs(), *_hook())
