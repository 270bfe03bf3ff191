# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The exceptions of refused calls: one class per status of the C ABI, all of them `SuperslmError`.

>>> from superslm import errors
>>> errors.ContextCapExceeded.status.name
'SSLM_CONTEXT_CAP_EXCEEDED'
>>> issubclass(errors.ContextCapExceeded, errors.SuperslmError)
True
"""

from __future__ import annotations

from superslm._library import ERRORS, LibraryMismatch, SuperslmError

globals().update({error.__name__: error for error in ERRORS.values()})

__all__ = ["LibraryMismatch", "SuperslmError", *sorted(error.__name__ for error in ERRORS.values())]  # noqa: PLE0604
