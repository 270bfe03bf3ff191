# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""What the tests share: the library, converted models, compiled test programs, and the rule for skips."""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import json
import lzma
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dev
import pytest
from cell_programs import compile_preload

TESTS = Path(__file__).resolve().parent
ALLOWED_SKIPS = TESTS / "allowed_skips.txt"
CONVERTER_SOURCES = (
    "python_binding/superslm/convert",
    "python_binding/superslm/artifact.py",
    "tools/make_checkpoint.py",
)


@pytest.fixture(scope="session")
def library_path() -> Path:
    """The release library: $SUPERSLM_LIBRARY, or built now."""
    named = os.environ.get("SUPERSLM_LIBRARY")
    path = Path(named) if named else dev.build("release")
    os.environ["SUPERSLM_LIBRARY"] = str(path)  # superslm.library_path() finds the same one
    return path


@pytest.fixture(scope="session")
def test_library_path() -> Path:
    """The library with `sslm_test_*` seams: $SUPERSLM_TEST_LIBRARY, or built now."""
    named = os.environ.get("SUPERSLM_TEST_LIBRARY")
    return Path(named) if named else dev.build("seams")


@pytest.fixture(scope="session")
def library_variants(library_path: Path) -> dict[str, Path]:
    """Release libraries by compiler and optimisation: gcc, clang, gcc-O0, clang-O0, as far as installed."""
    return {name: dev.build(name) for name in ("gcc", "clang", "gcc-O0", "clang-O0") if dev.available(name)}


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct; downloaded once, and an error when it cannot be had."""
    return dev.smollm2_gguf()


@pytest.fixture(scope="session")
def smollm2_artifact(library_path: Path) -> Path:
    """SmolLM2 converted by this tree's converter."""
    return dev.smollm2_artifact()


@pytest.fixture(scope="session")
def smollm2_golden(library_path: Path, smollm2_gguf: Path) -> Path:
    """SmolLM2 converted from the committed calibration record: the artifact that digests in tests refer to."""
    from superslm.cli import main

    digest = dev.sources_digest(*CONVERTER_SOURCES)
    path = dev.CACHE / f"smollm2-from-record-{digest}" / "smollm2.sslm"
    with dev.locked(dev.CACHE / "smollm2-from-record.lock"):
        if not path.is_file():
            for old in dev.CACHE.glob("smollm2-from-record-*/"):
                shutil.rmtree(old)
            path.parent.mkdir()
            record = TESTS / "golden/smollm2_record.json.xz"
            assert (
                main(["convert", str(smollm2_gguf), "-o", str(path), "--calibration-record", str(record)])
                == 0
            )
    return path


@pytest.fixture(scope="session")
def smollm2_of_record(smollm2_gguf: Path) -> Callable[[str], Path]:
    """`smollm2_of_record("w8")`: the tensors that the committed calibration record makes, without the rest."""
    from superslm.convert.quantize import quantize
    from superslm.convert.source_gguf import load_gguf
    from superslm.convert.writer import write_artifact

    code = dev.sources_digest("python_binding/superslm/convert", "python_binding/superslm/artifact.py")

    def make(weights: str) -> Path:
        path = dev.CACHE / f"golden-smollm2-{weights}-{code}.sslm"
        with dev.locked(path.with_suffix(".lock")):
            if not path.is_file():
                for old in dev.CACHE.glob(f"golden-smollm2-{weights}-*"):
                    if code not in old.name:
                        old.unlink()
                record = json.loads(lzma.decompress((TESTS / "golden/smollm2_record.json.xz").read_bytes()))
                write_artifact(quantize(load_gguf(smollm2_gguf), record, weights=weights), path)
        return path

    return make


@pytest.fixture(scope="session")
def fixture_artifact() -> Callable[..., Path]:
    """`fixture_artifact(name, weights="w8")`: path of a random model's artifact, see tools/make_checkpoint.py."""
    from make_checkpoint import make_quantized
    from superslm.convert.writer import write_artifact

    digest = dev.sources_digest(*CONVERTER_SOURCES)

    def make(name: str, weights: str = "w8") -> Path:
        path = dev.CACHE / "fixtures" / f"{name}-{weights}-{digest}.sslm"
        with dev.locked(path.with_suffix(".lock")):
            if not path.is_file():
                for old in path.parent.glob(f"{name}-{weights}-*.*"):
                    if digest not in old.name:
                        old.unlink()
                write_artifact(make_quantized(name, weights), path)
        return path

    return make


@pytest.fixture(scope="session")
def forced_tier() -> Callable[[Path, str], dict[str, str]]:
    """`forced_tier(library, tier)`: the environment in which a library with seams runs that tier and no other.

    Skips where the processor lacks the tier: dispatch aborts there.
    """
    ask = (
        "import ctypes, sys; f = ctypes.CDLL(sys.argv[1]).sslm_ext_kernel_tier; f.restype = ctypes.c_char_p; "
    )
    ask += "print(f().decode())"

    @functools.cache
    def force(library: Path, tier: str) -> dict[str, str]:
        environment = {"SSLM_FORCE_TIER": tier}
        command = [sys.executable, "-c", ask, str(library)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
        )
        if done.returncode == -signal.SIGABRT:
            pytest.skip(f"this processor does not have {tier}")
        assert (done.returncode, done.stdout.strip()) == (0, tier), done.stderr
        return environment

    return force


@pytest.fixture
def recorded(library_path: Path, fixture_artifact: Callable[..., Path], tmp_path: Path) -> Path:
    """A small artifact with a golden record."""
    from superslm import Model
    from superslm.convert.writer import set_golden_record
    from superslm.golden import default_prompt, record

    path = tmp_path / "recorded.sslm"
    path.write_bytes(fixture_artifact("deep").read_bytes())
    with Model.load(path) as model:
        golden = record(model, default_prompt(model))
    set_golden_record(path, golden)
    return path


@pytest.fixture(scope="session")
def c_program(tmp_path_factory: pytest.TempPathFactory, test_library_path: Path) -> Callable[..., Path]:
    """Compiles tests/c/NAME.c or .cpp and returns the program.

    `c_program(name, *flags, library=None, compiler=None)`: it links the library with the test seams unless told
    otherwise; a .cpp program also sees the headers of c_abi/. With SUPERSLM_SANITIZE set, the flags follow.
    """
    folder = tmp_path_factory.mktemp("programs")

    def compile_program(
        name: str, *flags: str, library: Path | None = None, compiler: str | None = None
    ) -> Path:
        library = library or test_library_path
        source = next(
            TESTS / "c" / f"{name}{end}" for end in (".c", ".cpp") if (TESTS / "c" / f"{name}{end}").is_file()
        )
        key = hashlib.sha256(repr((name, flags, library, compiler)).encode()).hexdigest()[:8]
        program = folder / f"{name}-{key}"
        if not program.is_file():
            is_c = source.suffix == ".c"
            driver = shlex.split(
                compiler or os.environ.get("CC" if is_c else "CXX") or ("cc" if is_c else "c++")
            )
            includes = [f"-I{dev.ROOT / 'include'}", f"-I{TESTS / 'c'}"]
            language = ["-std=c11"] if is_c else ["-std=c++20", f"-I{dev.ROOT / 'c_abi'}"]
            sanitize = os.environ.get("SUPERSLM_SANITIZE")
            extra = [f"-fsanitize={sanitize}", "-fno-sanitize-recover=all"] if sanitize else []
            link = [str(library), f"-Wl,-rpath,{library.parent}", "-pthread"]
            command = [*driver, *language, "-g", "-O1", "-Wall", "-Wextra", *includes, *extra, *flags]
            command += [str(source), "-o", str(program), *link]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.fail(f"{shlex.join(command)}\n{done.stderr}", pytrace=False)
        return program

    return compile_program


@pytest.fixture(scope="session")
def preload(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment that counts every heap allocation of the program."""
    return {"LD_PRELOAD": str(compile_preload(tmp_path_factory.mktemp("preload")))}


# ---- A test that skips says so on a committed list, or it fails ----


def _allowed(nodeid: str) -> bool:
    lines = [line.partition("#")[0].strip() for line in ALLOWED_SKIPS.read_text().splitlines()]
    return any(fnmatch.fnmatchcase(nodeid, pattern) for pattern in lines if pattern)


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and not _allowed(report.nodeid):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} is not on {ALLOWED_SKIPS.name} but skipped: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # noqa: ANN201
    """Turns a skip that is not on the list into a failure."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):  # noqa: ANN201
    """The same for a module that skips itself."""
    report = yield
    _refuse_skip(report)
    return report
