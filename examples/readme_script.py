# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
import sys

from superslm import Chat, Model

with Model.load(sys.argv[1]) as model, model.pool() as pool, pool.sequence() as sequence:
    chat = Chat(sequence, system="You keep an old lighthouse. Answer in one sentence.")
    for line in ("Who are you?", "What do you see from up there?"):
        print(f"> {line}")
        for piece in chat.say(line, max_tokens=60):
            print(piece, end="", flush=True)
        print()
