"""Style and types of the command, and of the shell scripts, as kept tools judge them."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from conftest import REPOSITORY


def judged(*words: str) -> str:
    """Returns what the tool complains of; nothing where all is well."""
    done = subprocess.run(words, cwd=REPOSITORY / "tools", capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_ruff() -> None:
    assert judged(sys.executable, "-m", "ruff", "check", ".", "../tests", "../bench", "../demo") == ""


def test_mypy() -> None:
    assert judged(sys.executable, "-m", "mypy", "--config-file", "pyproject.toml") == ""


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck() -> None:
    assert judged("shellcheck", *(str(REPOSITORY / name) for name in ("dev", ".ci/run", "cmake/own-names.sh"))) == ""
