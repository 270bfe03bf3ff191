# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors

"""The numerics of docs/numerics.md in plain NumPy integers: the independent oracle of the tests.

Each function names its section; nothing here is shared with the engine. Start from `ReferenceModel`.
"""

from superslm.convert.quantized import TARGETS, Adapter, LowRank

from .layer import DIAGNOSTICS, SITES
from .model import MID_TOKEN, ReferenceModel, ReferenceSequence
from .sampling import (
    DEAD_END,
    INV_T_ONE,
    Sampling,
    greedy,
    inverse_temperature,
    log_probabilities,
    sample,
)

__all__ = [
    "DEAD_END",
    "DIAGNOSTICS",
    "INV_T_ONE",
    "MID_TOKEN",
    "SITES",
    "TARGETS",
    "Adapter",
    "LowRank",
    "ReferenceModel",
    "ReferenceSequence",
    "Sampling",
    "greedy",
    "inverse_temperature",
    "log_probabilities",
    "sample",
]
