# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""What a game does with a model: two characters in one world, replies in one batch, a saved game.

python quickstart.py model.sslm
"""

import sys

from superslm import Damped, Model

WORLD = """The village of Saltreach lies where the river Ash meets the sea. Its people are fishermen, rope makers
and one blacksmith, and nobody there has much to do with the castle on the hill. In spring the river is high
and brown, and the ferry takes twice as long to cross it. In autumn the herring come, the smokehouses burn day
and night, and every child is sent to help on the quay. There is a bell on the old lighthouse that is rung
when a boat is overdue, and there is a song that is sung when it comes home. Strangers are welcome as long as
they pay for their beds and keep their hands off the nets. Last night a storm took the bridge, the mill wheel
and two boats. This morning the whole village stands on the bank and looks at the water."""


def show(title: str, text: str) -> None:
    """Prints a title and what belongs to it."""
    print(f"{title}\n    {text.strip()}\n")


def main(path: str) -> None:
    """Runs the scene."""
    with Model.load(path) as model:
        info = model.info
        print(f"{info.layers} layers, up to {info.cap} positions, {model.kernel_tier} kernels\n")

        # K/V memory in pages. A budget is how many positions a character may add to what it shares.
        world_budget, budget, reply = 300, 120, 40
        pages = model.pages_for(world_budget) + 3 * model.pages_for(budget)
        with (
            model.pool(pages=pages) as pool,
            pool.prefix(WORLD, budget=world_budget).freeze() as world,  # read once, shared by all
            pool.sequence(budget=budget) as smith,
            pool.sequence(budget=budget) as child,
        ):
            cast = {"The blacksmith said:": smith, "The youngest child said:": child}
            for line, character in cast.items():
                character.adopt(world)
                character.prefill("\n" + line)

            # One batch: both replies grow together, and the weights are read once per step. Damped: without loops.
            streams = {line: model.detokenizer() for line in cast}
            spoken = dict.fromkeys(cast, "")
            for _ in range(reply):
                tokens = model.decode(list(cast.values()), selection=Damped())
                for line, token in zip(cast, tokens, strict=True):
                    spoken[line] += streams[line].push([token])
            for line, text in spoken.items():
                show(line, text)

            # A saved game: the restored character goes on exactly like the one that never stopped.
            # A character that the last token left unfinished waits in the state of the text.
            saved, state = smith.save(), streams["The blacksmith said:"].state
            with pool.restore(saved, world) as again:
                text = again.generate(max_tokens=20, selection=Damped(), text=model.detokenizer(state))
                show("The blacksmith goes on:", "".join(text))
                shared = again.stats().shared_pages
            pages = "one page" if shared == 1 else f"{shared} pages"
            print(f"The save has {len(saved)} bytes; restored, it shares {pages} with the world.")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python quickstart.py model.sslm")
    main(sys.argv[1])
