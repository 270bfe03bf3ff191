# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Outside users find the library: by find_package and pkg-config, from an install that was moved and from a wheel."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import dev
import pytest
from doc_blocks import Block, all_blocks, commands
from platform_support import need

CONSUMER = Path(__file__).resolve().parent / "consumer"


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """Runs a command; fails the test with its output when it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.fail(f"{' '.join(words)}\n{done.stdout}{done.stderr}", pytrace=False)
    return done.stdout


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installed tree that was moved after it was installed."""
    folder = tmp_path_factory.mktemp("install")
    build = dev.build("package").parent.parent
    run(dev.tool("cmake"), "--install", build, "--prefix", folder / "first")
    (folder / "first").rename(folder / "moved")
    return folder / "moved"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    with dev.locked(dev.BUILD / "wheel.lock"):
        build = f"-Cbuild-dir={dev.BUILD / 'wheel'}"
        pip = [sys.executable, "-m", "pip", "wheel", str(dev.ROOT), "--no-deps", "--no-build-isolation"]
        tools = os.pathsep.join([str(Path(dev.tool(name)).parent) for name in ("cmake", "ninja")])
        run(*pip, build, "-w", folder, env={"PATH": os.pathsep.join([tools, os.environ["PATH"]])})
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def installed(wheel: Path) -> Callable[[str], str]:
    """The unpacked wheel as a package: `installed(expression)` evaluates Python with it alone on the path."""
    site = wheel.parent / "site"
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", site, wheel)

    def evaluate(expression: str) -> str:
        code = f"import sys; del sys.path[0]; import superslm; print({expression})"
        env = {"PYTHONPATH": str(site), "SUPERSLM_LIBRARY": ""}
        return run(sys.executable, "-c", code, env=env).strip()

    return evaluate


def build_consumer(cmake_dir: Path, folder: Path) -> None:
    """Configures, builds and runs the CMake consumer."""
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={dev.tool('ninja')}"]
    run(dev.tool("cmake"), "-S", CONSUMER, "-B", folder, *generator, f"-Dsuperslm_DIR={cmake_dir}")
    run(dev.tool("cmake"), "--build", folder)
    for name in ("consumer_shared", "consumer_static"):
        assert run(folder / name).startswith("superslm ")
    needed = run("readelf", "-d", folder / "consumer_static")
    assert "libsuperslm" not in needed and "libstdc++" not in needed


def pkg_config_consumer(folder: Path, pkgconfig_dir: Path, library_dir: Path) -> None:
    """Compiles and runs the consumer with what pkg-config says."""
    need("pkg-config", "pkg-config")
    env = {"PKG_CONFIG_PATH": str(pkgconfig_dir)}
    assert run("pkg-config", "--modversion", "superslm", env=env).startswith("1.")
    flags = run("pkg-config", "--cflags", "--libs", "superslm", env=env).split()
    run("cc", "-std=c99", CONSUMER / "consumer.c", *flags, "-o", folder / "consumer")
    assert run(folder / "consumer", env={"LD_LIBRARY_PATH": str(library_dir)}).startswith("superslm ")
    flags = run("pkg-config", "--cflags", "--libs", "superslm-static", env=env).split()
    run("cc", "-std=c99", CONSUMER / "consumer.c", *flags, "-o", folder / "alone")
    assert run(folder / "alone").startswith("superslm ")


def test_find_package_works_in_a_moved_install(prefix: Path, tmp_path: Path) -> None:
    build_consumer(prefix / "lib/cmake/superslm", tmp_path)


def test_pkg_config_works_in_a_moved_install(prefix: Path, tmp_path: Path) -> None:
    pkg_config_consumer(tmp_path, prefix / "lib/pkgconfig", prefix / "lib")


def test_an_install_names_no_path_of_the_build(prefix: Path) -> None:
    for file in [*prefix.rglob("*.cmake"), *prefix.rglob("*.pc")]:
        text = file.read_text()
        assert str(dev.BUILD) not in text and str(dev.ROOT) not in text and str(prefix.parent) not in text, (
            file
        )


def test_the_wheel_serves_every_python_and_names_the_release(wheel: Path) -> None:
    assert wheel.name.startswith("superslm-1.") and "-py3-none-" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "superslm/include/superslm/sslm_abi.h",
        "superslm/include/superslm/parallel_for.h",
        "superslm/include/superslm/api.h",
        "superslm/include/superslm/sslm_ext.h",
        "superslm/lib/libsuperslm.so.1",
        "superslm/lib/cmake/superslm/superslm-config.cmake",
        "superslm/lib/pkgconfig/superslm.pc",
        "superslm/lib/pkgconfig/superslm-static.pc",
        "superslm/py.typed",
    ):
        assert wanted in names, wanted
    assert len([name for name in names if "libsuperslm.so" in name]) == 1


def test_find_package_works_from_the_wheel(installed: Callable[[str], str], tmp_path: Path) -> None:
    build_consumer(Path(installed("superslm.cmake_dir()")), tmp_path)


def test_pkg_config_works_from_the_wheel(installed: Callable[[str], str], tmp_path: Path) -> None:
    library = Path(installed("superslm.library_path()"))
    assert (Path(installed("superslm.include_dir()")) / "superslm/sslm_abi.h").is_file()
    pkg_config_consumer(tmp_path, Path(installed("superslm.pkgconfig_dir()")), library.parent)
    assert run(tmp_path / "consumer").startswith("superslm ")  # it knows where the wheel's library lies


def test_the_wheel_finds_its_own_library(installed: Callable[[str], str]) -> None:
    assert installed("superslm.library_path()").endswith("superslm/lib/libsuperslm.so.1")
    assert installed("__import__('superslm._library')._library.library().sslm_ext_version()") == "1"


COMPILES = [b for b in all_blocks() if b.kind == "sh" and any(words[0] == "cc" for words in commands(b.text))]


@pytest.mark.parametrize("block", COMPILES, ids=lambda block: block.place)
def test_the_pages_compile_hosts_against_the_wheel(
    block: Block, installed: Callable[[str], str], smollm2_golden: Path, tmp_path: Path
) -> None:
    """The lines as they stand, in a folder that has the model, the sources they name and nothing else."""
    if "pkg-config" in block.text:
        need("pkg-config", "pkg-config")
    package = Path(installed("superslm.__file__")).parent
    (tmp_path / "host.c").write_text((dev.ROOT / "examples/readme_host.c").read_text())
    (tmp_path / "game.c").write_text((CONSUMER / "consumer.c").read_text())
    (tmp_path / "examples").symlink_to(dev.ROOT / "examples")
    for name in ("model.sslm", "smollm2.sslm"):
        (tmp_path / name).symlink_to(smollm2_golden)
    env = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(package.parent),
        "PKG_CONFIG_PATH": str(package / "lib/pkgconfig"),
        "SUPERSLM_LIBRARY": "",
    }
    run("bash", "-euc", f"cd {shlex.quote(str(tmp_path))}\n{block.text}\n", env=env)


@pytest.mark.parametrize(
    ("compiler", "version", "refused"),
    [
        ("GNU", "9.5.0", True),
        ("GNU", "10.1.0", False),
        ("Clang", "10.0.1", True),
        ("Clang", "11.0.0", False),
        ("AppleClang", "9.0.0", False),
    ],
)
def test_a_compiler_that_is_too_old_is_refused_by_its_version(
    compiler: str, version: str, refused: bool
) -> None:
    named = {"": "/usr/bin/c++", "_ID": compiler, "_VERSION": version}
    defined = [f"-DCMAKE_CXX_COMPILER{end}={value}" for end, value in named.items()]
    command = [dev.tool("cmake"), *defined, "-P", dev.ROOT / "cmake/SuperslmCompiler.cmake"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = " ".join(done.stderr.split())
    assert (done.returncode != 0) == refused, said
    assert not refused or f"/usr/bin/c++ is {compiler} {version}, which is too old" in said
    assert not refused or "GCC 10, Clang 11 or newer" in said


def test_a_clone_without_tags_is_the_release_being_built(tmp_path: Path) -> None:
    run("git", "clone", "--quiet", "--no-tags", "--depth", "1", f"file://{dev.ROOT}", tmp_path / "clone")
    command = [sys.executable, "-m", "setuptools_scm"]
    done = subprocess.run(command, cwd=tmp_path / "clone", capture_output=True, text=True, check=False)
    assert done.stdout.startswith("1.12.0.dev"), done.stdout + done.stderr
