# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Every host of plugin_host/ plays its scene without a display and says what the Python package says, bit for bit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dev
import pytest
from hosts_support import HOSTS, PYTHON_ENV, Library, need, run, saved_bytes
from limits import HANG

pytestmark = pytest.mark.hosts
Check = Callable[[str], None]
PNG = b"\x89PNG\r\n\x1a\n"
# A scene ends when everyone has spoken; how many frames that takes is up to the machine.
ALL_FRAMES = "1000000"


# ---- C++ with a job system ----


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_a_frame_loop_with_a_job_system_speaks_and_survives_a_save(
    workers: int, built: Callable[[str], Path], smollm2_golden: Path, says_the_same: Check, tmp_path: Path
) -> None:
    picture = tmp_path / "histogram.png"
    options = ["--workers", str(workers), "--frames", ALL_FRAMES, "--png", str(picture), "--ids"]
    options += ["--budget", "4"]
    output = run(built("job_system") / "frame_host", smollm2_golden, *options)
    says_the_same(output)
    assert saved_bytes(output) > 100_000 and "worst" in output and output.count(" ms ") > 20
    assert picture.read_bytes().startswith(PNG) and picture.stat().st_size < 200_000


@pytest.mark.parametrize("checker", ["thread", "address,undefined"])
def test_the_reference_hooks_run_every_task_once(checker: str, tmp_path: Path) -> None:
    program = tmp_path / "stress"
    flags = ["-std=c++20", "-g", "-O1", f"-fsanitize={checker}", "-Wall", "-Wextra", "-Werror", "-pthread"]
    includes = [f"-I{dev.ROOT / 'include'}", f"-I{HOSTS}"]
    source = Path(__file__).with_name("jobs_stress.cpp")
    run(os.environ.get("CXX") or "c++", *flags, *includes, source, "-o", program)
    assert "every task once" in run(program)


# ---- LÖVE ----


def test_love_plays_the_tavern_without_a_window(
    library: Library, smollm2_golden: Path, says_the_same: Check
) -> None:
    env = {**library.env, "TAVERN_HEADLESS": "1"}
    output = run(need("love", "love"), HOSTS / "love", smollm2_golden, env=env)
    says_the_same(output)
    assert "saved at frame" in output and "self-check: verified" in output


def test_love_draws_the_tavern(library_path: Path, smollm2_golden: Path, tmp_path: Path) -> None:
    picture = tmp_path / "tavern.png"
    env = {
        "SUPERSLM_LIBRARY": str(library_path),
        "TAVERN_SCREENSHOT": str(picture),
        "SDL_VIDEODRIVER": "offscreen",
    }
    run(need("love", "love"), HOSTS / "love", smollm2_golden, env=env)
    assert picture.read_bytes().startswith(PNG) and picture.stat().st_size > 10_000


# ---- C# ----


@pytest.fixture(scope="module")
def csharp_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C# host, compiled once."""
    program = tmp_path_factory.mktemp("unity") / "HeadlessTest.exe"
    run(need("mcs", "mono-mcs"), "-warnaserror+", f"-out:{program}", *sorted((HOSTS / "unity").glob("*.cs")))
    return program


@pytest.mark.parametrize(
    "runtime, package",
    [("mono", "mono-runtime"), ("mono-boehm", "mono-runtime-boehm")],
    ids=["sgen", "boehm"],
)
def test_mono_plays_the_tavern(
    runtime: str,
    package: str,
    csharp_program: Path,
    library: Library,
    smollm2_golden: Path,
    says_the_same: Check,
) -> None:
    env = {**library.env, "LD_LIBRARY_PATH": str(library.folder)}
    output = run(need(runtime, package), csharp_program, smollm2_golden, env=env)
    says_the_same(output)
    assert saved_bytes(output) > 100_000 and "self-check: verified" in output
    assert (
        "refused: sslm_model_map: SSLM_ARTIFACT_REJECTED" in output
        and "abandoned objects were released" in output
    )


# ---- Godot ----


@pytest.fixture
def godot3_project(built: Callable[[str], Path], tmp_path: Path) -> Path:
    """The project of the Godot 3 plugin, with the plugin in it."""
    project = tmp_path / "project"
    shutil.copytree(HOSTS / "godot/gdnative/project", project)
    shutil.copy(built("godot") / "libsuperslm_godot3.so", project)
    return project


def godot3(project: Path, model: Path) -> str:
    """Runs the project's test in the headless engine."""
    env = {"HOME": str(project.parent), "LC_ALL": "C.UTF-8", "SUPERSLM_MODEL": str(model)}
    return run(need("godot3-server", "godot3-server"), "--path", project, "-s", "test.gd", env=env)


def test_godot_3_plays_the_tavern(godot3_project: Path, smollm2_golden: Path, says_the_same: Check) -> None:
    output = godot3(godot3_project, smollm2_golden)
    says_the_same(output)
    assert saved_bytes(output) > 100_000 and "refused: cannot read" in output


def test_godot_3_stops_at_once_without_the_plugin(godot3_project: Path, smollm2_golden: Path) -> None:
    (godot3_project / "libsuperslm_godot3.so").unlink()
    command = [need("godot3-server", "godot3-server"), "--path", godot3_project, "-s", "test.gd"]
    env = {**os.environ, "HOME": str(godot3_project.parent), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 1 and "the plugin cannot be loaded" in done.stdout + done.stderr
    assert len(done.stdout + done.stderr) < 4000


def test_the_godot_4_plugin_serves_a_stand_in_host(
    built: Callable[[str], Path], smollm2_golden: Path, says_the_same: Check
) -> None:
    folder = built("godot")
    output = run(folder / "fake_host", folder / "libsuperslm_godot4.so", smollm2_golden)
    says_the_same(output)
    assert saved_bytes(output) > 100_000 and "nothing left behind" in output


# ---- Python engines, Node ----


def need_module(name: str) -> None:
    """The same as `need` for a Python package."""
    if (
        subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, check=False).returncode
        != 0
    ):
        why = f"Python package {name} was not found: `python tools/dev.py test --hosts` installs it"
        pytest.fail(why, pytrace=False) if dev.STRICT else pytest.skip(why)


def test_pygame_plays_the_tavern(library: Library, smollm2_golden: Path, says_the_same: Check) -> None:
    need_module("pygame")
    env = {**PYTHON_ENV, **library.env, "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
    output = run(sys.executable, HOSTS / "pygame/tavern.py", smollm2_golden, "--demo", ALL_FRAMES, env=env)
    says_the_same(output)
    assert saved_bytes(output) > 100_000


@pytest.mark.parametrize("options", [[], ["--chain"]], ids=["main loop", "task chain"])
def test_panda3d_plays_the_tavern(
    options: list[str], library_path: Path, smollm2_golden: Path, says_the_same: Check
) -> None:
    need_module("panda3d")
    env = {**PYTHON_ENV, "SUPERSLM_LIBRARY": str(library_path)}
    output = run(sys.executable, HOSTS / "panda3d/tavern.py", smollm2_golden, "--headless", *options, env=env)
    says_the_same(output)
    assert saved_bytes(output) > 100_000


def test_node_plays_the_tavern(library_path: Path, smollm2_golden: Path, says_the_same: Check) -> None:
    node, npm = need("node", "nodejs"), need("npm", "npm")
    folder = dev.CACHE / "hosts-node"
    with dev.locked(dev.CACHE / "hosts-node.lock"):
        shutil.copytree(HOSTS / "node", folder, dirs_exist_ok=True)
        if not (folder / "node_modules/koffi").is_dir():
            run(npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    output = run(node, folder / "tavern.js", smollm2_golden, env={"SUPERSLM_LIBRARY": str(library_path)})
    says_the_same(output)
    assert saved_bytes(output) > 100_000 and "self-check: verified" in output
