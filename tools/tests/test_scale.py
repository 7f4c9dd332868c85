"""Costs against counts: the rule that calls one flat, the page docs/scale.md, and the program's kinds behind both."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY
from test_report import full_result

from tslab import scale, suite
from tslab.cli import main
from tslab.reporters import charts, scales
from tslab.result import MEMORY, TIME, Result
from tslab.scale import KINDS, Cost, Kind
from tslab.sweep import Sweep

TURNS = next(kind for kind in KINDS if kind.name == "turns")
REST = next(kind for kind in KINDS if kind.name == "rest")
ROW_NAMES = [scales.names(kind, cost) for kind in KINDS for cost in kind.costs]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cliffs") / "cliffs"
    bench = REPOSITORY / "bench"
    sources = [*sorted((bench / "cliffs").glob("*.c")), bench / "cliffs.c", bench / "lab.c"]
    flags = ["-D_GNU_SOURCE", "-O1", f"-I{REPOSITORY / 'include'}", "-lm", "-ldl", "-lpthread"]
    subprocess.run(["cc", *map(str, sources), "-o", str(out), *flags], check=True)
    return out


def page_rows(text: str) -> list[tuple[str, str]]:
    table = [line for line in text.splitlines() if line.startswith("| ")][1:]
    return [(cells[0], cells[1]) for line in table for cells in [[cell.strip() for cell in line.split("|")[1:-1]]]]


def swept(kind: Kind, cost: Cost, **figures: list[list[float]]) -> Result:
    """The full result, with an allocator's figures of one cost: for each count, round after round."""
    data = full_result()
    cases = [case.name for case in suite.CASES if case.workload == scale.WORKLOAD and case.options[0] == options(kind)]
    for run in data["runs"]:
        if run["case"] in cases and run["allocator"] in figures:
            values = figures[run["allocator"]][cases.index(run["case"])]
            run["metrics"][cost.metric] = values[(run["round"] - 1) % len(values)]
    return Result(data, "glibc")


def options(kind: Kind) -> str:
    return f"--kind={kind.name}"


# ---- the kinds ----


def test_the_program_has_these_kinds(program: Path) -> None:
    said = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    choices = re.search(r"--kind +[^:]*: (\S+)", said)
    assert choices and set(choices[1].split("|")) == {kind.name for kind in KINDS}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.alone], ids=lambda kind: str(kind.name))
def test_plain_malloc_has_the_figures_of_a_kind(program: Path, kind: Kind) -> None:
    command = [program, *kind.case_options(2), "--operations=1000", "--idle_ms=5", "--expect=glibc"]
    row = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    of_epochs = {"enter_leave_ns"}
    assert {cost.metric for cost in kind.costs} - of_epochs <= row["metrics"].keys()
    assert f"kind={kind.name},count=2,of=malloc" in row["variant"]


def test_each_count_of_a_kind_is_a_case() -> None:
    cases = [case for case in suite.CASES if case.workload == scale.WORKLOAD]
    assert [case.options for case in cases] == [kind.case_options(count) for kind in KINDS for count in kind.counts]
    for kind in KINDS:
        assert kind.counts == (kind.least, 10 * kind.least, 100 * kind.least)
        assert kind.time, kind.name
    assert not any(case.in_means for case in cases)
    headlines = {key.case for category in (TIME, MEMORY) for key in Result(full_result(), "glibc").headlines(category)}
    assert not headlines & {case.name for case in cases}


# ---- flat and bends ----


@pytest.mark.parametrize(
    ("least", "greatest", "words"),
    [
        ([100.0] * 6, [129.0] * 6, "flat (1.29 ×)"),
        ([100.0] * 6, [131.0] * 6, "bends (1.31 ×)"),
        ([100.0] * 6, [50.0] * 6, "flat (0.50 ×)"),
        ([100.0] * 6, [123456.0] * 6, "bends (1,235 ×)"),
        # Round by round: a slow machine for half of the rounds bends nothing.
        ([100.0, 1000.0] * 3, [110.0, 1100.0] * 3, "flat (1.10 ×)"),
        ([100.0] * 6, [100.0, 100.0, 100.0, 100.0, 9000.0, 9000.0], "flat (1.00 ×)"),
        # A cost that is too small to be told from nothing counts as nothing.
        ([0.0] * 6, [0.9] * 6, "flat (1.00 ×)"),
        ([-0.5] * 6, [2.0] * 6, "bends (2.00 ×)"),
    ],
)
def test_a_cost_is_flat_within_the_limit(least: list[float], greatest: list[float], words: str) -> None:
    cost = TURNS.costs[0]
    result = swept(TURNS, cost, tslab=[least, least, greatest])
    reading = Sweep(result).reading(TURNS, cost, "tslab")
    assert reading and reading.words == words


def test_a_panel_says_the_reading() -> None:
    cost = TURNS.costs[0]
    result = swept(TURNS, cost, tslab=[[20.0], [400.0], [500.0]], glibc=[[10.0], [10.0], [11.0]])
    chart = charts.cliffs_of_epochs(result)
    assert chart and "turns: bends (25 ×)" in chart.svg
    assert [
        "open epochs that one thread goes round",
        "glibc",
        cost.words,
        *("10 ns", "10 ns", "11 ns"),
        "flat (1.10 ×)",
    ] in chart.table[1]


def test_nothing_at_rest_is_drawn() -> None:
    """A share of the processor that is 0 has no place on a logarithmic axis, and is no reason to draw nothing."""
    result = swept(REST, REST.costs[0], tslab=[[0.0], [0.0], [0.0]])
    chart = charts.cliffs_of_threads(result)
    assert chart and "rest: flat (1.00 ×)" in chart.svg


# ---- the page ----


def test_the_page_has_a_row_for_each_cost() -> None:
    text = (REPOSITORY / "docs" / "scale.md").read_text(encoding="utf-8")
    generated = text.partition("<!-- generated: scale -->")[2].partition("<!-- end of scale -->")[0]
    assert page_rows(generated) == ROW_NAMES


def test_rows_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page = tmp_path / "bench.json", tmp_path / "scale.md"
    cost = TURNS.costs[0]
    data = swept(TURNS, cost, tslab=[[20.0], [21.0], [22.0]], mimalloc3=[[9.0], [9.0], [9.0]]).data
    file.write_text(json.dumps(data))
    page.write_text("before\n<!-- generated: scale -->\n<!-- end of scale -->\nafter\n")
    assert main(["report", str(file), "--scale", "--into", str(page)]) == 0
    written = page.read_text()
    assert written.startswith("before\n") and written.endswith("after\n")
    assert page_rows(written) == ROW_NAMES
    assert (
        "| open epochs that one thread goes round: 8, 80, 800 | enter, malloc, free, leave | 20 ns | 21 ns | 22 ns | "
        "flat (1.10 ×) | 9 ns mimalloc3 |" in written
    )
    capsys.readouterr()
    assert main(["report", str(file), "--scale"]) == 0
    assert page_rows(capsys.readouterr().out) == ROW_NAMES


def test_a_row_without_a_run_keeps_its_place() -> None:
    data: dict[str, Any] = full_result()
    name = next(case.name for case in suite.CASES if case.options == TURNS.case_options(800))
    for run in data["runs"]:
        if run["case"] == name and run["allocator"] == "tslab":
            run |= {"status": "stopped", "note": "stopped after 30 s", "metrics": {}}
    data["cases"] = [case for case in data["cases"] if "--kind=fit" not in case["options"]]
    text = scales.markdown(Result(data, "glibc"))
    assert page_rows(text) == ROW_NAMES
    assert re.search(r"goes round: 8, 80, 800 \| enter, malloc, free, leave \|.*\| stopped \| – \|", text)
    assert "| malloc of 2.4 MiB | not run | not run | not run | – | – |" in text


def test_a_result_without_cliffs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = full_result()
    data["cases"] = [case for case in data["cases"] if case["workload"] != scale.WORKLOAD]
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(data))
    assert main(["report", str(file), "--scale"]) == 2
    assert "has no run of cliffs" in capsys.readouterr().err
