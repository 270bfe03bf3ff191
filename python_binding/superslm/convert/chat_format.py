# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Turns a Jinja chat template into ids in front of and behind the turns of each role.

The template is rendered with marks in place of the messages, and the text between the marks is cut into
parts. The parts are then put together for other conversations and compared with what the template makes of
them: a template that does more than surround its messages is reported, never approximated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

ROLES = ("system", "user", "assistant")
PARTS = ("prefix", "suffix", "opening")

Messages = list[dict[str, str]]


class ChatFormatError(Exception):
    """A chat template that prefixes and suffixes cannot express; the message says why."""


def render(template: str, messages: Messages, generate: bool, bos: str = "", eos: str = "") -> str:
    """Renders a chat template in Jinja's sandbox.

    Args:
        template: Jinja text.
        messages: `{"role": ..., "content": ...}` in order.
        generate: ask for the beginning of the assistant's turn at the end.
        bos: text of the begin-of-text token.
        eos: text of the end-of-text token.
    Raises:
        ChatFormatError: the template is malformed or refuses these messages.
    """
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    try:
        return environment.from_string(template).render(
            messages=messages, add_generation_prompt=generate, bos_token=bos, eos_token=eos, tools=None
        )
    except Exception as error:  # a template is a program: whatever it raises is its refusal
        raise ChatFormatError(f"the template refuses a conversation: {error}") from error


def chat_parts(
    template: str, bos: str = "", eos: str = "", end_texts: Sequence[str] = ()
) -> dict[tuple[str, str], str]:
    """Cuts a chat template into the texts around the turns.

    Args:
        template: Jinja text.
        bos: text of the begin-of-text token.
        eos: text of the end-of-text token.
        end_texts: texts of tokens that end a turn.
    Returns:
        (role, part) -> text. The system prefix opens the conversation; ("system", "opening") opens one
        without a system turn and contains the template's default system turn, if it has one.
    Raises:
        ChatFormatError: the template does more than surround the messages.
    """

    def rendered(messages: Messages, generate: bool) -> str:
        return render(template, messages, generate, bos, eos)

    parts = _cut(rendered, end_texts)
    conversations = [("S", "U"), ("U",), ("S", "U", "A", "U", "A", "U"), ("U", "A", "U", "A", "U")]
    for turns in conversations:
        messages = _messages(turns, " with more\nthan one line.")
        if rendered(messages, True) != joined(parts, messages):
            raise ChatFormatError("the template changes the text around a turn with the turns before it")
    return parts


def joined(parts: dict[tuple[str, str], Any], messages: Messages) -> str:
    """The text of a conversation that ends where the assistant begins to speak."""
    text = "" if messages[0]["role"] == "system" else parts["system", "opening"]
    for message in messages:
        role = message["role"]
        text += parts[role, "prefix"] + message["content"] + parts[role, "suffix"]
    return text + parts["assistant", "prefix"]


def _messages(turns: Sequence[str], tail: str = "") -> Messages:
    """Messages with a mark each: S, U and A are the roles."""
    names = {name[0].upper(): name for name in ROLES}
    return [{"role": names[t], "content": f"Mark{i}{t}{tail}"} for i, t in enumerate(turns)]


def _between(text: str, messages: Messages) -> list[str]:
    """The texts before, between and behind the marks, each of which must occur once and in order."""
    out = []
    for message in messages:
        before, mark, text = text.partition(message["content"])
        if not mark or message["content"] in text:
            raise ChatFormatError(f"the template drops, repeats or changes a {message['role']} message")
        out.append(before)
    return [*out, text]


def _cut(rendered: Callable[[Messages, bool], str], end_texts: Sequence[str]) -> dict[tuple[str, str], str]:
    whole = _messages("SUAU")
    before_system, system_user, user_assistant, assistant_user, end = _between(rendered(whole, True), whole)

    def behind(turns: str) -> str:
        messages = _messages(turns)
        return _between(rendered(messages, False), messages)[-1]

    if behind("SUAU") == end:  # the template asks for a reply in any case
        user_suffix, prompt = _split_at_end(end, end_texts)
        assistant_suffix = _without_suffix(behind("SUA"), prompt)
    else:
        user_suffix, assistant_suffix = behind("SU"), behind("SUA")
        prompt = _without_prefix(end, user_suffix)
    if _without_prefix(user_assistant, user_suffix) != prompt:
        raise ChatFormatError("a reply to be written begins otherwise than one that was given")
    user_prefix = _without_prefix(assistant_user, assistant_suffix)
    opening = _between(rendered(_messages("U"), True), _messages("U"))[0]
    return {
        ("system", "prefix"): before_system,
        ("system", "suffix"): _without_suffix(system_user, user_prefix),
        ("system", "opening"): _without_suffix(opening, user_prefix),
        ("user", "prefix"): user_prefix,
        ("user", "suffix"): user_suffix,
        ("assistant", "prefix"): prompt,
        ("assistant", "suffix"): assistant_suffix,
    }


def _split_at_end(text: str, end_texts: Sequence[str]) -> tuple[str, str]:
    """Splits behind the first token that ends a turn and the white space that follows it."""
    ends = [text.find(mark) + len(mark) for mark in end_texts if mark and mark in text]
    if not ends:
        raise ChatFormatError("no token that ends a turn stands between user and assistant")
    cut = min(ends)
    cut += len(text[cut:]) - len(text[cut:].lstrip())
    return text[:cut], text[cut:]


def _without_prefix(text: str, prefix: str) -> str:
    if not text.startswith(prefix):
        raise ChatFormatError("the text behind a turn depends on the turn that follows")
    return text[len(prefix) :]


def _without_suffix(text: str, suffix: str) -> str:
    if not text.endswith(suffix):
        raise ChatFormatError("the text in front of a turn depends on the turn before it")
    return text[: len(text) - len(suffix)]
