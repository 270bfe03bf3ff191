# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""A shop that understands its customers: free text in, an order the game can act on out.

superslm schema add model.sslm order=examples/order.json -o shop.sslm
python examples/structured.py shop.sslm
"""

import sys

from superslm import Model
from superslm.errors import SchemaNotFound

EXAMPLES = """A shop keeper writes down what each customer wants, as JSON.

Customer: Good morning! I would like two apples, please.
Order:
{"intent":"buy","item":"apple","quantity":2,"polite":true}

Customer: Give me a rope. Now.
Order:
{"intent":"buy","item":"rope","quantity":1,"polite":false}

Customer: Would you take these five wolf pelts off my hands?
Order:
{"intent":"sell","item":"wolf pelt","quantity":5,"polite":true}

Customer: What is that lantern worth?
Order:
{"intent":"ask","item":"lantern","quantity":1,"polite":false}
"""
CUSTOMERS = (
    "Could I please have three loaves of bread?",
    "Twelve arrows, and be quick about it!",
    "I have a silver ring to sell, if you are interested.",
)


def main(path: str) -> None:
    """Serves the customers."""
    with Model.load(path) as model, model.pool(pages=model.pages_for(400) + model.pages_for(200)) as pool:
        # The examples are read once; every order starts from them.
        with pool.prefix(EXAMPLES, budget=400).freeze() as examples, pool.sequence(budget=200) as sequence:
            for text in CUSTOMERS:
                sequence.reset()
                sequence.bind_schema("order")  # before anything goes in
                sequence.adopt(examples)
                order = sequence.generate(f"\nCustomer: {text}\nOrder:\n", schema="order")
                print(text)
                print(f"    {order.value}  ({order.tokens} tokens, {order.forced} of them forced)")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python structured.py shop.sslm")
    try:
        main(sys.argv[1])
    except SchemaNotFound as error:
        sys.exit(
            f"{error}\nAdd the schema first: superslm schema add model.sslm order=examples/order.json -o shop.sslm"
        )
