# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Finds and loads the shared library, and turns statuses into exceptions."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path

from superslm import _abi

_PACKAGE = Path(__file__).resolve().parent
_SOURCE_TREE = _PACKAGE.parent.parent


def _file_names() -> tuple[str, ...]:
    """Names of the shared library relative to an install prefix, per platform."""
    if sys.platform == "win32":
        return ("bin/superslm.dll", "bin/libsuperslm.dll")
    if sys.platform == "darwin":
        return ("lib/libsuperslm.1.dylib",)
    return ("lib/libsuperslm.so.1",)


def library_path() -> Path:
    """Path of the shared library: $SUPERSLM_LIBRARY, else the installed one, else a source tree's build.

    Raises:
        FileNotFoundError: there is no library at any of these places.
    """
    named = os.environ.get("SUPERSLM_LIBRARY")
    if named:
        candidates = [Path(named)]
    else:
        candidates = [_PACKAGE / name for name in _file_names()]
        candidates += [_SOURCE_TREE / "build/release/c_abi" / Path(name).name for name in _file_names()]
    for candidate in candidates:
        if candidate.is_file():
            return candidate.resolve()
    places = "\n  ".join(str(candidate) for candidate in candidates)
    raise FileNotFoundError(
        f"the SuperSLM library was not found; looked for\n  {places}\n"
        "Install the package with `pip install superslm`, run `python3 tools/dev.py build` in a source tree, "
        "or set SUPERSLM_LIBRARY to the library's path."
    )


def include_dir() -> Path:
    """Directory that holds `superslm/sslm_abi.h`, for a compiler's -I."""
    installed = _PACKAGE / "include"
    return installed if installed.is_dir() else _SOURCE_TREE / "include"


def cmake_dir() -> Path:
    """Directory of the CMake package, for `-Dsuperslm_DIR=...`.

    Raises:
        FileNotFoundError: the package runs from a source tree, which has none.
    """
    return _installed_dir("lib/cmake/superslm", "the CMake files")


def pkgconfig_dir() -> Path:
    """Directory of the pkg-config files, for PKG_CONFIG_PATH.

    Raises:
        FileNotFoundError: the package runs from a source tree, which has none.
    """
    return _installed_dir("lib/pkgconfig", "the pkg-config files")


def _installed_dir(name: str, files: str) -> Path:
    path = _PACKAGE / name
    if not path.is_dir():
        raise FileNotFoundError(f"{path} does not exist: only the installed package holds {files}")
    return path


class LibraryMismatch(RuntimeError):
    """The library that was found does not belong to this package."""

    __module__ = "superslm.errors"


@cache
def library(path: str | None = None) -> ctypes.CDLL:
    """Loads the shared library (`library_path()` when `path` is None) and declares every function's types.

    Raises:
        FileNotFoundError: no library was found.
        LibraryMismatch: the library is of another release than this package.
    """
    loaded = ctypes.CDLL(path or str(library_path()))
    for name, (result, arguments) in {**_abi.VERBS, **_abi.EXTENSIONS}.items():
        function = getattr(loaded, name, None)
        if function is None:
            raise LibraryMismatch(
                f"{loaded._name} has no {name}: it is another release's library; use the one that came with "
                "the package (in a source tree: `python3 tools/dev.py build`), or unset SUPERSLM_LIBRARY"
            )
        function.restype = result
        function.argtypes = arguments
    version = loaded.sslm_ext_version()
    if version != _abi.SSLM_EXT_VERSION:
        raise LibraryMismatch(
            f"{loaded._name} has draft extensions of version {version}, this package needs version "
            f"{_abi.SSLM_EXT_VERSION}: use the library that came with the package, or unset SUPERSLM_LIBRARY"
        )
    return loaded


class SuperslmError(Exception):
    """A verb refused: `status` says why, `verb` names the function.

    `consumed` counts the tokens that a prefill admitted before it stopped.
    """

    __module__ = "superslm.errors"  # where callers find it
    status: _abi.Status

    def __init__(self, verb: str, detail: str = "", *, consumed: int = 0) -> None:
        """Makes the message of the verb, the status and a detail that names the argument."""
        self.verb = verb
        self.consumed = consumed
        super().__init__(f"{verb}: {self.status.name}" + (f": {detail}" if detail else ""))


def _error(status: _abi.Status) -> type[SuperslmError]:
    """The exception class of a status, named after it: SSLM_BUFFER_TOO_SMALL gives BufferTooSmall."""
    name = status.name.removeprefix("SSLM_").title().replace("_", "")
    members = {"status": status, "__doc__": f"`{status.name}`.", "__module__": SuperslmError.__module__}
    return type(name, (SuperslmError,), members)


ERRORS: dict[int, type[SuperslmError]] = {
    status: _error(status) for status in _abi.Status if status is not _abi.Status.SSLM_OK
}


def check(status: int, verb: str, detail: str = "", *, consumed: int = 0) -> None:
    """Raises the exception of `status` unless it is OK.

    Args:
        status: what the verb returned.
        verb: the verb's name, for the message.
        detail: which argument was refused and what to do.
        consumed: tokens that a prefill admitted before it stopped.

    Raises:
        SuperslmError: the subclass named after the status, such as `ArtifactRejected`.
    """
    if status != _abi.Status.SSLM_OK:
        raise ERRORS[status](verb, detail, consumed=consumed)
