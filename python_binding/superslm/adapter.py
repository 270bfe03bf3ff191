# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""LoRA adapters: a character's own small change of a shared model."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from superslm import _abi
from superslm._handles import Closable, Handle, address_of, mapped_file
from superslm._library import check

if TYPE_CHECKING:
    from superslm.engine import Model


class Adapter(Closable):
    """A mapped adapter of one model, shared by any number of its sequences; see `Sequence.set_adapter`."""

    def __init__(self, model: Model, data: np.ndarray, name: str = "<bytes>") -> None:
        self.model, self.name = model, name
        lib, handle = model._lib, _abi.sslm_adapter()
        status = lib.sslm_adapter_map(address_of(data), data.size, model._handle.value, ctypes.byref(handle))
        if status != 0:
            check(status, "sslm_adapter_map", f"{name}: {_why_refused(model, data)}")
        self._handle = Handle(
            handle,
            lib.sslm_adapter_release,
            "sslm_adapter_release",
            (data, model),
            "close the sequences it is bound to, or bind another adapter or None to them, first",
        )

    @classmethod
    def load(cls, model: Model, path: str | os.PathLike[str]) -> Adapter:
        """Maps the file at `path` read-only.

        Raises:
            ArtifactRejected: the file is no intact adapter; the message says why.
            AdapterModelMismatch: it was made for another base.
            OSError: it cannot be read.
        """
        return cls(model, mapped_file(path, "sslm_adapter_map"), str(path))

    @property
    def residency(self) -> int:
        """Bytes of the mapped file."""
        return int(self.model._lib.sslm_adapter_residency(self._handle.value))


def _why_refused(model: Model, data: np.ndarray) -> str:
    message = ctypes.create_string_buffer(256)
    n: Any = ctypes.c_size_t(len(message))
    model._lib.sslm_ext_adapter_check(
        model._handle.value, address_of(data), data.size, message, ctypes.byref(n)
    )
    return message.value.decode("utf-8", "replace")
