# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""SuperSLM runs small language models inside games, with the same bits on every machine."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from superslm._library import SuperslmError, cmake_dir, include_dir, library_path
from superslm.chat import Chat
from superslm.engine import Detokenizer, Model, Workspace
from superslm.sequence import PagePool, Prefix, Sequence

try:
    __version__ = version("superslm")
except PackageNotFoundError:  # a source tree on the path, not installed
    __version__ = "0+source"

__all__ = [
    "Chat",
    "Detokenizer",
    "Model",
    "PagePool",
    "Prefix",
    "Sequence",
    "SuperslmError",
    "Workspace",
    "__version__",
    "cmake_dir",
    "include_dir",
    "library_path",
]
