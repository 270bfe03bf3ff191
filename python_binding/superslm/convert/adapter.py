# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""From a PEFT directory to an adapter file: quantise the pairs, bind them to a base, measure what K and V do.

The rules are those of docs/numerics.md, section 11; the file is described in docs/adapter_format.md.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..artifact import Artifact, load_quantized
from ..engine import Model
from .calibrate import CHUNK, chatml, default_calibration_text
from .checkpoint import ConvertError, FloatTensor, head_slots, row_order
from .peft import FloatPair, PeftAdapter, load_peft
from .quantize import Progress, check_linear, quantize_matrix
from .quantized import TARGETS, Adapter, Layer, LowRank, QuantizedModel
from .writer import write_adapter

QA = 16  # Q format of A's product
MOST_CLIPPED = 1e-3  # share of landed K or V values
V_LANDING, K_LANDING = 124, 132  # offsets of two clip counts in a save blob (u64)


@dataclass(frozen=True)
class AdapterReport:
    """What a conversion made; `k_clipped` and `v_clipped` are shares of all values landed on the text."""

    pairs: int
    targets: tuple[str, ...]
    ranks: tuple[int, int]  # the smallest and the largest
    k_clipped: float
    v_clipped: float
    size: int  # bytes


def convert_adapter(
    folder: str | Path,
    base: str | Path,
    output: str | Path,
    *,
    calibration_text: str | None = None,
    calibration_ids: Sequence[int] | None = None,
    progress: Progress | None = None,
    warn: Callable[[str], None] | None = None,
) -> AdapterReport:
    """Writes the adapter file of a PEFT directory; it appears under its name only when it is whole.

    Args:
        folder: holds adapter_config.json and adapter_model.safetensors.
        base: the artifact the adapter will run on.
        output: the file to write.
        calibration_text: text on which the clipping of K and V is measured; None: the one that ships.
        calibration_ids: token ids in its place, for a base without tokenizer.
        progress: called with a fraction 0..1 and what is being done.
        warn: called with a sentence the user should read.
    Raises:
        ConvertError: the adapter is not supported, does not fit the base, or leaves its K/V range.
        ArtifactError, SuperslmError: the base is no intact artifact.
    """
    report = progress or (lambda fraction, text: None)
    target = Path(output)
    peft = load_peft(folder)
    with Model.load(base) as model, tempfile.TemporaryDirectory(dir=target.parent) as workplace:
        origin = Artifact(base, verify=False).provenance()
        _compare_names(peft, str(origin.get("source") or ""), warn)
        ids = calibration_ids if calibration_ids is not None else _ids(model, calibration_text)
        adapter = quantize_adapter(
            peft, load_quantized(base, verify=False, matrices=False), lambda f, text: report(0.3 * f, text)
        )
        path = Path(workplace) / target.name
        ranks = sorted({pair.rank for pair in peft.pairs.values()})
        provenance = {
            "source": peft.name,
            "source_sha256": peft.sha256,
            "trained_on": peft.base_name,
            "base": origin.get("source"),
        }
        write_adapter(adapter, bytes.fromhex(model.info.model_digest), path, provenance=provenance)
        k, v = landing_rates(model, path, ids, lambda f, text: report(0.3 + 0.7 * f, text))
        found = {name for layer in adapter.layers for name in layer}
        check_landing(k, v, found)
        os.replace(path, target)
    return AdapterReport(
        sum(map(len, adapter.layers)),
        tuple(name for name in TARGETS if name in found),
        (ranks[0], ranks[-1]),
        k,
        v,
        target.stat().st_size,
    )


def quantize_adapter(peft: PeftAdapter, base: QuantizedModel, progress: Progress | None = None) -> Adapter:
    """The integer pairs of a float adapter for a base, whose matrices are not needed; pairs of zeros are left out.

    Args:
        peft: the float adapter.
        base: shape, norms and scales of the model.
        progress: called with a fraction 0..1 and what is being done.
    Raises:
        ConvertError: a layer or shape the base does not have, or a value the format cannot hold.
    """
    layers: list[dict[str, LowRank]] = [{} for _ in base.layers]
    orders = _row_orders(base)
    for done, ((index, name), pair) in enumerate(peft.pairs.items()):
        where = f"layer {index} {name}"
        if index >= len(layers):
            raise ConvertError(
                f"the base has {len(layers)} layers", where, "Give the base the adapter was trained on."
            )
        rows, columns, source, target = _projection(base, base.layers[index], name)
        if (pair.b.shape[0], pair.a.shape[1]) != (rows, columns):
            raise ConvertError(
                f"the adapter changes a matrix of shape {[pair.b.shape[0], pair.a.shape[1]]}, the base has "
                f"{[rows, columns]}",
                where,
                "Give the base the adapter was trained on.",
            )
        if not pair.a.read().any() or not pair.b.read().any():
            continue  # it changes nothing, such as a B that training never reached
        A = quantize_matrix(pair.a, "w8")
        B = quantize_matrix(_scaled(pair, orders.get(name)), "w8")
        check_linear(A, source, QA, f"A of {where}")
        check_linear(B, QA, target, f"B of {where}")
        layers[index][name] = LowRank(A, B)
        if progress is not None:
            progress((done + 1) / len(peft.pairs), f"Quantising {where}")
    if not any(layers):
        raise ConvertError(
            "every pair is zero, so it changes nothing", peft.name, "Train the adapter before converting it."
        )
    return Adapter(layers)


def _projection(base: QuantizedModel, layer: Layer, name: str) -> tuple[int, int, int, int]:
    """Rows and columns of a target, and the Q formats of its input and its result."""
    query, keys = base.heads * base.head_dim, base.kv_heads * base.head_dim
    return {
        "WQ": (query, base.hidden, layer.N1.EG, 16),
        "WK": (keys, base.hidden, layer.N1.EG, 16),
        "WV": (keys, base.hidden, layer.N1.EG, 16),
        "WO": (base.hidden, query, layer.ESV, base.R),
        "WG": (base.mlp, base.hidden, layer.N2.EG, 16),
        "WU": (base.mlp, base.hidden, layer.N2.EG, 16),
        "WD": (base.hidden, base.mlp, layer.QH, base.R),
    }[name]


def _row_orders(base: QuantizedModel) -> dict[str, np.ndarray | None]:
    """How the rows of q and k move into the base's slots, see `head_slots`; unrotated pairs have STEP 0."""
    slots = head_slots(base.head_dim, 2 * int(np.count_nonzero(base.STEP)), interleaved=False)
    return {"WQ": row_order(base.heads, slots), "WK": row_order(base.kv_heads, slots)}


def _scaled(pair: FloatPair, order: np.ndarray | None) -> FloatTensor:
    """B with the adapter's scale folded in, its rows in slot order, float64."""
    b = pair.b
    return FloatTensor(
        b.name, b.shape, lambda rows: np.asarray(b.fetch(rows), np.float64) * pair.scale, order
    )


# ---- the base's K and V range ----


def landing_rates(
    model: Model, adapter: str | Path, ids: Sequence[int], progress: Progress | None = None
) -> tuple[float, float]:
    """Shares of K and V values that the base's scales clip with an adapter, measured by the library.

    Args:
        model: the base.
        adapter: an adapter file of it.
        ids: token ids of the text, read in contexts of 512 that start at position 0.
        progress: called with a fraction 0..1 and what is being done.
    """
    info = model.info
    budget = min(CHUNK, info.cap, len(ids))
    clipped = np.zeros(2)
    with (
        model.adapter(adapter) as bound,
        model.pool(pages=model.pages_for(budget)) as pool,
        pool.sequence(budget) as sequence,
    ):
        sequence.set_adapter(bound)
        for start in range(0, len(ids), budget):
            sequence.reset()
            sequence.prefill(ids[start : start + budget])
            blob = sequence.save()
            clipped += [int.from_bytes(blob[at : at + 8], "little") for at in (K_LANDING, V_LANDING)]
            if progress is not None:
                progress(min(1.0, (start + budget) / len(ids)), "Measuring the K and V range")
    k, v = clipped / (len(ids) * info.layers * info.kv_heads * info.head_dim)
    return float(k), float(v)


def check_landing(k: float, v: float, targets: Collection[str]) -> None:
    """Raises ConvertError when too many K or V values leave the range the base was calibrated for."""
    for name, share in (("K", k), ("V", v)):
        if share <= MOST_CLIPPED:
            continue
        raise ConvertError(
            f"with the adapter {share:.2%} of the {name} values leave the range that the base was calibrated "
            f"for, at most {MOST_CLIPPED:.1%} may",
            "calibration text",
            f"Train without {name.lower()}_proj among the targets, or with a smaller lora_alpha."
            if f"W{name}" in targets
            else "Train with a smaller lora_alpha, or convert the base with a calibration text nearer to its use.",
        )


def _ids(model: Model, text: str | None) -> np.ndarray:
    """Token ids of the calibration text; the default one has its dialogues in the model's chat format."""
    if not model.info.has_tokenizer:
        raise ConvertError(
            "it has no tokenizer, so the K and V range cannot be measured on text",
            model.name,
            "Convert the base with `superslm convert`, or pass calibration_ids from Python.",
        )
    if text is None:
        text = default_calibration_text((lambda turns: _chat(model, turns)) if model.has_chat else chatml)
    ids = model.tokenize(text, control_tokens=True)
    if len(ids) == 0:
        raise ConvertError("it is empty", "calibration text", "Give some pages of text.")
    return ids


def _chat(model: Model, turns: list[dict[str, str]]) -> str:
    """A conversation in the model's chat format."""
    parts = [] if turns[0]["role"] == "system" else [model.detokenize(model.chat_ids("system", "opening"))]
    for turn in turns:
        before, after = (
            model.detokenize(model.chat_ids(turn["role"], side)) for side in ("prefix", "suffix")
        )
        parts.append(before + turn["content"] + after)
    return "".join(parts)


def _compare_names(peft: PeftAdapter, source: str, warn: Callable[[str], None] | None) -> None:
    """Warns when the adapter names quite another base; names are no proof, so nothing is refused."""

    def words(name: str) -> set[str]:
        last = re.split(r"[/\\]", name.rstrip("/\\"))[-1].lower()
        return set(re.findall(r"[a-z0-9.]+", last)) - {"instruct", "chat", "base", "model", "it"}

    trained, given = words(peft.base_name), words(source)
    if warn is not None and trained and given and not trained & given:
        warn(
            f"The adapter says it was trained on {peft.base_name}; the base was made from {source}. If these are "
            "different models, its replies will be wrong."
        )
