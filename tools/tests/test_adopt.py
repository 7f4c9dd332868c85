"""The scripts of bench/adopt: each starts its program under libc's malloc and ours, loads it once, and prints both."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from conftest import REPOSITORY

LIBRARY = REPOSITORY / "build" / "release" / "libtslab.so.0"
FOLDER = REPOSITORY / "bench" / "adopt"


SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if path.name != "adopt.py")
QUICK = {"redis.py", "python_service.py"}  # the others start whole services, which slow the tests that run beside them


@pytest.mark.parametrize(
    "script", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.soak) for name in SCRIPTS]
)
def test_a_script_measures_what_its_page_says(script: str) -> None:
    if not LIBRARY.exists():
        pytest.skip("build/release has no library")
    options = [str(LIBRARY), "--turns", "1", "--bursts", "1", "--rest", "0", "--only", "glibc,temporal-slab"]
    words = [sys.executable, str(FOLDER / script), *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr[-2000:]
    rows = re.findall(r"^\| (glibc|temporal-slab) \| ([\d. |]+) \|", done.stdout, re.MULTILINE)
    assert [name for name, _ in rows] == ["glibc", "temporal-slab"], done.stdout
    assert all(float(figure) > 0 for _, figures in rows for figure in figures.split("|")[:-1]), done.stdout
