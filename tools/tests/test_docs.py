"""The documentation site and the manual pages are made by ./dev docs, and leave nothing out."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from pathlib import Path

import pytest

from tslab.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build/docs"


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """Made once for all workers of a test run, for they would make it in one place."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build/docs.run").open("a+", encoding="utf-8") as made_by:
        fcntl.flock(made_by, fcntl.LOCK_EX)
        made_by.seek(0)
        if made_by.read() == run:
            return
        subprocess.run([ROOT / "dev", "docs"], check=True, capture_output=True, text=True, timeout=300)
        made_by.truncate(0)
        made_by.write(run)


def manual(page: str) -> str:
    text = (BUILT / "man" / page).read_text(encoding="utf-8")
    assert text.count(".TH ") == 1
    return text.replace("\\-", "-")


def test_the_command_s_manual_names_every_command() -> None:
    text = manual("man1/tslab.1")
    assert [name for name in COMMANDS if f"tslab {name}" not in text] == []
    assert "--listen" in text  # an option of one of them


def test_the_header_s_manual_names_every_function() -> None:
    header = (ROOT / "include/tslab/tslab.h").read_text(encoding="utf-8")
    functions = set(re.findall(r"^TSLAB_API .*?\b(tslab_\w+)\(", header, re.MULTILINE))
    assert len(functions) > 40
    text = manual("man3/tslab.3")
    assert sorted(name for name in functions if name not in text) == []
    assert "tslab - malloc and epochs" in text


def test_the_page_on_epochs_is_a_manual() -> None:
    assert "tslab-epoch - memory that is named by its lifetime" in manual("man7/tslab-epoch.7")


def test_every_page_and_every_file_that_one_links_to_is_on_the_site() -> None:
    site = BUILT / "site"
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page
    assert "temporal-slab" in (site / "index.html").read_text(encoding="utf-8")
    assert (site / "source/include/tslab/tslab.h.txt").exists()  # docs/epochs.md links to it
    assert (site / "c/tslab_8h.html").exists()
