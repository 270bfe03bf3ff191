# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The Drowned Lantern in pygame: click a guest, type, press return; the wheel changes the layers per frame.

python plugin_host/pygame/tavern.py model.sslm [--demo FRAMES]

With --demo everyone is asked at once, the game is saved in mid-sentence, and the transcript is printed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pygame
from superslm import Model

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from cast import LINES, TAVERN, Cast  # noqa: E402

SIZE = (900, 500)
INK, PAPER, ROOM, GOLD = (40, 28, 22), (246, 240, 222), (44, 30, 25), (255, 205, 110)
COATS = ((140, 58, 64), (52, 82, 106), (72, 98, 64))


class Scene:
    """Draws the cast and turns events into lines."""

    def __init__(self, cast: Cast) -> None:
        self.cast, self.names = cast, list(cast.characters)
        self.screen = pygame.display.set_mode(SIZE)
        self.font = pygame.font.Font(None, 22)
        self.chosen, self.typed, self.layers = 0, "", max(1, cast.model.info.layers // 5)

    def handle(self, event: pygame.event.Event) -> None:
        """Acts on one event."""
        if event.type == pygame.MOUSEWHEEL:
            self.layers = min(self.cast.model.info.layers, max(1, self.layers + event.y))
        elif event.type == pygame.MOUSEBUTTONDOWN and event.button == 1:
            self.chosen = min(len(self.names) - 1, event.pos[0] * len(self.names) // SIZE[0])
        elif event.type == pygame.TEXTINPUT:
            self.typed += event.text
        elif event.type == pygame.KEYDOWN and event.key == pygame.K_BACKSPACE:
            self.typed = self.typed[:-1]
        elif event.type == pygame.KEYDOWN and event.key == pygame.K_RETURN and self.typed:
            if self.cast.say(self.names[self.chosen], self.typed):
                self.typed = ""

    def draw(self) -> None:
        """Draws a frame."""
        self.screen.fill(ROOM)
        column = SIZE[0] // len(self.names)
        for i, name in enumerate(self.names):
            x = column * i + column // 2
            pygame.draw.rect(self.screen, COATS[i % 3], (x - 45, 330, 90, 70), border_radius=24)
            pygame.draw.circle(self.screen, (222, 176, 140), (x, 305), 28)
            label = self.font.render(name, True, GOLD if i == self.chosen else PAPER)
            self.screen.blit(label, (x - label.get_width() // 2, 408))
            self._bubble(name, x, column - 24)
        status = f"to {self.names[self.chosen]}: {self.typed}_     ({self.layers} layers per frame)"
        self.screen.blit(self.font.render(status, True, GOLD), (20, 456))
        pygame.display.flip()

    def _bubble(self, name: str, x: int, width: int) -> None:
        text = "..." if self.cast.characters[name].mood == "reading" else self.cast.text(name)
        lines = self._wrapped(text, width - 20)
        if lines:
            box = pygame.Rect(x - width // 2, 262 - 22 * len(lines), width, 22 * len(lines) + 12)
            pygame.draw.rect(self.screen, PAPER, box, border_radius=10)
            for k, line in enumerate(lines):
                self.screen.blit(self.font.render(line, True, INK), (box.x + 10, box.y + 8 + 22 * k))

    def _wrapped(self, text: str, width: int) -> list[str]:
        lines: list[str] = []
        for word in text.split():
            longer = f"{lines[-1]} {word}" if lines else word
            if lines and self.font.size(longer)[0] <= width:
                lines[-1] = longer
            else:
                lines.append(word)
        return lines


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
    parser.add_argument("--demo", type=int, default=0, metavar="FRAMES")
    options = parser.parse_args()
    pygame.init()
    with Model.load(options.model) as model:
        cast = Cast(model, TAVERN)
        scene, clock, frames, saved = Scene(cast), pygame.time.Clock(), 0, 0
        for name, line in LINES.items():
            cast.say(name, line)
        running = True
        while running:
            running = all(
                event.type != pygame.QUIT and not scene.handle(event) for event in pygame.event.get()
            )
            cast.frame(scene.layers)
            scene.draw()
            frames += 1
            if options.demo:
                if not saved and len(cast.text("Marta")) > 20:
                    saved = cast.save_and_restore()
                running = running and frames < options.demo and not cast.quiet()
            clock.tick(60)
        if options.demo:
            print_transcript(cast)
            print(f"frames {frames}, saved and restored in mid-sentence: {saved} bytes")
        cast.close()
    pygame.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
