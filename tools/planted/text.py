# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Bugs in the choice of a token, in text and in the reading of files."""

from __future__ import annotations

from planted.mutant import Mutant


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


TEXT = (*_selection(), *_text_and_artifact())
