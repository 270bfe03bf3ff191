# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""What every object over the C ABI needs: handles that are given back once, buffers, arrays as arguments."""

from __future__ import annotations

import ctypes
import mmap
import operator
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from superslm import _abi
from superslm._library import SuperslmError, check

Tokens = Sequence[int] | np.ndarray

# Before Python 3.13 a mapping keeps a file descriptor of its own.
_UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) and os.name == "posix" else {}


def address_of(array: np.ndarray) -> int:
    """Where the elements of an array begin."""
    return int(array.ctypes.data)


def mapped_file(path: str | os.PathLike[str], verb: str) -> np.ndarray:
    """The bytes of a file, uint8 and mapped read-only; refuses an empty file in the name of `verb`."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            check(_abi.Status.SSLM_ARTIFACT_REJECTED, verb, f"{path}: the file is empty")
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, **_UNTRACKED), np.uint8)


def token_ids(tokens: Tokens) -> np.ndarray:
    """`tokens` as contiguous int32; refuses anything that would change by the conversion."""
    array = np.asarray(tokens)
    if array.size == 0:
        return np.zeros(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(
            f"token ids must be a flat list of integers, not {array.dtype} of shape {array.shape}"
        )
    if array.min() < -(1 << 31) or array.max() >= 1 << 31:
        raise ValueError("token ids must fit 32 bits")
    return np.ascontiguousarray(array, np.int32)


def int32(number: int, name: str) -> int:
    """`number` as an argument of a verb; refuses what 32 bits would change. Raises TypeError for a fraction."""
    value = operator.index(number)
    if not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"{name} must fit 32 bits, not {value}")
    return value


def int32_pointer(array: np.ndarray) -> Any:
    """An int32 array as an argument of a verb."""
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))


class Buffer:
    """Page-aligned memory lent to the library; the pages appear when they are first written."""

    def __init__(self, size: int) -> None:
        self._map = mmap.mmap(-1, max(size, 1))
        self.size = size
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))


class Handle:
    """A library handle that is given back exactly once."""

    def __init__(
        self,
        handle: Any,
        release: Callable[[Any], int],
        verb: str,
        keep: Iterable[Any] = (),
        remedy: str = "",
    ) -> None:
        """Takes over a handle.

        Args:
            handle: what a verb gave.
            release: gives it back.
            verb: the name of `release`.
            keep: objects that must outlive the handle.
            remedy: what to do when the verb refuses.
        """
        self._value = handle
        self._verb = verb
        self._remedy = remedy
        self._release = release
        self._keep = tuple(keep)
        self._finalizer = weakref.finalize(self, Handle._drop, release, handle, self._keep)

    @staticmethod
    def _drop(release: Callable[[Any], int], handle: Any, keep: tuple[Any, ...]) -> None:
        release(handle)

    @property
    def value(self) -> Any:
        """The handle. Raises ValueError when it has been given back."""
        if self._value is None:
            raise ValueError("this object has been closed")
        return self._value

    def close(self) -> None:
        """Gives the handle back; the verb may refuse while others depend on it."""
        if self._value is None:
            return
        check(self._release(self._value), self._verb, self._remedy)
        self._finalizer.detach()
        self._value = None
        self._keep = ()


class Closable:
    """`close()` and `with` for an object that owns one handle."""

    _handle: Handle

    def close(self) -> None:
        """Releases the object; closing twice does nothing."""
        self._handle.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except SuperslmError as refusal:
            if error is None:
                raise
            if hasattr(error, "add_note"):  # the error that ended the block is the one to see
                error.add_note(f"and it could not be closed: {refusal}")
