# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""What tools/release.py builds with zig: checked as it checks itself, and run where this machine can run it."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import dev
import pytest
import release
from platform_support import C_SOURCES, Wine, emulated, need, run
from test_golden import SCENE

IMPORT_LIBRARY = r"(lib)?superslm(\.dll)?\.(a|lib)"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the releases that run here."""
    folder = tmp_path_factory.mktemp("dist")
    release.release(["linux-x64", "linux-x64-musl", "linux-arm64", "win-x64"], folder)
    return folder


def installed(dist: Path, name: str) -> Path:
    """The install folder of a target."""
    return next(path for path in dist.glob(f"superslm-*-{name}") if path.is_dir())


@pytest.mark.long
def test_the_release_for_old_glibc_plays_the_scene(dist: Path, smollm2_golden: Path) -> None:
    """From Python, with the artifact whose digest is committed."""
    library = release.library_of(installed(dist, "linux-x64"))
    paths = os.pathsep.join(path for path in sys.path if path)
    env = {**os.environ, "PYTHONPATH": paths, "SUPERSLM_LIBRARY": str(library)}
    command = [sys.executable, "-m", "superslm.cli", "verify", str(smollm2_golden)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0 and "verified: " in done.stdout, done.stdout + done.stderr


@pytest.mark.long
def test_the_release_for_musl_plays_the_scene_in_a_static_program(
    dist: Path, smollm2_golden: Path, tmp_path: Path
) -> None:
    prefix, program = installed(dist, "linux-x64-musl"), tmp_path / "play_scene"
    source = C_SOURCES / "play_scene.c"
    compiler = [
        str(release.zig_program()),
        "cc",
        "-target",
        "x86_64-linux-musl",
        "-static",
        "-std=c99",
        "-O1",
    ]
    archive = prefix / "lib/libsuperslm.a"
    run([*compiler, f"-I{prefix / 'include'}", str(source), str(archive), "-o", str(program)])
    assert "INTERP" not in run(["readelf", "-l", str(program)])
    assert run([str(program), str(smollm2_golden)]).startswith(f"verified {len(SCENE['tokens'])} tokens (")


@pytest.mark.long
def test_the_release_for_windows_plays_the_scene_under_wine(
    dist: Path, smollm2_golden: Path, tmp_path: Path
) -> None:
    prefix, program = installed(dist, "win-x64"), tmp_path / "play_scene.exe"
    library = release.library_of(prefix)
    source = str(C_SOURCES / "play_scene.c")
    compiler = [str(release.zig_program()), "cc", "-target", "x86_64-windows-gnu", "-std=c99", "-O1"]
    (import_library,) = (
        path for path in (prefix / "lib").iterdir() if re.fullmatch(IMPORT_LIBRARY, path.name)
    )
    run([*compiler, f"-I{prefix / 'include'}", source, str(import_library), "-o", str(program)])
    wine = Wine()
    try:
        played = wine.run(program, smollm2_golden, dll=library)
    finally:
        wine.close()
    assert played.startswith(f"verified {len(SCENE['tokens'])} tokens (")


@pytest.mark.long
def test_the_release_for_arm_plays_the_scene_under_qemu(
    dist: Path, smollm2_golden: Path, tmp_path: Path
) -> None:
    prefix, program = installed(dist, "linux-arm64"), tmp_path / "play_scene"
    library = release.library_of(prefix)
    compiler = [need("aarch64-linux-gnu-gcc", "g++-aarch64-linux-gnu"), "-std=c99", "-O1"]
    link = [str(library), f"-Wl,-rpath,{library.parent}", "-o", str(program)]
    run([*compiler, f"-I{prefix / 'include'}", str(C_SOURCES / "play_scene.c"), *link])
    played = emulated("cortex-a76", program, smollm2_golden)
    assert played == f"verified {len(SCENE['tokens'])} tokens (neon_dotprod)\n"


@pytest.mark.long
def test_the_archives_hold_the_headers_and_have_the_listed_digests(dist: Path) -> None:
    for line in (dist / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest
        with tarfile.open(dist / name) as archive:
            names = {path.partition("/")[2] for path in archive.getnames()}
        wanted = {"LICENSE", "include/superslm/sslm_abi.h", "lib/cmake/superslm/superslm-config.cmake"}
        assert wanted | {"lib/pkgconfig/superslm.pc"} <= names
        assert any(re.fullmatch(r"lib/libsuperslm\.so\.1|bin/(lib)?superslm\.dll", path) for path in names)


def test_an_unknown_target_is_named() -> None:
    command = [sys.executable, str(dev.ROOT / "tools/release.py"), "amiga"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no such target: amiga; there are linux-x64, " in done.stderr


def test_a_library_that_exports_too_much_or_needs_too_much_is_refused(tmp_path: Path) -> None:
    source, library = tmp_path / "planted.c", tmp_path / "libsuperslm.so.1"
    source.write_text("#include <math.h>\ndouble sslm_planted(double x) { return pow(x, x); }\n")
    run(["gcc", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"])
    with pytest.raises(dev.DevError) as refused:
        release.check("linux-x64", library)
    for part in ("sslm_model_map is missing", "sslm_planted is not in the headers", "it needs libm.so.6"):
        assert part in str(refused.value)
