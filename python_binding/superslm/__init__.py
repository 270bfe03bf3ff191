# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""SuperSLM runs small language models inside games, with the same bits on every machine."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from superslm._library import SuperslmError, cmake_dir, include_dir, library_path, pkgconfig_dir
from superslm.adapter import Adapter
from superslm.chat import Chat
from superslm.engine import Detokenizer, Model, Workspace
from superslm.selection import Damped, Sampling
from superslm.sequence import PagePool, Prefix, Sequence
from superslm.structured import Schema, Structured

try:
    __version__ = version("superslm")
except PackageNotFoundError:  # a source tree on the path, not installed
    __version__ = "0+source"

__all__ = [
    "Adapter",
    "Chat",
    "Damped",
    "Detokenizer",
    "Model",
    "PagePool",
    "Prefix",
    "Sampling",
    "Schema",
    "Sequence",
    "Structured",
    "SuperslmError",
    "Workspace",
    "__version__",
    "cmake_dir",
    "include_dir",
    "library_path",
    "pkgconfig_dir",
]
