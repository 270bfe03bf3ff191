# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Runs a WASI program in wasmtime: python wasi_run.py PROGRAM.wasm ARGUMENT...

The program sees the folders of the files among its arguments, and SSLM_FORCE_TIER. A trap ends with code 134, as an
abort does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import wasmtime


def run(program: str, *arguments: str) -> int:
    """Runs a program with this process's output streams and returns its exit code."""
    config = wasmtime.Config()
    config.cache = True
    engine = wasmtime.Engine(config)
    store = wasmtime.Store(engine)
    wasi = wasmtime.WasiConfig()
    wasi.argv = [program, *arguments]
    wasi.env = [(name, value) for name, value in os.environ.items() if name == "SSLM_FORCE_TIER"]
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    for folder in sorted({str(Path(word).parent) for word in arguments if Path(word).is_file()}):
        wasi.preopen_dir(folder, folder)
    store.set_wasi(wasi)
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    instance = linker.instantiate(store, wasmtime.Module.from_file(engine, program))
    try:
        instance.exports(store)["_start"](store)
    except wasmtime.ExitTrap as done:
        return done.code
    except wasmtime.Trap as trap:
        print(trap.message, file=sys.stderr)
        return 134
    return 0


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
