"""`tslab contention`: the published figures stand as they were published, and ours beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import REPOSITORY

from tslab import contention, project
from tslab.cli import main
from tslab.contention import SIZE, TABLES, THREADS, Figures
from tslab.errors import LabError

pytestmark = pytest.mark.usefixtures("clean_environment")

ROW = {
    "object_size": SIZE, "allocations": 1000, "frees": 800, "lock_fast_acquire": 90, "lock_contended": 10,
    "slab_take_attempts": 50, "slab_take_cas_retries": 5, "slab_push_attempts": 40,
    "slab_push_cas_retries": 4, "slab_adopt_attempts": 0, "slab_adopt_failures": 0,
}  # fmt: skip


def numbers(cell: str) -> list[float]:
    """Of `least … most`, or of one figure for both."""
    found = [float(part.strip(" %").replace(",", "")) for part in cell.split("…")]
    return [found[0], found[-1]]


def test_the_published_figures_are_whole_and_agree_with_each_other() -> None:
    for table in TABLES:
        assert len(table.rows) == len(THREADS)
        assert {len(row) for row in table.rows} == {len(table.columns)}
    for fast, contended, rate in TABLES[0].rows:
        (f_low, f_high), (c_low, c_high), (low, high) = map(numbers, (fast, contended, rate))
        assert 100 * c_low / (c_low + f_high) - 0.1 <= high <= 100 * c_high / (c_high + f_low) + 0.1
        assert low <= high  # 4.5 % with two threads stands in the document, though no counts of its give it
    for table in TABLES[1:3]:
        for threads, (attempts, retries, rate) in zip(THREADS, table.rows, strict=True):
            assert numbers(attempts) == [100_000 * threads] * 2
            assert [pytest.approx(n / (100_000 * threads), abs=6e-5) for n in numbers(retries)] == numbers(rate)
    for attempts, failures, _ in TABLES[3].rows:
        assert numbers(failures)[1] <= numbers(attempts)[1]


def test_ranges_rates_and_rates_of_nothing() -> None:
    fast, _, rate = TABLES[0].columns
    other = {**ROW, "lock_fast_acquire": 40, "lock_contended": 0}
    assert contention.spread(fast, [ROW, other]) == "40 … 90"
    assert contention.spread(rate, [ROW, other]) == "0.00 % … 10.00 %"
    assert contention.spread(rate, [ROW, ROW]) == "10.00 %"
    assert contention.spread(TABLES[1].columns[2], [ROW]) == "0.0050"
    assert contention.spread(TABLES[2].columns[2], [ROW]) == "0.0050"
    assert contention.spread(TABLES[3].columns[2], [ROW]) == "–"


def test_one_command_writes_all_four_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[int, int]] = []

    def once(place: project.Project, threads: int, pairs: int) -> Figures:
        asked.append((threads, pairs))
        return {**ROW, "lock_contended": threads}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(contention, "_once", once)
    build = tmp_path / "build" / "release"
    (build / "bench").mkdir(parents=True)
    (build / "libtslab.so").touch()
    (build / "bench" / "threads").touch()
    document = tmp_path / "doc.md"
    document.write_text("before\n<!-- generated: contention -->\n<!-- end of contention -->\nafter\n")
    assert main(["contention", "--runs", "2", "--pairs", "300", "--into", str(document)]) == 0
    assert asked == [(threads, 300) for threads in THREADS] * 2  # in turns, not one number after the other
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("after\n")
    assert [line for line in text.splitlines() if line.startswith("**Table")] == [f"**{t.title}**" for t in TABLES]
    assert "| 16 | 90 | 16 | 15.09 % | 861,877 … 1,415,378 | 217,602 … 349,440 | 18.3 … 20.2 % |" in text
    assert "cores" in text and "of 2 runs" in text and "Phase 2.2" in text
    capsys.readouterr()
    assert main(["contention", "--runs", "1"]) == 0
    assert capsys.readouterr().out.count("**Table") == 4


def test_the_documentation_has_the_place() -> None:
    text = (REPOSITORY / "docs" / "benchmarking.md").read_text()
    assert text.count("<!-- generated: contention -->\n") == text.count("<!-- end of contention -->\n") == 1


def test_the_library_itself_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    place = project.find(start=REPOSITORY)
    if not place.library.exists() or not (place.workloads / "threads").exists():
        pytest.skip("build/release is not built")
    monkeypatch.setattr(contention, "THREADS", (1, 3))
    found = contention.measure(place, 1, 1000)
    for threads, (figures,) in found.items():
        # A tenth to warm up; with one thread, with all, and with all timed; and 10,000 blocks held at the end.
        assert figures["allocations"] >= 1100 * (1 + 2 * threads) + 10_000
        assert figures["lock_fast_acquire"] > 0


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"classes": []}', json.dumps({"classes": [{"object_size": SIZE}]})],
)
def test_figures_of_another_library(text: str) -> None:
    with pytest.raises(LabError, match=r"lack a class of 128 bytes with .*build library and tools anew"):
        contention.figures_of(text)


def test_what_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["contention"]) == 2
    assert "lacks the library or the workload threads: ./dev build release --all" in capsys.readouterr().err
    assert main(["contention", "--runs", "0"]) == 2
    assert "--runs=0: at least one" in capsys.readouterr().err
