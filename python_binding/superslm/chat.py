# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Conversations in a model's own chat format."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from superslm.engine import Model, Workspace
from superslm.selection import Selection
from superslm.sequence import PagePool, Prefix, Sequence

_SAVED = struct.Struct(
    "<4siB4s"
)  # magic, pending token or -1, whether a reply is open, the text's state; a blob
_MAGIC = b"SSC1"


class Chat:
    """A conversation on one sequence; turns are appended, nothing is computed twice.

    The text of a turn can never forge the borders of a turn: control tokens in it are plain text.

    >>> from superslm import Chat, Model
    >>> with Model.load(example_artifact) as model, model.pool() as pool, pool.sequence() as sequence:
    ...     chat = Chat(sequence, system="You guard a bridge. Answer in one sentence.")
    ...     reply = "".join(chat.say("May I pass?", max_tokens=8))
    >>> len(reply) > 0
    True
    """

    def __init__(self, sequence: Sequence, system: str | None = None) -> None:
        """Starts a conversation.

        Args:
            sequence: an empty sequence, or one that adopted a prefix which opens the conversation.
            system: instructions for the model; None: the model's own default, if it has one.

        Raises:
            ArtifactRejected: the model has no chat format or no tokenizer.
        """
        self.sequence = sequence
        self._model = sequence.model
        self._open_reply = False
        self._text = self._model.detokenizer()
        if sequence.stats().context_length == 0:
            sequence.prefill(opening(sequence, system))
        elif system is not None:
            raise ValueError("system text must come first, but the sequence already has content")

    def say(
        self,
        text: str,
        *,
        max_tokens: int = 256,
        selection: Selection | None = None,
        workspace: Workspace | None = None,
    ) -> Iterator[str]:
        """Adds the user's turn and yields the reply piece by piece; `go_on` continues one that was cut short.

        Args:
            text: what the user says.
            max_tokens: the longest reply, in tokens.
            selection: `Damped` or `Sampling`; default: greedy.
            workspace: default: this thread's own.

        Raises:
            ContextCapExceeded, KvBudgetExceeded: the sequence is full; the reply so far is in it.
        """
        ids = [*self._end_of_reply(), *turn(self._model, text)]
        self._open_reply = True
        self._text = self._model.detokenizer()
        yield from self.sequence.generate(
            np.array(ids, np.int32),
            max_tokens=max_tokens,
            selection=selection,
            text=self._text,
            workspace=workspace,
        )

    def go_on(
        self,
        *,
        max_tokens: int = 256,
        selection: Selection | None = None,
        workspace: Workspace | None = None,
    ) -> Iterator[str]:
        """Yields more of a reply that its length, or a saved game, cut short; nothing once it has ended.

        Takes and raises what `say` does.
        """
        if not self._open_reply or self.sequence.pending in self._model.info.stop_ids:
            return
        yield from self.sequence.generate(
            max_tokens=max_tokens, selection=selection, text=self._text, workspace=workspace
        )

    def save(self) -> bytes:
        """The conversation for a saved game, in the middle of a reply too; `restore` goes on with it."""
        pending = -1 if self.sequence.pending is None else self.sequence.pending
        return _SAVED.pack(_MAGIC, pending, self._open_reply, self._text.state) + self.sequence.save()

    @classmethod
    def restore(cls, pool: PagePool, saved: bytes, prefix: Prefix | None = None) -> Chat:
        """The conversation that `save` gave, on a new sequence of `pool`: close it as `chat.sequence`.

        Args:
            pool: of the same model.
            saved: what `save` gave.
            prefix: the one the sequence had adopted, to share its pages again.

        Raises:
            ValueError: the bytes are no saved conversation.
            SuperslmError: what `PagePool.restore` refuses.
        """
        if len(saved) < _SAVED.size or saved[:4] != _MAGIC:
            raise ValueError("this is no saved conversation; Chat.save makes one")
        _, pending, open_reply, state = _SAVED.unpack_from(saved)
        sequence = pool.restore(saved[_SAVED.size :], prefix)
        sequence.pending = None if pending < 0 else pending
        chat = cls(sequence)
        chat._open_reply, chat._text = bool(open_reply), pool.model.detokenizer(state)
        return chat

    def _end_of_reply(self) -> list[int]:
        """What ends the reply before; a stop id that the model emitted stands in the suffix already."""
        if not self._open_reply:
            return []
        if self.sequence.pending in self._model.info.stop_ids:
            self.sequence.drop_pending()
        return self._model.chat_ids("assistant", "suffix").tolist()


def turn(model: Model, text: str) -> np.ndarray:
    """The ids of a user's turn and of what asks for a reply, int32."""
    parts = (
        model.chat_ids("user"),
        model.tokenize(text),
        model.chat_ids("user", "suffix"),
        model.chat_ids("assistant"),
    )
    return np.concatenate(parts)


def opening(sequence: Sequence, system: str | None) -> np.ndarray:
    """The ids that open a conversation with or without a system turn, int32."""
    model = sequence.model
    if system is None:
        return model.chat_ids("system", "opening")
    parts = (model.chat_ids("system"), model.tokenize(system), model.chat_ids("system", "suffix"))
    return np.concatenate(parts)
