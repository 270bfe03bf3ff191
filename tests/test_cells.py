# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The behavioural contract, cell by cell, as C programs that see nothing but the public headers and the seams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dev
import pytest
from cell_programs import PROGRAMS, all_cells, artifacts_of, cells_of, run_cell


@pytest.mark.parametrize(("program", "cell"), list(all_cells()))
def test_cell(
    program: str,
    cell: str,
    c_program: Callable[..., Path],
    fixture_artifact: Callable[..., Path],
    preload: dict[str, str],
) -> None:
    """The promise is the cell's name; a failure names the call and the line."""
    artifacts = artifacts_of(program, fixture_artifact)
    assert f"ok {cell}" in run_cell(c_program(program), artifacts, cell, preload)


@pytest.mark.parametrize("program", ["cell_prefill", "cell_decode"])
def test_cells_hold_with_four_bit_weights(
    program: str, c_program: Callable[..., Path], fixture_artifact: Callable[..., Path]
) -> None:
    """The same promises over the other storage of weights."""
    run_cell(c_program(program), artifacts_of(program, fixture_artifact, "w4"))


# What holds in one kind of pool only: how many pages are drawn, shared or poisoned, or how many holders fit.
FIGURES_OF_PAGES = {
    "every_refusal_leaves_the_out_handle_null",
    "a_private_restore_draws_the_origin_too_until_its_first_reset",
    "a_prefix_blob_is_refused_like_a_save",
}
FIGURES_OF_A_KIND = {
    "page": {
        "a_contiguous_pool_holds_one_page_a_holder_with_the_same_tokens_and_blobs",
        "a_baked_world_and_persona_continue_as_the_prefilled_ones",
    },
    "block": FIGURES_OF_PAGES
    | {
        "a_contiguous_pool_holds_one_page_a_holder_with_the_same_tokens_and_blobs",
        "a_baked_world_and_persona_continue_as_the_prefilled_ones",
    },
    "contiguous": FIGURES_OF_PAGES
    | {
        "budgets_outside_one_to_the_cap_are_refused",
        "exhausted_memory_gives_back_everything_that_was_drawn",
        "a_batch_of_any_size_is_decoded",
        "n_blocks_admit_n_handles_of_any_mixture",
        "freezing_returns_what_the_content_does_not_need",
        "statistics_of_a_nested_cast_are_those_of_the_contract",
        "sharers_keep_a_released_prefix_until_the_last_of_them",
        "one_page_contexts_copy_and_two_page_contexts_share",
        "a_shared_prefix_of_4000_holds_its_pages_until_the_sharer_resets",
        "released_pages_hold_poison_where_they_were_written_and_nowhere_else",
        "restore_shared_shares_only_with_the_prefix_that_matches",
        "a_baked_world_and_persona_continue_as_the_prefilled_ones",
    },
}
OF_HOLDERS = (
    "cell_arguments",
    "cell_lifecycle",
    "cell_prefill",
    "cell_decode",
    "cell_threads",
    "cell_pages",
    "cell_save",
)


@pytest.mark.parametrize("kind", FIGURES_OF_A_KIND)
@pytest.mark.parametrize("program", OF_HOLDERS)
def test_cells_hold_in_every_kind_of_pool(
    program: str,
    kind: str,
    c_program: Callable[..., Path],
    fixture_artifact: Callable[..., Path],
    preload: dict[str, str],
) -> None:
    """Tokens, blobs and statuses are the same in page, block and contiguous pools."""
    built = c_program(program, f"-DCHECK_POOL_KIND={kind.upper()}_POOL")
    artifacts = artifacts_of(program, fixture_artifact)
    for cell in cells_of(program):
        if cell not in FIGURES_OF_A_KIND[kind]:
            run_cell(built, artifacts, cell, preload)


def test_cells_of_one_kind_of_pool_exist() -> None:
    """A cell that was renamed is not left out by its old name."""
    known = {cell for _, cell in all_cells(OF_HOLDERS)}
    assert set().union(*FIGURES_OF_A_KIND.values()) <= known


CHECKED = [(program, "sanitized") for program in PROGRAMS]
CHECKED += [("cell_threads", "tsan"), ("cell_hook", "tsan")]


@pytest.mark.parametrize(("program", "variant"), CHECKED)
def test_cells_are_clean_under_checkers(
    program: str,
    variant: str,
    c_program: Callable[..., Path],
    fixture_artifact: Callable[..., Path],
) -> None:
    """No memory error, no undefined behaviour, no race."""
    sanitizer = "thread" if variant == "tsan" else "address,undefined"
    built = c_program(program, f"-fsanitize={sanitizer}", library=dev.build(variant))
    quiet = {"ASAN_OPTIONS": "detect_leaks=0"}  # programs never free their buffers
    run_cell(built, artifacts_of(program, fixture_artifact), environment=quiet)


@pytest.mark.long
def test_cells_of_a_model_of_real_size(
    c_program: Callable[..., Path], fixture_artifact: Callable[..., Path], preload: dict[str, str]
) -> None:
    """The hook's calls on Qwen2.5-0.5B's shape, and what mapping 0.5 GB costs."""
    artifact = fixture_artifact("qwen2.5-0.5b")
    run_cell(c_program("cell_large"), [artifact])
    mapping = "a_read_only_mapping_costs_little_heap_and_an_unaligned_copy_talks_the_same"
    run_cell(c_program("cell_lifecycle"), [artifact], mapping, preload)
