from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from playwright.sync_api import Error as BrowserError

DATA = Path(__file__).parent / "data"
REPOSITORY = Path(__file__).resolve().parents[2]

Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Compiles tests/data/allocator.c into a library, with the given defines."""

    def compile_(name: str, *defines: str) -> Path:
        out = tmp_path / name
        flags = [f"-D{define}" for define in defines]
        source = str(DATA / "allocator.c")
        subprocess.run(["cc", "-O2", "-fPIC", "-shared", "-fno-builtin", *flags, "-o", str(out), source], check=True)
        return out.resolve()

    return compile_


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return compile_program(tmp_path / "program")


def compile_program(out: Path, *flags: str) -> Path:
    subprocess.run(["cc", "-O1", "-fno-builtin", *flags, "-o", str(out), str(DATA / "program.c")], check=True)
    return out


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TSLAB_", "LD_", "MALLOC_")):
            monkeypatch.delenv(name)


QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's chromium, which ./dev test installs, or the one that playwright has installed."""
    with sync_playwright() as starter:
        try:
            found = starter.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        except BrowserError as error:
            pytest.skip(f"no browser can be had, neither chromium nor playwright's own: {str(error).splitlines()[0]}")
        yield found
        found.close()
