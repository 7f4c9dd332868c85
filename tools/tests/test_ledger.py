"""The ledger is read back, extended and summed by the program."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tslab import ledger
from tslab.errors import LabError
from tslab.ledger import Entry

ENTRY = Entry(
    date="2026-01-02",
    what="fixed mode | switch",
    why="one branch less",
    workload="random-mixed",
    metric="ops_per_s",
    predicted="1 %",
    measured="+7.05 %",
    interval="+6.00 % … +8.10 %",
    rounds="20",
    instructions="40.00 to 38.00",
    verdict="GO",
    commit="abc",
)


def variant(**changes: str) -> Entry:
    return dataclasses.replace(ENTRY, **changes)


def test_rows_survive_being_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "bench" / "LEDGER.md"
    ledger.record(path, ENTRY)
    ledger.record(path, variant(what="two\nlines", verdict="NO-GO"))
    assert ledger.read(path) == [ENTRY, variant(what="two lines", verdict="NO-GO")]


def test_gains_compound_over_go_rows_of_one_workload_and_metric(tmp_path: Path) -> None:
    path = tmp_path / "LEDGER.md"
    for entry in (
        ENTRY,
        variant(measured="+2.31 %"),
        variant(measured="+0.40 %", verdict="NEUTRAL"),
        variant(measured="-3.00 %", verdict="NO-GO"),
        variant(measured="+0.57 %", verdict="UNDECIDED"),
        variant(measured="+1.00 %", workload="churn"),
    ):
        ledger.record(path, entry)
    text = path.read_text()
    assert "| random-mixed | ops_per_s | 2 | +9.52 % |" in text
    assert "| churn | ops_per_s | 1 | +1.00 % |" in text


def test_a_row_broken_by_hand_is_named(tmp_path: Path) -> None:
    path = tmp_path / "LEDGER.md"
    path.write_text(ledger.render([ENTRY]).replace("one branch less |", "one branch less", 1))
    with pytest.raises(LabError, match=r"LEDGER.md:\d+: 11 cells where the ledger has 12"):
        ledger.record(path, ENTRY)


def test_no_ledger_yet(tmp_path: Path) -> None:
    assert ledger.read(tmp_path / "LEDGER.md") == []
