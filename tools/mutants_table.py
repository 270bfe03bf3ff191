# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The bugs that tools/mutants.py plants, and the test that must notice each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One bug: `old` stands exactly once in `file` and becomes `new`; then `test` must fail.

    test: cell:PROGRAM/CELL (a cell of the contract), room:PROGRAM/TEST (a room's sources alone),
    engine:PROGRAM (a program with the static library), or a pytest node.
    """

    name: str
    file: str
    old: str
    new: str
    test: str


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


def _pages() -> tuple[Mutant, ...]:
    """References, tail copies, the page rule, limits, poison."""
    return (
        Mutant(
            "page rule: 4,096 positions take the long page",
            "c_abi/kv/geometry.cpp",
            "row_bytes <= 64 && cap > 4096",
            "row_bytes <= 64 && cap >= 4096",
            "cell:cell_pages/page_size_and_reservation_follow_the_table",
        ),
        Mutant(
            "page rule: wide rows take the long page",
            "c_abi/kv/geometry.cpp",
            "row_bytes <= 64 && cap > 4096",
            "row_bytes <= 128 && cap > 4096",
            "cell:cell_pages/page_size_and_reservation_follow_the_table",
        ),
        Mutant(
            "reservation: no page for an origin inside a page",
            "c_abi/kv/geometry.cpp",
            "pages_covering(budget, g.page_positions) + 1;",
            "pages_covering(budget, g.page_positions);",
            "room:kv_holders/every_offset_and_budget_fits_its_reservation",
        ),
        Mutant(
            "refcount: a second sharer is not counted",
            "c_abi/kv/pool.cpp",
            "    ++word;\n",
            "    if ((word & kSharers) == 0) ++word;\n",
            "cell:cell_pages/sharers_keep_a_released_prefix_until_the_last_of_them",
        ),
        Mutant(
            "refcount: the last sharer frees a page of a living owner",
            "c_abi/kv/pool.cpp",
            "      if ((word & kOrphan) != 0) append(freed, shared[i]);",
            "      append(freed, shared[i]);",
            "cell:cell_pages/sharers_keep_a_released_prefix_until_the_last_of_them",
        ),
        Mutant(
            "refcount: an owner that goes takes shared pages along",
            "c_abi/kv/pool.cpp",
            "      if ((word & kSharers) != 0) {\n        word |= kOrphan;",
            "      if ((word & kSharers) > 1) {\n        word |= kOrphan;",
            "room:kv_holders/shared_pages_outlive_their_prefix_until_the_last_sharer",
        ),
        Mutant(
            "shared pages are counted once for each sharer",
            "c_abi/kv/pool.cpp",
            "if ((word & kSharers) == 0) ++shared_pages_;",
            "++shared_pages_;",
            "cell:cell_pages/statistics_of_a_nested_cast_are_those_of_the_contract",
        ),
        Mutant(
            "tail copy: one row short",
            "c_abi/kv/holder.cpp",
            "copy_rows(prefix.view(), view(), shared * page_positions(), prefix_length);",
            "copy_rows(prefix.view(), view(), shared * page_positions(), prefix_length - 1);",
            "room:kv_holders/nested_sharing_counts_as_documented",
        ),
        Mutant(
            "tail copy: the partly filled page is shared too",
            "c_abi/kv/holder.cpp",
            "const int64_t shared = shares ? prefix_length / page_positions() : 0;",
            "const int64_t shared = shares ? pages_covering(prefix_length, page_positions()) : 0;",
            "cell:cell_pages/statistics_of_a_nested_cast_are_those_of_the_contract",
        ),
        Mutant(
            "a context of one page is shared",
            "c_abi/kv/holder.cpp",
            "mode_ == Mode::kBudget && pool_->pages_per_context() > 1;",
            "mode_ == Mode::kBudget;",
            "cell:cell_pages/one_page_contexts_copy_and_two_page_contexts_share",
        ),
        Mutant(
            "limit: the origin does not count",
            "c_abi/kv/holder.cpp",
            "lesser(origin + budget_, cap) : cap;",
            "lesser(budget_, cap) : cap;",
            "cell:cell_decode/an_adopter_emits_one_plus_budget_tokens_at_every_origin_offset",
        ),
        Mutant(
            "limit: a budget reaches past the cap",
            "c_abi/kv/holder.cpp",
            "lesser(origin + budget_, cap) : cap;",
            "origin + budget_ : cap;",
            "cell:cell_prefill/a_limit_equal_to_the_cap_reports_the_cap_and_never_the_budget",
        ),
        Mutant(
            "reset keeps the old limit",
            "c_abi/kv/holder.cpp",
            "  shared_ = materialized_ = 0;\n  set_origin(0);",
            "  shared_ = materialized_ = 0;",
            "cell:cell_pages/a_reset_adopter_has_its_whole_budget_from_position_zero",
        ),
        Mutant(
            "freezing counts the prefix out of its pool",
            "c_abi/kv/holder.cpp",
            "  pool_->give_back(nullptr, 0, nullptr, 0, reserve_, false);",
            "  pool_->give_back(nullptr, 0, nullptr, 0, reserve_, true);",
            "cell:cell_lifecycle/a_live_holder_keeps_its_pool",
        ),
        Mutant(
            "materialised pages may exceed a context",
            "c_abi/kv/holder.cpp",
            "materialized = lesser(full, pool.pages_per_context() - reserved);",
            "materialized = full;",
            "cell:cell_save/a_private_restore_draws_the_origin_too_until_its_first_reset",
        ),
        Mutant(
            "a restore shares with a prefix of other content",
            "c_abi/kv/holder.cpp",
            "return rows_equal(prefix->view(), request.rows, request.origin / page * page);",
            "return rows_equal(prefix->view(), request.rows, 0);",
            "cell:cell_save/restore_shared_shares_only_with_the_prefix_that_matches",
        ),
        Mutant(
            "a restore shares with an open prefix",
            "c_abi/kv/holder.cpp",
            "prefix == nullptr || !prefix->frozen_ || prefix->pool_ != &pool",
            "prefix == nullptr || prefix->pool_ != &pool",
            "cell:cell_save/restore_shared_shares_only_with_the_prefix_that_matches",
        ),
        Mutant(
            "pages that nobody wrote are poisoned",
            "c_abi/kv/pool.cpp",
            "    if ((entries_[page].word & kWritten) != 0) {",
            "    if (entries_ != nullptr) {",
            "cell:cell_pages/released_pages_hold_poison_where_they_were_written_and_nowhere_else",
        ),
    )


def _blobs() -> tuple[Mutant, ...]:
    """Layouts and the order of the checks."""
    return (
        Mutant(
            "check order: lengths before the schema",
            "c_abi/blob/parse.cpp",
            "  Status status = read_schema(out);",
            "  Status status = read_position(out);\n  if (status == Status::kOk) status = read_schema(out);",
            "room:blob_refusals/the_first_failing_check_decides",
        ),
        Mutant(
            "check order: the precision before the model",
            "c_abi/blob/parse.cpp",
            "  if (std::memcmp(bytes_ + kModelDigestAt, facts_.model_digest, kDigestBytes) != 0) {",
            "  if (at<uint32_t>(kPrecisionAt) != precision_code(facts_)) return Status::kKvMismatch;\n"
            "  if (std::memcmp(bytes_ + kModelDigestAt, facts_.model_digest, kDigestBytes) != 0) {",
            "cell:cell_restore/repaired_check_by_check_a_save_is_refused_in_the_documented_order",
        ),
        Mutant(
            "check order: the pool's model before the blob",
            "c_abi/abi/save.cpp",
            "  blob::Parsed parsed;\n",
            "  if ((*pool)->model != model) return SSLM_INVALID_ARGUMENT;\n  blob::Parsed parsed;\n",
            "cell:cell_restore/repaired_check_by_check_a_save_is_refused_in_the_documented_order",
        ),
        Mutant(
            "a blob one byte too long is read",
            "c_abi/blob/parse.cpp",
            "    if (size != end.value()) return Status::kInvalid;",
            "    if (size < end.value()) return Status::kInvalid;",
            "cell:cell_save/each_bad_field_has_its_status_and_draws_nothing",
        ),
        Mutant(
            "an anti-LM order of 83 is restored",
            "c_abi/blob/parse.cpp",
            "constexpr int32_t kMaxHistoryOrder = 82;",
            "constexpr int32_t kMaxHistoryOrder = 83;",
            "cell:cell_save/each_bad_field_has_its_status_and_draws_nothing",
        ),
        Mutant(
            "a walk state equal to the schema's number of states is restored",
            "c_abi/blob/parse.cpp",
            "out->state.schema >= 0 && walk < states",
            "out->state.schema >= 0 && walk <= states",
            "cell:cell_schema/a_blob_of_other_tables_or_walk_states_is_a_schema_mismatch",
        ),
        Mutant(
            "a layer that did not run is saved with what its page held",
            "c_abi/kv/rows.cpp",
            "    if (p < with_last_row) {",
            "    if (p <= with_last_row) {",
            "cell:cell_save/a_budget_save_has_its_exact_size_and_zeros_in_unrun_layers",
        ),
        Mutant(
            "a nested prefix takes any parent of its length",
            "c_abi/blob/prefix_blob.cpp",
            "  return std::memcmp(digest.bytes, parent_digest, kDigestBytes) == 0;",
            "  return digest.bytes != parent_digest;",
            "room:blob_prefix/only_the_named_parent_is_accepted",
        ),
        Mutant(
            "a restored prefix may be written",
            "c_abi/kv/holder.cpp",
            "  out->frozen_ = true;",
            "  out->frozen_ = false;",
            "cell:cell_save/a_baked_world_and_persona_continue_as_the_prefilled_ones",
        ),
    )


def _numerics() -> tuple[Mutant, ...]:
    """Rounding, clamps, ties; the tiers against scalar."""
    witness = "tests/test_bit_equality.py::test_any_layer_budget_gives_the_witness_tokens_and_resting_states"
    return (
        Mutant(
            "rounding: shifts round down",
            "c_abi/base/fixed_point.h",
            "if (shift > 0) return (x + (int64_t{1} << (shift - 1))) >> shift;",
            "if (shift > 0) return x >> shift;",
            f"{witness}[tiny-w8]",
        ),
        Mutant(
            "rounding: a product's first shift rounds down",
            "c_abi/kernels/scalar.cpp",
            "acc[r] = rsh(rsh(acc[r], 4) * w[r], shift);",
            "acc[r] = rsh((acc[r] >> 4) * w[r], shift);",
            "engine:engine_kernels",
        ),
        Mutant(
            "rounding: ties of a negative activation go up in AVX2",
            "c_abi/kernels/avx2.h",
            "const __m256i one = _mm256_set1_epi32(shift > 0 ? 1 : 0);",
            "const __m256i one = _mm256_set1_epi32(0);",
            "engine:engine_kernels",
        ),
        Mutant(
            "clamp: a landed row may hold -128",
            "c_abi/base/fixed_point.h",
            "  if (x < -127) {",
            "  if (x < -128) {",
            "engine:engine_kernels",
        ),
        Mutant(
            "clamp: AVX2 saturates at -2^31",
            "c_abi/kernels/avx2.h",
            "bottom = _mm256_set1_epi64x(-0x7fffffff);",
            "bottom = _mm256_set1_epi64x(-0x7fffffff - 1);",
            "engine:engine_kernels",
        ),
        Mutant(
            "clamp: the clamps of gate and up are not counted",
            "c_abi/decode/counts.h",
            "              c.gate_up + c.mlp;",
            "              c.mlp;",
            f"{witness}[sat_gateup-w8]",
        ),
        Mutant(
            "tie rule: equal logits choose the highest id",
            "c_abi/kernels/scalar.cpp",
            "x[i] > x[best] ? i : best;",
            "x[i] >= x[best] ? i : best;",
            "engine:engine_kernels",
        ),
        Mutant(
            "softmax: the smallest weight is dropped",
            "c_abi/kernels/scalar.h",
            "if (z >= uint64_t{31} * 65536) return 0;",
            "if (z >= uint64_t{29} * 65536) return 0;",
            "engine:engine_kernels",
        ),
        Mutant(
            "softmax: AVX2 takes one position too few at the end",
            "c_abi/kernels/avx2.h",
            "const int64_t n = count - j < 8 ? count - j : 8;",
            "const int64_t n = count - j < 8 ? count - j - (j > 0) : 8;",
            "engine:engine_kernels",
        ),
        Mutant(
            "values: more positions than an int32 lane holds",
            "c_abi/kernels/attention.h",
            "const int64_t n = count - j < 512 ? count - j : 512;",
            "const int64_t n = count - j;",
            "engine:engine_kernels",
        ),
        Mutant(
            "4-bit weights: the nibbles are exchanged",
            "c_abi/kernels/scalar.cpp",
            "out[i] = static_cast<int16_t>(s * (q[i] & 15) - offset);",
            "out[i] = static_cast<int16_t>(s * (q[i] >> 4) - offset);",
            "engine:engine_kernels",
        ),
        Mutant(
            "attention: every K/V head takes the first one's value scale",
            "c_abi/forward/attention.cpp",
            "layer.value_scale.from(static_cast<size_t>(kv_head) *",
            "layer.value_scale.from(static_cast<size_t>(kv_head * 0) *",
            f"{witness}[bias-w8]",
        ),
        Mutant(
            "rotation: the position of every row is the first one's",
            "c_abi/decode/prefill.cpp",
            "s.row[i] = Row{residual, position + i, kv, adapter, {}};",
            "s.row[i] = Row{residual, position, kv, adapter, {}};",
            "cell:cell_prefill/chunks_of_eight_consume_eight_eight_four_and_equal_one_call",
        ),
    )


def _selection() -> tuple[Mutant, ...]:
    """Schemas and damped greedy."""
    return (
        Mutant(
            "a prompt span must follow the schema",
            "c_abi/abi/prefill.cpp",
            "  if (kind != SSLM_SPAN_SCHEMA_CONTENT) return out;",
            "  if (context.state.schema < 0) return out;",
            "cell:cell_schema/a_prompt_span_does_not_move_the_walk",
        ),
        Mutant(
            "a dead end emits its token",
            "c_abi/decode/select.cpp",
            "    if (next == kNoWalkState) return Selected::kDeadEnd;",
            "    if (next == kNoWalkState - 1) return Selected::kDeadEnd;",
            "cell:cell_schema/a_complete_schema_gives_minus_two_again_and_again",
        ),
        Mutant(
            "tie rule: inside a schema the highest id wins",
            "c_abi/forward/linear.cpp",
            "(0xffffffffu - static_cast<uint32_t>(token));",
            "static_cast<uint32_t>(token + 1);",
            "cell:cell_restore/equal_logits_inside_a_schema_choose_the_lowest_legal_id",
        ),
        Mutant(
            "a prefix that only bound a schema counts as progressed",
            "c_abi/abi/sequence.cpp",
            "prefix.state.schema >= 0 && prefix.state.walk_state != 0;",
            "prefix.state.schema >= 0;",
            "cell:cell_schema/a_prompt_only_prefix_resets_the_walk",
        ),
        Mutant(
            "the start state is not looked up among the accepting ones",
            "c_abi/abi/schema.cpp",
            "    if (schema.accepting[middle] < walk_state) {",
            "    if (schema.accepting[middle] <= walk_state) {",
            "cell:cell_schema/a_complete_schema_gives_minus_two_again_and_again",
        ),
        Mutant(
            "a schema's next state may be its number of states",
            "c_abi/artifact/schemas.cpp",
            "if (next >= view.state_count && next != kNoState)",
            "if (next > view.state_count && next != kNoState)",
            "tests/test_steering.py::test_a_hostile_section_is_refused_by_name",
        ),
        Mutant(
            "accepting states may repeat",
            "c_abi/artifact/schemas.cpp",
            '"accepting state (ascending)", state, last + 1,',
            '"accepting state (ascending)", state, last < 0 ? 0 : last,',
            "tests/test_steering.py::test_a_hostile_section_is_refused_by_name",
        ),
        Mutant(
            "damped: a tie of scores goes to the highest id",
            "c_abi/decode/damped.cpp",
            "(score == best && id > *token)",
            "(score == best && id < *token)",
            "cell:cell_restore/equal_logits_choose_the_lowest_id_in_damped_mode_too",
        ),
        Mutant(
            "damped: another order keeps the history",
            "c_abi/decode/select.cpp",
            "  if (history.order != damped.order) history.length = 0;",
            "  if (history.order == damped.order + 99) history.length = 0;",
            "cell:cell_damped/the_history_is_saved_emptied_and_started_over",
        ),
        Mutant(
            "damped: the highest order takes the whole weight",
            "c_abi/decode/damped.cpp",
            "      rest -= shares_[i];",
            "      rest -= 0;",
            "tests/test_steering.py::test_damped_greedy_equals_its_reference",
        ),
    )


def _text_and_artifact() -> tuple[Mutant, ...]:
    """What comes from outside: text and files."""
    section = "tests/test_tokenizer_section.py::"
    return (
        Mutant(
            "a stale merge is applied",
            "c_abi/text/bpe.cpp",
            "    if (merge.rank != rank) return;",
            "    if (merge.rank == kNoId) return;",
            "tests/test_tokenizer_equality.py::test_ids_equal_hugging_face_on_22500_strings_of_nine_kinds",
        ),
        Mutant(
            "the shortest added token wins",
            "c_abi/text/tokenize.cpp",
            "      if (low == high || added_byte(t_, low, depth + 1) >= 0) continue;",
            "      if (low == high || best.id != kNoId || added_byte(t_, low, depth + 1) >= 0) continue;",
            f"{section}test_a_small_tokenizer_with_every_feature_equals_hugging_face",
        ),
        Mutant(
            "a run of spaces gives its last one away at the end of a text",
            "c_abi/text/pretokenize.cpp",
            "  return s.at_end() || last == first ? s.position() : last;",
            "  return last == first ? s.position() : last;",
            "tests/test_tokenizer_equality.py::test_ids_equal_hugging_face_on_22500_strings_of_nine_kinds",
        ),
        Mutant(
            "held back bytes come from the wrong end",
            "c_abi/text/tokenize.cpp",
            "pending[i] = tail[tail_size - held + i];",
            "pending[i] = tail[i];",
            f"{section}test_only_an_incomplete_character_is_held_back_and_invalid_bytes_pass",
        ),
        Mutant(
            "an invalid byte is held back like an unfinished character",
            "c_abi/text/unicode.cpp",
            "      if (!continues(lead, start, i)) return 0;",
            "      if (!continues(lead, start, i)) return n;",
            f"{section}test_only_an_incomplete_character_is_held_back_and_invalid_bytes_pass",
        ),
        Mutant(
            "four pending bytes are accepted",
            "c_abi/abi/text.cpp",
            "if (capacity < 0 || state->pending_count > 3)",
            "if (capacity < 0 || state->pending_count > 4)",
            "cell:cell_text/ids_without_text_are_refused_and_the_state_stays",
        ),
        Mutant(
            "a damaged file is mapped",
            "c_abi/artifact/container.cpp",
            "if (!(digests.file == out->file_digest))",
            "if (!(digests.file == out->file_digest) && size == 0)",
            "tests/test_engine_python.py::test_a_refused_artifact_says_where_and_why",
        ),
        Mutant(
            "the model digest covers the schemas",
            "c_abi/artifact/container.cpp",
            '{"SCHM", &Container::schemas, false, false},',
            '{"SCHM", &Container::schemas, true, false},',
            "tests/test_steering.py::test_adding_a_schema_keeps_the_model_digest_and_old_saves",
        ),
        Mutant(
            "an adapter of another model is bound",
            "c_abi/abi/sequence.cpp",
            "if (adapter != nullptr && adapter->model != sequence->model)",
            "if (adapter != nullptr && adapter->model == nullptr)",
            "tests/test_adapter.py::test_cell[an_adapter_of_another_model_cannot_be_bound]",
        ),
    )


MUTANTS = (
    *_verbs(),
    *_hook(),
    *_pages(),
    *_blobs(),
    *_numerics(),
    *_selection(),
    *_text_and_artifact(),
)
