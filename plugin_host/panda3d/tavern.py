# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Three characters in Panda3D: their replies grow as text nodes over three cards.

python plugin_host/panda3d/tavern.py model.sslm [--chain] [--headless]

The language runs as a task of the main loop, or with --chain as a task of a chain with a thread of its own.
With --headless there is no window; the game is saved in mid-sentence, and the transcript is printed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from direct.showbase.ShowBase import ShowBase
from direct.task.Task import Task
from panda3d.core import CardMaker, ClockObject, TextNode
from superslm import Model

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from cast import LINES, TAVERN, Cast  # noqa: E402

COATS = ((0.55, 0.23, 0.25, 1), (0.20, 0.32, 0.42, 1), (0.28, 0.38, 0.25, 1))


class Tavern(ShowBase):
    """The game: one task for language, one for what is seen."""

    def __init__(self, cast: Cast, *, chain: bool, headless: bool) -> None:
        super().__init__(windowType="none" if headless else "onscreen")
        self.cast_of_characters, self.headless = cast, headless
        self.frames = self.saved = 0
        self.layers = max(1, cast.model.info.layers // 5)
        if headless:
            ClockObject.get_global_clock().set_mode(ClockObject.M_limited)
            ClockObject.get_global_clock().set_frame_rate(120)
        if chain:
            self.task_mgr.setupTaskChain("language", numThreads=1)
        self.task_mgr.add(self.speak, "speak", taskChain="language" if chain else "default")
        self.task_mgr.add(self.show, "show")
        self.bubbles = (
            {} if headless else {name: self._guest(i, name) for i, name in enumerate(cast.characters)}
        )

    def _guest(self, i: int, name: str) -> TextNode:
        maker = CardMaker(name)
        maker.set_frame(-0.3, 0.3, -0.9, -0.2)
        card = self.aspect2d.attach_new_node(maker.generate())
        card.set_pos(-0.85 + 0.85 * i, 0, 0)
        card.set_color(*COATS[i % 3])
        text = TextNode(name)
        text.set_wordwrap(12)
        text.set_align(TextNode.A_center)
        path = self.aspect2d.attach_new_node(text)
        path.set_pos(-0.85 + 0.85 * i, 0, 0.7)
        path.set_scale(0.06)
        return text

    def speak(self, _: Task) -> int:
        """A slice of language per frame."""
        cast = self.cast_of_characters
        cast.frame(self.layers)
        if self.headless and not self.saved and len(cast.text("Marta")) > 20:
            self.saved = cast.save_and_restore()
        return Task.cont

    def show(self, _: Task) -> int:
        """Lets the bubbles grow."""
        self.frames += 1
        for name, bubble in self.bubbles.items():
            bubble.set_text(f"{name}\n{self.cast_of_characters.text(name)}")
        return Task.cont


def print_transcript(cast: Cast) -> None:
    """What was read and said, as token ids."""
    for name, character in cast.characters.items():
        print("prompt", *cast.world_ids, *character.prompt)
        print("reply", *character.reply)
        print(f"{name}: {cast.text(name)}")


def main() -> int:
    """Runs the game; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--chain", action="store_true")
    parser.add_argument("--headless", action="store_true")
    options = parser.parse_args()
    with Model.load(options.model) as model:
        cast = Cast(model, TAVERN)
        game = Tavern(cast, chain=options.chain, headless=options.headless)
        for name, line in LINES.items():
            cast.say(name, line)
        if not options.headless:
            game.run()
        while not cast.quiet():
            game.task_mgr.step()
        game.task_mgr.remove("speak")
        game.destroy()  # ends the chain's thread too
        print_transcript(cast)
        print(f"frames {game.frames}, saved and restored in mid-sentence: {game.saved} bytes")
        cast.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
