# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The bugs that tools/mutants.py plants, and the test that must notice each."""

from planted.arithmetic import ARITHMETIC
from planted.memory import MEMORY
from planted.mutant import Mutant
from planted.text import TEXT
from planted.verbs import VERBS

MUTANTS = (*VERBS, *MEMORY, *ARITHMETIC, *TEXT)

__all__ = ["MUTANTS", "Mutant"]
