"""The ledger is read back, extended and summed by the program."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from conftest import DATA, REPOSITORY

from tslab import ledger, measured
from tslab.errors import LabError
from tslab.ledger import Entry
from tslab.reporters import verdicts
from tslab.stats import Kind, judge_independent

LEDGER = REPOSITORY / "bench" / "LEDGER.md"
DECISIONS = REPOSITORY / "docs" / "decisions"

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


def test_the_repository_s_ledger_is_what_the_program_writes() -> None:
    entries = ledger.read(LEDGER)
    assert LEDGER.read_text(encoding="utf-8") == ledger.render(entries)
    for entry in entries:
        assert all(dataclasses.astuple(entry)), entry
        assert entry.verdict in ("GO", "NO-GO", "NEUTRAL", "UNDECIDED", "KEPT", "LEFT"), entry


def recorded_rows() -> list[tuple[Entry, Path]]:
    """The rows that come from decision records, with these records."""
    rows = [entry for entry in ledger.read(LEDGER) if entry.verdict in ("KEPT", "LEFT")]
    return [
        (row, DECISIONS / re.findall(r"^\[\d{4}\]\(\.\./docs/decisions/([\w-]+\.md)\) ", row.what)[0]) for row in rows
    ]


def test_decision_records_have_rows() -> None:
    assert len({record for _, record in recorded_rows()}) >= 33


def test_figures_of_their_rows_stand_in_the_records() -> None:
    for row, record in recorded_rows():
        text = record.read_text(encoding="utf-8")
        figures = re.findall(r"\d[\d,.]*\d|\d", f"{row.measured} {row.interval} {row.instructions}")
        missing = [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", text)]
        assert figures and missing == [], row.what


@pytest.mark.parametrize(
    ("what", "file", "kind"),
    [("phase 79-1", "c2_local_cache.csv", Kind.FEATURE), ("phase 26", "atomic_prune.csv", Kind.PRUNE)],
)
def test_the_rows_of_published_runs_are_recomputed(what: str, file: str, kind: Kind) -> None:
    (row,) = (entry for entry in ledger.read(LEDGER) if f"HAKMEM {what}," in entry.what)
    runs = measured.read(DATA / file)
    judged = judge_independent(runs.baseline, runs.treatment, kind.threshold)
    assert row.measured == verdicts.percent(judged.change.point)
    assert (row.interval, row.verdict) == (verdicts.interval(judged.change), judged.verdict.value)
