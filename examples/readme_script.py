# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
import sys

from superslm import Chat, Damped, Model

path = sys.argv[1] if len(sys.argv) == 2 else sys.exit("usage: readme_script.py MODEL.sslm")
with Model.load(path) as model, model.pool() as pool, pool.sequence() as sequence:
    chat = Chat(sequence, system="You are Bram, who guards a bridge. Answer in one sentence.")
    for line in ("Who are you?", "May I pass?"):
        print(f"> {line}")
        for piece in chat.say(line, max_tokens=80, selection=Damped()):
            print(piece, end="", flush=True)
        print()
