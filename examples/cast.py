# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""A cast for a frame loop: one world shared by all, prompts read by a thread, replies that grow by layers.

python cast.py model.sslm

Copy this file beside your game; plugin_host/pygame and plugin_host/panda3d do.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from dataclasses import dataclass, field

import numpy as np
from superslm import Model, Sequence

WORLD = (
    "You are in the Drowned Lantern, a tavern on the quay of Saltreach. Outside a storm pulls at the shutters, "
    "and the ferry will not sail tonight. The stove is hot, a lame gull named Commodore sleeps "
    "on the counter, and at dusk the bell of the lighthouse rang by itself. "
    "Nobody trusts the tax collector, who sits by the window with wet boots and a locked chest, "
    "and nobody knows why the harbour master has not been seen since noon. "
    "The soup is thin, the stories are long, and so is the night. "
    "Stay in your part and answer in one or two short sentences."
)
TAVERN = {
    "Marta": " You are Marta, who keeps the tavern.",
    "Oren": " You are Oren, an old sailor.",
    "Pip": " You are Pip, a young thief.",
}
LINES = {
    "Marta": "What do you serve tonight?",
    "Oren": "Have you ever seen a storm like this?",
    "Pip": "Who is the man by the window?",
}


@dataclass
class Character:
    """Who speaks; `mood` is "silent", "reading" or "speaking"."""

    persona: str
    sequence: Sequence
    mood: str = "silent"
    layer: int = 0  # layers of the current token that are done
    fresh: bool = True  # nothing has been said yet
    prompt: list[int] = field(default_factory=list)
    reply: list[int] = field(default_factory=list)


class Cast:
    """Characters of one model. Call `frame` once per frame, from one thread."""

    def __init__(
        self, model: Model, personas: dict[str, str], *, world: str = WORLD, budget: int = 384
    ) -> None:
        """Reads the world and makes the characters.

        Args:
            model: stays the caller's.
            personas: instructions by name; they follow the world.
            world: what all of them know, read once.
            budget: positions each may add to the world.
        """
        self.model = model
        self.world_ids = [*model.chat_ids("system"), *model.tokenize(world)]
        room = len(self.world_ids)
        # Twice a character's pages: a restored one is made before the old one is let go.
        pages = model.pages_for(room) + 2 * len(personas) * model.pages_for(budget)
        self.pool = model.pool(pages=pages)
        self.world = self.pool.prefix(self.world_ids, budget=room).freeze()
        self.characters = {
            name: Character(text, self.pool.sequence(budget)) for name, text in personas.items()
        }
        for character in self.characters.values():
            character.sequence.adopt(self.world)
        self.workspace = model.workspace(max_batch=len(personas), max_chunk=1)
        self._lines: queue.SimpleQueue[Character | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def say(self, name: str, line: str) -> bool:
        """Queues a line for a character; False while it still reads or speaks."""
        character, model = self.characters[name], self.model
        if character.mood != "silent":
            return False
        if character.fresh:
            before = [*model.tokenize(character.persona), *model.chat_ids("system", "suffix")]
        else:  # close the reply before; a stop token stands in the suffix already
            if character.sequence.pending in model.info.stop_ids:
                character.sequence.drop_pending()
            before = model.chat_ids("assistant", "suffix").tolist()
        parts = (before, model.chat_ids("user"), model.tokenize(line), model.chat_ids("user", "suffix"))
        character.prompt = [int(i) for part in (*parts, model.chat_ids("assistant")) for i in part]
        character.reply, character.fresh, character.mood = [], False, "reading"
        self._lines.put(character)
        return True

    def frame(self, layers: int, longest: int = 48) -> None:
        """Runs `layers` layers of the next token for everyone who speaks and stands at the same layer."""
        speakers = [c for c in self.characters.values() if c.mood == "speaking"]
        layer = max((c.layer for c in speakers), default=0)
        batch = [c for c in speakers if c.layer == layer]
        if not batch:
            return
        tokens = self.model.decode([c.sequence for c in batch], layer_budget=layers, workspace=self.workspace)
        for character, token in zip(batch, tokens, strict=True):
            character.layer = character.layer + layers if token is None else 0
            if token is None:
                continue
            stops = token in self.model.info.stop_ids
            if not stops:
                character.reply.append(token)
            if stops or len(character.reply) == longest:
                character.mood = "silent"

    def text(self, name: str) -> str:
        """What a character has said so far."""
        return self.model.detokenizer().push(self.characters[name].reply)

    def quiet(self) -> bool:
        """Whether nobody reads or speaks."""
        return all(c.mood == "silent" for c in self.characters.values())

    def save_and_restore(self) -> int:
        """Saves everyone who is not reading, mid-token or not, and goes on with the restored; bytes of all blobs."""
        size = 0
        for character in self.characters.values():
            if character.mood == "reading":
                continue
            blob = character.sequence.save()
            restored = self.pool.restore(blob, self.world)
            restored.pending = character.sequence.pending  # a token in the making hides it from the blob
            character.sequence.close()
            character.sequence = restored
            size += len(blob)
        return size

    def close(self) -> None:
        """Ends the reader and gives everything back but the model."""
        self._lines.put(None)
        self._reader.join()
        for character in self.characters.values():
            character.sequence.close()
        for thing in (self.world, self.workspace, self.pool):
            thing.close()

    def _read(self) -> None:
        """A prompt's token costs a whole pass over the weights: not within a frame."""
        with self.model.workspace(max_chunk=64) as space:
            while (character := self._lines.get()) is not None:
                character.sequence.prefill(np.array(character.prompt, np.int32), chunk=64, workspace=space)
                character.mood = "speaking"


def main(path: str) -> None:
    """Lets three characters speak at once at 60 frames a second, and saves them in mid-sentence."""
    with Model.load(path) as model:
        cast, frames, saved, worst = Cast(model, TAVERN), 0, 0, 0.0
        for name, line in LINES.items():
            cast.say(name, line)
        layers = max(1, model.info.layers // 5)
        while not cast.quiet():
            start = time.perf_counter()
            cast.frame(layers)
            worst = max(worst, time.perf_counter() - start)
            frames += 1
            if not saved and len(cast.text("Marta")) > 20:
                saved = cast.save_and_restore()
            time.sleep(max(0.0, 1 / 60 - (time.perf_counter() - start)))
        for name, line in LINES.items():
            print(f"{name}, {line}\n    {cast.text(name)}\n")
        stats = cast.pool.stats()
        print(f"{frames} frames of up to {layers} layers, the longest call {1000 * worst:.1f} ms")
        pages = "one page holds" if stats.shared_pages == 1 else f"{stats.shared_pages} pages hold"
        print(f"{pages} the world for all; {saved} bytes were saved in mid-sentence")
        cast.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python cast.py model.sslm")
    main(sys.argv[1])
