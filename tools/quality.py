#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""How close an artifact is to the float model it was made from, on the fixed held-out text.

    python tools/quality.py model.sslm --source model.gguf [--peer llama.cpp] [--json figures.json]

Both models read the same tokens (teacher forcing) in contexts of 512 that start at position 0; no context
spans two documents. Printed per document and in all: mean KL(float || int) per token in nats, perplexity of
both and their ratio, agreement of the most probable token, and how many K and V values were clipped. The
intervals are 95 % bootstrap intervals over blocks of 64 tokens. With a peer, the same of its own eight- and
four-bit forms of the source follows, over all documents. Then greedy replies to ten fixed prompts are
compared: the first token that differs, and by how much the float model prefers its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

try:
    import superslm  # noqa: F401
except ImportError:  # a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python_binding"))

from superslm import Model
from superslm.cli_output import progress_bar
from superslm.convert.checkpoint import Checkpoint
from superslm.convert.float_model import logits as float_logits
from superslm.convert.pipeline import load_checkpoint
from superslm.convert.tokenizer import TokenizerSource, hf_tokenizer

DATA = Path(__file__).resolve().parent.parent / "tests/data"
HELDOUT, PROMPTS = DATA / "heldout", DATA / "divergence_prompts.txt"
CONTEXT = 512  # positions
BLOCK = 64  # tokens resampled together
RESAMPLES = 2000
ROWS = 32  # logit rows compared at once
OURS = "SuperSLM"
KV_LANDING, K_LANDING = 124, 132  # offsets of two clip counts in a save blob (u64)

Progress = Callable[[float, str], None]


@dataclass
class Figures:
    """What was measured on some text, a value per token; `next` values lack the last token of a context."""

    kl: list[np.ndarray] = field(default_factory=list)  # nats, float64
    agree: list[np.ndarray] = field(default_factory=list)  # bool
    float_nll: list[np.ndarray] = field(default_factory=list)  # nats of the next token
    int_nll: list[np.ndarray] = field(default_factory=list)
    clipped: np.ndarray = field(default_factory=lambda: np.zeros(2))  # K, V
    landed: int = 0  # K values written; as many V values

    def __iadd__(self, other: Figures) -> Figures:
        for name in ("kl", "agree", "float_nll", "int_nll"):
            getattr(self, name).extend(getattr(other, name))
        self.clipped = self.clipped + other.clipped
        self.landed += other.landed
        return self

    def summary(self) -> dict[str, Any]:
        """Means, and intervals [low, high]."""
        kl, agree = np.concatenate(self.kl), np.concatenate(self.agree).astype(float)
        float_nll, int_nll = np.concatenate(self.float_nll), np.concatenate(self.int_nll)
        k, v = (self.clipped / max(self.landed, 1)).tolist()
        return {
            "tokens": len(kl),
            "kl": float(kl.mean()),
            "kl_interval": interval(kl),
            "kl_worst": float(kl.max()),
            "float_perplexity": float(np.exp(float_nll.mean())),
            "int_perplexity": float(np.exp(int_nll.mean())),
            "ratio": float(np.exp((int_nll - float_nll).mean())),
            "ratio_interval": np.exp(interval(int_nll - float_nll)).tolist(),
            "top1": float(agree.mean()),
            "top1_interval": interval(agree),
            "k_clip": k,
            "v_clip": v,
        }


def interval(values: np.ndarray) -> list[float]:
    """95 % bootstrap interval of the mean, resampling blocks of neighbours."""
    blocks = [values[i : i + BLOCK] for i in range(0, len(values), BLOCK)]
    sums, sizes = np.array([b.sum() for b in blocks]), np.array([len(b) for b in blocks])
    picks = np.random.default_rng(0).integers(0, len(blocks), (RESAMPLES, len(blocks)))
    means = sums[picks].sum(1) / sizes[picks].sum(1)
    return np.percentile(means, [2.5, 97.5]).tolist()


def log_softmax(rows: np.ndarray) -> np.ndarray:
    """Natural logarithms of the probabilities, float64, over the last axis."""
    rows = rows.astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(axis=-1, keepdims=True))
    return rows


def documents(checkpoint: Checkpoint, folder: Path = HELDOUT) -> dict[str, list[int]]:
    """Token ids per document; control tokens are recognised (the dialogues contain them)."""
    encoder = hf_tokenizer(TokenizerSource.from_checkpoint(checkpoint))
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))}
    return {name: encoder.encode(text, add_special_tokens=False).ids for name, text in texts.items()}


def contexts_of(ids: Sequence[int], limit: int | None = None) -> list[list[int]]:
    """A document in contexts; `limit` keeps its first tokens only."""
    ids = list(ids)[:limit]
    return [ids[i : i + CONTEXT] for i in range(0, len(ids), CONTEXT)]


def engine_logits(model: Model, contexts: Sequence[Sequence[int]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Per context the logits [n, vocab] in nats, float32, and how many K and V values were clipped."""
    with (
        model.pool(pages=model.pages_for(min(CONTEXT, model.info.cap))) as pool,
        pool.sequence(budget=min(CONTEXT, model.info.cap)) as sequence,
    ):
        for context in contexts:
            sequence.reset()
            rows = np.empty((len(context), model.info.vocab), np.float32)
            for position, token in enumerate(context):
                sequence.prefill([token])
                rows[position] = sequence.logits() / np.float32(65536)
            blob = sequence.save()
            at = (K_LANDING, KV_LANDING)
            yield rows, np.array([int.from_bytes(blob[i : i + 8], "little") for i in at], float)


def compare(ids: Sequence[int], reference: np.ndarray, measured: np.ndarray) -> Figures:
    """Figures of one context from both models' logits [n, vocab] in nats."""
    out, n = Figures(), len(ids)
    for start in range(0, n, ROWS):
        p, q = log_softmax(reference[start : start + ROWS]), log_softmax(measured[start : start + ROWS])
        out.kl.append((np.exp(p) * (p - q)).sum(axis=1))
        out.agree.append(p.argmax(axis=1) == q.argmax(axis=1))
        following = np.asarray(ids[start + 1 : start + 1 + len(p)], np.int64)
        at = np.arange(len(following))
        out.float_nll.append(-p[at, following])
        out.int_nll.append(-q[at, following])
    return out


def measure(
    model: Model,
    checkpoint: Checkpoint,
    *,
    limit: int | None = None,
    names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Figures]:
    """Figures per document.

    Args:
        model: the artifact.
        checkpoint: its source.
        limit: first tokens of each document to use; None: all.
        names: documents to use; None: all.
        progress: called with a fraction 0..1 and what is being done.
    """
    return measure_all({"": model}, checkpoint, limit=limit, names=names, progress=progress)[""]


def measure_all(
    models: dict[str, Model | PeerModel],
    checkpoint: Checkpoint,
    *,
    limit: int | None = None,
    names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> dict[str, dict[str, Figures]]:
    """As `measure`, for several models of one source: figures by model and document."""
    texts = {n: ids for n, ids in documents(checkpoint).items() if names is None or n in names}
    work = [(name, context) for name, ids in texts.items() for context in contexts_of(ids, limit)]
    contexts = [context for _, context in work]
    report = progress or (lambda fraction, text: None)
    reference = float_logits(checkpoint, contexts, progress=lambda f, text: report(f * 0.3, text))
    measured = {
        key: engine_logits(one, contexts) if isinstance(one, Model) else one.logits(contexts)
        for key, one in models.items()
    }
    result = {key: {name: Figures() for name in texts} for key in models}
    done, total = 0, sum(map(len, contexts))
    for (name, ids), floats in zip(work, reference, strict=True):
        for key, model in models.items():
            rows, clipped = next(measured[key])
            figures = compare(ids, floats, rows)
            if isinstance(model, Model):
                info = model.info
                figures.clipped = clipped
                figures.landed = len(ids) * info.layers * info.kv_heads * info.head_dim
            result[key][name] += figures
        done += len(ids)
        report(0.3 + 0.7 * done / total, f"Comparing {name}")
    return result


class PeerModel:
    """The source in another engine's own form, in a process of its own."""

    def __init__(self, source: Path, peer: str, weights: str) -> None:
        import bench_engines
        import bench_models

        self.name = bench_models.PEER_TYPES[weights]
        found = bench_models.Source(source.stem, source)
        path = bench_models.peer_gguf(found, weights, bench_engines.requantise)
        self._engine = bench_engines.start(peer)
        self._engine.ask("open", path=str(path), variant=self._engine.about["variants"][0])

    def logits(self, contexts: Sequence[Sequence[int]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """As `engine_logits`; what is clipped is not known."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "logits.npy"
            for context in contexts:
                self._engine.ask("save_logits", tokens=list(context), path=str(path))
                yield np.load(path), np.zeros(2)

    def close(self) -> None:
        """Ends the process."""
        self._engine.close()


def whole(figures: dict[str, Figures]) -> Figures:
    """All documents together."""
    out = Figures()
    for part in figures.values():
        out += part
    return out


# ---- first divergence from float greedy ----


@dataclass(frozen=True)
class Divergence:
    """Where the integer model first says something else than the float model; token None: nowhere."""

    prompt: str
    token: int | None  # 0-based, within the reply
    float_choice: str = ""
    int_choice: str = ""
    gap: float = 0.0  # by how many nats the float model prefers its own choice


def first_divergences(
    model: Model, checkpoint: Checkpoint, prompts: Sequence[str], length: int = 24
) -> list[Divergence]:
    """Compares greedy replies of `length` tokens, in the chat format.

    The float model reads the integer model's reply: up to the first difference that is its own greedy reply.
    """
    asked, replies = [], []
    with model.pool(contexts=1) as pool, pool.sequence() as sequence:
        for prompt in prompts:
            parts = ("system", "opening"), ("user", "prefix"), ("user", "suffix"), ("assistant", "prefix")
            opening, before, after, reply = (model.chat_ids(*part) for part in parts)
            ids = np.concatenate([opening, before, model.tokenize(prompt), after, reply])
            sequence.reset()
            sequence.prefill(ids)
            asked.append(ids.tolist())
            replies.append([sequence.decode() for _ in range(length)])
    contexts = [ids + reply[:-1] for ids, reply in zip(asked, replies, strict=True)]
    out = []
    for prompt, ids, reply, rows in zip(
        prompts, asked, replies, float_logits(checkpoint, contexts), strict=True
    ):
        rows = rows[len(ids) - 1 :]
        chosen = rows.argmax(axis=1)
        differs = np.flatnonzero(chosen != np.array(reply))
        if differs.size == 0:
            out.append(Divergence(prompt, None))
            continue
        i = int(differs[0])
        gap = float(rows[i, chosen[i]] - rows[i, reply[i]])
        out.append(Divergence(prompt, i, model.detokenize([chosen[i]]), model.detokenize([reply[i]]), gap))
    return out


# ---- the command ----


def replies(found: Sequence[Divergence]) -> str:
    """The divergences as lines of text."""
    lines = []
    for d in found:
        choice = f"token {(d.token or 0) + 1}: float {d.float_choice!r}, integer {d.int_choice!r}, gap {d.gap:.4f} nats"
        lines.append(f"{d.prompt}\n    {'the same' if d.token is None else choice}")
    return "\n".join(lines)


def table(figures: dict[str, Figures]) -> str:
    """The figures as lines of text."""
    head = f"{'document':14}{'tokens':>7}{'KL':>9}{'95 %':>18}{'worst':>8}{'ppl':>8}{'ratio':>8}{'95 %':>16}"
    lines = [head + f"{'top-1':>7}{'K clip':>9}{'V clip':>9}"]
    for name, part in [*figures.items(), ("all", whole(figures))]:
        s = part.summary()
        kl, ratio = s["kl_interval"], s["ratio_interval"]
        lines.append(
            f"{name:14}{s['tokens']:7}{s['kl']:9.5f}{kl[0]:10.5f}-{kl[1]:.5f}{s['kl_worst']:8.3f}"
            f"{s['float_perplexity']:8.2f}{s['ratio']:8.4f}{ratio[0]:9.4f}-{ratio[1]:.4f}"
            f"{s['top1']:7.1%}{s['k_clip']:9.1e}{s['v_clip']:9.1e}"
        )
    return "\n".join(lines)


def peer_table(figures: dict[str, dict[str, Figures]]) -> str:
    """A line for each model over all documents."""
    lines = [f"{'all documents':20}{'KL':>9}{'95 %':>18}{'ratio':>9}{'top-1':>8}"]
    for key, parts in figures.items():
        s = whole(parts).summary()
        low, high = s["kl_interval"]
        lines.append(f"{key:20}{s['kl']:9.5f}{low:10.5f}-{high:.5f}{s['ratio']:9.4f}{s['top1']:8.1%}")
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="the artifact")
    parser.add_argument(
        "--source", type=Path, required=True, help="the GGUF file or directory it was made from"
    )
    parser.add_argument("--limit", type=int, help="use only the first tokens of each document")
    parser.add_argument("--document", action="append", help="use only this document (may be repeated)")
    parser.add_argument(
        "--peer", choices=("llama.cpp",), help="measure this engine's forms of the source too"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    checkpoint = load_checkpoint(options.source)
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(Model.load(options.model))
        models: dict[str, Model | PeerModel] = {OURS: model}
        for weights in ("w8", "w4") if options.peer else ():
            peer = stack.enter_context(contextlib.closing(PeerModel(options.source, options.peer, weights)))
            models[f"{options.peer} {peer.name}"] = peer
        progress = stack.enter_context(progress_bar("Measuring"))
        chosen = {"limit": options.limit, "names": options.document}
        measured = measure_all(models, checkpoint, **chosen, progress=progress)
        prompts = PROMPTS.read_text(encoding="utf-8").splitlines()
        found = first_divergences(model, checkpoint, prompts) if model.has_chat else []
    figures = measured[OURS]
    print(table(figures))
    if options.peer:
        print(peer_table(measured))
    print(replies(found))
    if options.json:
        parts = {name: part.summary() for name, part in [*figures.items(), ("all", whole(figures))]}
        peers = {key: whole(parts).summary() for key, parts in measured.items() if key != OURS}
        options.json.write_text(json.dumps({**parts, **peers}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
