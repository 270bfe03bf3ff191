# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Bugs in pages and in saved games."""

from __future__ import annotations

from planted.mutant import Mutant


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
            "  if (!(*pool)->belongs_to(*model)) return SSLM_INVALID_ARGUMENT;\n  blob::Parsed parsed;\n",
            "cell:cell_restore/repaired_check_by_check_a_save_is_refused_in_the_documented_order",
        ),
        Mutant(
            "a pool is known by its model's address",
            "c_abi/abi/model.cpp",
            "next_serial.fetch_add(1, std::memory_order_relaxed)",
            "static_cast<uint32_t>(reinterpret_cast<uintptr_t>(model))",
            "cell:cell_lifecycle/no_later_model_takes_the_pool_of_an_unmapped_one",
        ),
        Mutant(
            "a ready sequence that has emitted its whole context is restored",
            "c_abi/blob/parse.cpp",
            "parsed.history.length >= static_cast<uint64_t>(state.length)",
            "parsed.history.length > static_cast<uint64_t>(state.length)",
            "room:blob_refusals/a_ready_sequence_has_emitted_less_than_its_context",
        ),
        Mutant(
            "a nested prefix without a budget is restored",
            "c_abi/blob/prefix_blob.cpp",
            "  if (out->nested() && common.mode != kv::Mode::kBudget) return Status::kInvalid;\n",
            "",
            "room:blob_prefix/every_field_is_checked",
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


MEMORY = (*_pages(), *_blobs())
