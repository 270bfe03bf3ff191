# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Four-bit models: what they weigh, and the shuffled copy on which their quality is measured."""

from __future__ import annotations

import math

import make_checkpoint
import numpy as np
import pytest
from shuffled import shuffled
from superslm import artifact as fmt
from superslm.convert import writer
from superslm.convert.calibrate import calibrate
from superslm.convert.float_model import logits
from superslm.convert.quantized import Matrix, MatrixW4, MatrixW8, padded


def hollow_matrix(_: np.random.Generator, shape: tuple[int, int], kind: str) -> Matrix:
    """A matrix of one repeated element: it has a size but takes no memory."""
    rows, columns = shape
    wide = padded(columns)
    values = np.broadcast_to(np.uint8(1), (rows, wide))
    scales = np.broadcast_to(np.uint8(1), (rows, wide // 32))
    multipliers = np.full(rows, 1 << 22, np.int32)
    exponent = round(math.log2(620 * 6e6 * math.sqrt(columns)))
    if kind == "w8":
        return MatrixW8(columns, values.view(np.int8), scales, multipliers, exponent)
    return MatrixW4(columns, values, scales, scales, multipliers, exponent)


def sizes(weights: str) -> tuple[int, int]:
    """Bytes of all tensors and of the layers' matrices of a model of 0.5 billion weights; nothing is written."""
    model = make_checkpoint.make_quantized("qwen2.5-0.5b", weights)
    tensors = list(writer._tensors(model))
    _, _, whole = writer._tensor_table(tensors)
    matrices = [t for t in tensors if t.layer != fmt.WHOLE_MODEL and t.format in (fmt.W8, fmt.W4)]
    return whole, sum(size for tensor in matrices for size, _ in tensor.parts)


def test_a_four_bit_model_of_half_a_billion_weights_is_at_most_0_72_of_eight_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(make_checkpoint, "random_matrix", hollow_matrix)
    (whole8, layers8), (whole4, layers4) = sizes("w8"), sizes("w4")
    print(f"all tensors {whole4 / whole8:.3f}, matrices of the layers {layers4 / layers8:.3f}")
    assert whole4 <= 0.72 * whole8
    assert layers4 <= 0.57 * layers8


@pytest.mark.parametrize("name", ["deep", "gqa3", "bias_untied", "qknorm_centred"])
def test_shuffled_channels_compute_the_same_function_and_need_the_shuffled_record(name: str) -> None:
    checkpoint, ids = make_checkpoint.make_checkpoint(name), list(range(3, 60))
    other, record = shuffled(checkpoint, calibrate(checkpoint, ids))
    (want,), (got,) = logits(checkpoint, [ids]), logits(other, [ids])
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
    assert not np.array_equal(other["layer0.WD"].read(), checkpoint["layer0.WD"].read())
    again = calibrate(other, ids)
    for a, b in zip(record["layers"], again["layers"], strict=True):
        assert a.keys() == b.keys()
        for key in a:
            np.testing.assert_allclose(a[key], b[key], rtol=1e-3, atol=1e-3)
