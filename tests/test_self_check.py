# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""A player's machine can prove that it computes what the converter's machine did."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
from superslm import Model, _abi, errors
from superslm._library import library
from superslm.artifact import Artifact, GoldenRecord
from superslm.convert.writer import set_golden_record


def changed(path: Path, token: int | None = None, digest: bytes | None = None) -> GoldenRecord:
    """Replaces a token or the digest of a file's record and returns the true record."""
    golden = Artifact(path).golden_record()
    tokens = list(golden.tokens)
    if token is not None:
        tokens[token] ^= 1
    set_golden_record(path, GoldenRecord(golden.prompt, tuple(tokens), digest or golden.digest))
    return golden


def test_an_honest_record_is_verified_with_and_without_a_workspace(recorded: Path) -> None:
    with Model.load(recorded) as model, model.workspace() as space:
        assert model.verify() and model.verify(space)
        assert model.verify().tokens == 48  # as many as its context holds


@pytest.mark.parametrize("at", [0, 17, 47])
def test_the_first_different_token_is_named(recorded: Path, at: int) -> None:
    golden = changed(recorded, token=at)
    with Model.load(recorded) as model:
        result = model.verify()
    assert not result and result.difference == (
        f"token {at + 1} of 48 is {golden.tokens[at]}, the record has {golden.tokens[at] ^ 1}"
    )


def test_a_difference_behind_equal_tokens_is_found(recorded: Path) -> None:
    changed(recorded, digest=bytes(32))
    with Model.load(recorded) as model:
        assert "all tokens agree" in str(model.verify().difference)


def test_an_artifact_without_a_record_is_refused(
    library_path: Path, fixture_artifact: Callable[..., Path]
) -> None:
    with (
        Model.load(fixture_artifact("tiny")) as model,
        pytest.raises(errors.ArtifactRejected, match="no golden"),
    ):
        model.verify()


def test_a_refusal_writes_nothing_and_a_check_leaves_nothing_behind(recorded: Path) -> None:
    lib, out = library(), _abi.sslm_ext_self_check_out()
    out.verdict = 77
    with Model.load(recorded) as model:
        handle = model._handle.value
        assert lib.sslm_ext_self_check(handle, None, ctypes.byref(out)) == _abi.Status.SSLM_INVALID_ARGUMENT
        assert lib.sslm_ext_self_check(handle, None, None) == _abi.Status.SSLM_INVALID_ARGUMENT
        assert out.verdict == 77
        out.struct_size = ctypes.sizeof(out)
        assert lib.sslm_ext_self_check(None, None, ctypes.byref(out)) == _abi.Status.SSLM_INVALID_ARGUMENT
        model.verify()
    # closing the model above would have been refused with a sequence left alive
