# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The engines of the benchmark as processes, the environments of peers, and what the machine does meanwhile."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dev
from bench_memory import steal_seconds

WORKERS = dev.ROOT / "tools/bench"
PROBE_SOURCES = (WORKERS / "probe.cpp", dev.ROOT / "plugin_host/job_system/superslm_jobs.hpp")


@dataclass(frozen=True)
class PeerSpec:
    """Another engine: its packages of PyPI, its worker, and how to name an interpreter that has it already."""

    name: str
    packages: tuple[str, ...]
    worker: str
    variable: str  # environment variable with the path of an interpreter
    source: str = ""  # package built from source for this machine
    cmake: str = ""


PEERS = {
    "llama.cpp": PeerSpec(
        "llama.cpp",
        ("llama-cpp-python==0.3.36", "numpy"),
        "worker_llama.py",
        "SUPERSLM_PEER_LLAMA_CPP",
        "llama-cpp-python",
        "-DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release",
    ),
    "openvino": PeerSpec(
        "openvino",
        ("openvino-genai==2026.4.1.0", "openvino==2026.4.1", "numpy"),
        "worker_openvino.py",
        "SUPERSLM_PEER_OPENVINO",
    ),
}


def peer_python(peer: PeerSpec) -> Path:
    """The interpreter of a peer's environment in .cache/peers/, made when it is missing. Raises DevError."""
    named = os.environ.get(peer.variable)
    if named:
        if not Path(named).is_file():
            raise dev.DevError(f"{peer.variable} names {named}, which is no interpreter")
        return Path(named)
    folder = dev.CACHE / "peers" / peer.name
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp, wanted = folder / "superslm-packages.txt", "\n".join((*peer.packages, peer.cmake))
    with dev.locked(dev.CACHE / "peers" / f"{peer.name}.lock"):
        if not stamp.is_file() or stamp.read_text() != wanted:
            how = " (built from source, some minutes)" if peer.source else ""
            dev.say(f"{peer.packages[0]} into .cache/peers/{how}")
            dev.quiet(
                [sys.executable, "-m", "venv", "--clear", folder], f"making an environment for {peer.name}"
            )
            install_peer(peer, python)
            stamp.write_text(wanted)
    return python


def install_peer(peer: PeerSpec, python: Path) -> None:
    """Installs a peer with pip. Raises DevError that says what else can be done."""
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", *peer.packages]
    if peer.source:
        command += ["--no-binary", peer.source]
    environment = {**os.environ, **({"CMAKE_ARGS": peer.cmake} if peer.cmake else {})}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise dev.DevError(
            f"pip could not install {' '.join(peer.packages)} for Python {sys.version.split()[0]}:\n{tail}\n"
            f"Install it in an environment of your own, perhaps with another version of Python, and name its "
            f"interpreter in {peer.variable}; or leave --peer {peer.name} out."
        )


def probe_library() -> Path:
    """tools/bench/probe.cpp compiled for this machine; done again when it changes. Raises DevError."""
    target = dev.CACHE / "bench/probe.so"
    with dev.locked(target.with_suffix(".lock")):
        newest = max(path.stat().st_mtime for path in PROBE_SOURCES)
        if not target.is_file() or target.stat().st_mtime < newest:
            command = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++20", "-O3", "-march=native"]
            command += ["-shared", "-fPIC", "-pthread", str(PROBE_SOURCES[0]), "-o", str(target)]
            command += [f"-I{dev.ROOT / 'include'}", f"-I{PROBE_SOURCES[1].parent}"]
            dev.quiet(command, "compiling tools/bench/probe.cpp")
    return target


class Engine:
    """A worker process. Its attributes `about` and `variants` say what it is; `ask` makes it work."""

    def __init__(self, name: str, python: Path | str, script: str, *arguments: object) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile("w+")
        words = [str(python), str(WORKERS / script), *map(str, arguments)]
        paths = [str(dev.ROOT / "python_binding"), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        self.about: dict[str, Any] = self.ask("about")

    def ask(self, verb: str, **arguments: object) -> Any:
        """The worker's answer to a request. Raises DevError with the worker's own words."""
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps({"do": verb, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._errors.seek(0)
            words = "\n".join(self._errors.read().splitlines()[-15:])
            raise dev.DevError(f"{self.name} ended with {self._process.wait()} during {verb!r}:\n{words}")
        result = json.loads(line)
        if "error" in result:
            raise dev.DevError(f"{self.name}, {verb!r}: {result['error']}")
        return result["answer"]

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(name: str) -> Engine:
    """Starts "superslm" or a peer. Raises DevError."""
    if name == "superslm":
        return Engine(name, sys.executable, "worker_superslm.py", probe_library())
    return Engine(name, peer_python(PEERS[name]), PEERS[name].worker)


def requantise(source: Path, target: Path, kind: str) -> None:
    """Writes a GGUF file in one of llama.cpp's types, with its own function."""
    with start("llama.cpp") as llama:
        llama.ask("quantize", source=str(source), target=str(target), kind=kind)


# ---- The machine ----


class Watch:
    """Load average and stolen processor time since it was made."""

    def __init__(self) -> None:
        self._start, self._steal = time.monotonic(), steal_seconds()
        self._load = load_average()

    def read(self) -> dict[str, float]:
        """The larger of both load averages, and the stolen share of one processor's time."""
        passed = max(time.monotonic() - self._start, 1e-9)
        return {
            "load": max(self._load, load_average()),
            "steal": (steal_seconds() - self._steal) / passed,
        }


def load_average() -> float:
    """Of the last minute; 0 where the system has none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def compiler_of(library: Path) -> str:
    """The compilers that made a library, as its file names them."""
    found = re.findall(rb"(?:GCC: \([^)]*\) [\d.]+|clang version [\d.]+)", library.read_bytes())
    return ", ".join(sorted({name.decode().replace("GCC: ", "GCC ") for name in found})) or "unknown"
