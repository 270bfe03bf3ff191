# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Conversations in a model's own chat format."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from superslm.engine import Model, Workspace
from superslm.selection import Selection
from superslm.sequence import Sequence


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
        """Adds the user's turn and yields the reply piece by piece.

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
        yield from self.sequence.generate(
            np.array(ids, np.int32), max_tokens=max_tokens, selection=selection, workspace=workspace
        )

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
