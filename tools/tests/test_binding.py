"""Epochs and statistics for Python programs, and the pytest plugin, each in a process that the library serves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
from conftest import REPOSITORY

import tslab

LIBRARY = REPOSITORY / "build" / "release" / "libtslab.so"
needs_library = pytest.mark.skipif(not LIBRARY.exists(), reason="build/release has no library")


def python(*words: str, served: bool = True, cwd: Path = REPOSITORY, **more: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("TSLAB_", "LD_", "PYTEST"))}
    variables |= {"PYTHONPATH": str(REPOSITORY / "tools"), **more}
    if served:
        variables["LD_PRELOAD"] = str(LIBRARY)
    command = [sys.executable, *words]
    return subprocess.run(command, env=variables, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


def said(program: str, served: bool = True, **more: str) -> str:
    done = python("-c", textwrap.dedent(program), served=served, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_library
def test_what_outlives_an_epoch_is_reported_and_stays_valid() -> None:
    program = """
        import tslab
        with tslab.epoch("batch") as batch:
            kept = [bytearray(b"x" * 5000) for _ in range(100)]
            gone = [bytearray(5000) for _ in range(100)]
            del gone
        print(batch.report.live_blocks >= 100, 500_000 <= batch.report.live_bytes < 700_000)
        print(all(block == b"x" * 5000 for block in kept))
        row = next(row for row in tslab.stats()["labels"] if row["label"] == "batch")
        print(row["live_blocks"] == batch.report.live_blocks, row["allocations"] >= 200)
        with batch:
            pass
        print(batch.report.live_bytes < 10_000)
    """
    assert said(program).split() == ["True"] * 6


@needs_library
def test_small_objects_are_seen_only_when_python_asks_malloc() -> None:
    """docs/python.md says this of CPython's arenas."""
    program = """
        import tslab
        tslab.available()
        with tslab.epoch("small") as small:
            kept = [(n, n) for n in range(100_000, 110_000)]
        print(small.report.live_blocks)
    """
    assert int(said(program)) < 2000
    assert int(said(program, PYTHONMALLOC="malloc")) > 15_000  # a tuple and a number each, some from free lists


@needs_library
def test_scopes_nest_exceptions_leave_them_and_misuse_is_named() -> None:
    program = """
        import threading, tslab
        try:
            with tslab.epoch("outer"):
                with tslab.epoch("inner") as inner:
                    raise KeyError
        except KeyError:
            print(inner.report is not None)
        outer, inner = tslab.epoch("outer"), tslab.epoch("inner")
        outer.__enter__()
        inner.__enter__()
        for call in (outer.__exit__, lambda *_: outer.__enter__()):
            try:
                call(None, None, None)
            except tslab.EpochError as error:
                print(error)
        inner.__exit__(None, None, None)
        outer.__exit__(None, None, None)
        try:
            with tslab.epoch("tiny", budget=1000):
                pass
        except tslab.EpochError as error:
            print(error)
        try:
            with tslab.epoch("small", budget=1 << 20) as small:
                bytearray(8 << 20)
        except MemoryError:
            print("MemoryError")
    """
    assert said(program).splitlines() == [
        "True",
        "epoch 'outer' is not this thread's innermost scope: leave it where it was entered (Invalid argument)",
        "epoch 'outer' is entered already: make another object for another scope",
        "epoch 'tiny' cannot be opened (Invalid argument)",
        "MemoryError",
    ]


def test_without_the_library_epochs_do_nothing() -> None:
    program = """
        import tslab
        with tslab.epoch("batch") as batch:
            pass
        print(tslab.available(), batch.report)
        try:
            tslab.stats()
        except tslab.EpochError as error:
            print(error)
    """
    lines = said(program, served=False).splitlines()
    assert lines[0] == "False None"
    assert lines[1].startswith("temporal-slab does not serve this process")


LEAKS = """
    import pytest
    kept = []
    def test_leaks():
        kept.append(bytearray(1 << 20))
    def test_does_not():
        bytearray(1 << 20)
    @pytest.mark.tslab_epoch(allow=2 << 20)
    def test_may():
        kept.append(bytearray(1 << 20))
"""


def pytest_on(folder: Path, *options: str, served: bool = True) -> subprocess.CompletedProcess[str]:
    (folder / "test_some.py").write_text(textwrap.dedent(LEAKS))
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tslab.pytest_plugin", *options, "test_some.py")
    return python(*words, served=served, cwd=folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


@needs_library
def test_the_plugin_fails_a_test_whose_epoch_leaks(tmp_path: Path) -> None:
    done = pytest_on(tmp_path, "--tslab-epochs")
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    wanted = r"1,0\d\d,\d{3} bytes in \d+ blocks outlived the test's epoch; 65,536 bytes are allowed"
    assert re.search(wanted, done.stdout)
    assert "3 passed" in pytest_on(tmp_path).stdout
    assert "3 passed" in pytest_on(tmp_path, "--tslab-epochs", "--tslab-allow", "3000000").stdout


def test_the_plugin_without_the_library(tmp_path: Path) -> None:
    done = pytest_on(tmp_path, "--tslab-epochs", served=False)
    assert done.returncode == 4
    assert "--tslab-epochs needs temporal-slab" in done.stderr
    assert "2 passed, 1 skipped" in pytest_on(tmp_path, served=False).stdout


@needs_library
def test_the_example_of_the_page() -> None:
    page = (REPOSITORY / "docs" / "python.md").read_text()
    example = re.search(r"```python\n(# batch\.py\n.*?)```", page, re.DOTALL)
    assert example
    wanted = r"batch 1: 0 MiB.*\nbatch 2: 0 MiB.*\nbatch 3: 4 MiB in \d+ blocks outlived it\n"
    assert re.fullmatch(wanted, said(example[1]))


def test_all_packages_say_the_same() -> None:
    whole = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    command = tomllib.loads((REPOSITORY / "tools" / "pyproject.toml").read_text())["project"]
    for name in ("name", "version", "dependencies", "requires-python", "scripts", "entry-points"):
        assert whole[name] == command[name], name
    assert (REPOSITORY / "debian" / "changelog").read_text().startswith(f"temporal-slab ({whole['version']})")
    assert whole["optional-dependencies"]["lab"] == command["optional-dependencies"]["lab"]


def test_the_command_alone_carries_no_library() -> None:
    assert tslab.library() is None and tslab.library(hardened=True) is None


@needs_library
def test_a_wheel_of_the_repository_brings_its_library(tmp_path: Path) -> None:
    """As CMake installs it beside the package; tests/install/wheel.py builds the wheel itself."""
    build = REPOSITORY / "build" / "release"
    if not (build / "libtslab-hardened.so.0").exists():
        pytest.skip("build/release has no hardened library")
    place = ["cmake", "--install", str(build), "--component", "wheel", "--prefix", str(tmp_path)]
    subprocess.run(place, check=True, capture_output=True, timeout=60)
    carried = tmp_path / "tslab" / "lib"
    assert sorted(path.name for path in carried.iterdir()) == ["libtslab-hardened.so.0", "libtslab.so.0"]
    shutil.copytree(REPOSITORY / "tools" / "tslab", tmp_path / "tslab", dirs_exist_ok=True)
    for options, name in (([], "libtslab.so.0"), (["--hardened"], "libtslab-hardened.so.0")):
        words = ["-m", "tslab.cli", "run", *options, "--", "cat", "/proc/self/maps"]
        done = python(*words, served=False, cwd=tmp_path, PYTHONPATH=str(tmp_path))
        assert done.returncode == 0 and f"{carried}/{name}" in done.stdout, done.stderr


def test_the_library_is_chosen_once() -> None:
    done = python("-m", "tslab.cli", "run", "--hardened", "--lib", "/x", "--", "true", served=False)
    assert done.returncode == 2 and "--hardened chooses the library itself" in done.stderr
