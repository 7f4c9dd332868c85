"""Generated parts of documents are replaced, and nothing else is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import REPOSITORY
from test_report import full_result

from tslab import calibrate, scale
from tslab.cli import main
from tslab.errors import LabError
from tslab.reporters import page, sections
from tslab.reporters.families import FAMILIES
from tslab.result import Result, merge
from tslab.suite import CASES

DOCUMENT = "before\n<!-- generated: table -->\nold\n<!-- end of table -->\nafter\n"


def test_only_the_text_between_the_marks_changes(tmp_path: Path) -> None:
    path = tmp_path / "doc.md"
    path.write_text(DOCUMENT)
    for text in ("new", "newer"):
        sections.replace(path, "table", text)
        expected = f"before\n<!-- generated: table -->\n\n{text}\n\n<!-- end of table -->\nafter\n"
        assert path.read_text() == expected


def test_a_document_without_the_marks(tmp_path: Path) -> None:
    path = tmp_path / "doc.md"
    path.write_text("nothing here\n")
    with pytest.raises(LabError, match=r"add the two lines <!-- generated: table --> and"):
        sections.replace(path, "table", "text")


def test_the_documentation_has_the_places() -> None:
    for document, name in ((page.PAGE, "summary"), (page.PAGE, "calibration"), (page.TABLES, "table")):
        text = (REPOSITORY / "docs" / document).read_text()
        assert text.count(f"<!-- generated: {name} -->\n") == text.count(f"<!-- end of {name} -->\n") == 1


def test_a_report_into_a_document(tmp_path: Path) -> None:
    path, file = tmp_path / "doc.md", tmp_path / "bench.json"
    path.write_text(DOCUMENT)
    file.write_text(json.dumps(full_result()))
    assert main(["report", str(file), "--into", str(path)]) == 0
    assert "| **geometric mean** |" in path.read_text() or "| geometric mean |" in path.read_text()


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    for name in (page.PAGE, page.TABLES):
        (tmp_path / name).write_text((REPOSITORY / "docs" / name).read_text())
    return tmp_path


def test_a_page_and_its_tables_are_of_one_result(documents: Path) -> None:
    data, file = full_result(), documents / "bench.json"
    for run in data["runs"]:
        if run["allocator"] == "jemalloc" and run["workload"] == "remote":
            run["metrics"]["ops_per_s"] *= 5
    file.write_text(json.dumps(data))
    (documents / page.PICTURES).mkdir()
    (documents / page.PICTURES / "gone.svg").write_text("of a family that there was")
    assert main(["report", str(file), "--page", str(documents)]) == 0
    written = (documents / page.PAGE).read_text()
    assert "commit abc, 2026-01-02: 6 interleaved rounds" in written
    assert "commit abc, 6 rounds, 2026-01-02" in (documents / page.TABLES).read_text()
    assert (
        "| [Blocks freed by another thread](#blocks-freed-by-another-thread) | 3 ahead, 0 level, 3 LOSES |" in written
    )
    assert "**Lost** (3 of 6 rows): `remote share=0` (ops_per_s) 0.25 of jemalloc (0.25 … 0.25);" in written
    assert written.count("**Why:**") == 1
    assert written.count("No row is lost.") == len(FAMILIES) - 1
    drawn = {path.name for path in (documents / page.PICTURES).iterdir()}
    assert drawn == {f"{family.name}.svg" for family in FAMILIES}
    for path in (documents / page.PICTURES).iterdir():
        assert f"({page.PICTURES}/{path.name})" in written
        text = path.read_text()
        assert text.startswith("<svg") and "currentColor" not in text and "var(" not in text


def test_a_loss_to_nothing_shows_both_figures_and_few_rounds_are_said(documents: Path) -> None:
    data, file = full_result(), documents / "bench.json"
    data["rounds"] = 4
    for run in data["runs"]:
        if run["allocator"] == "jemalloc" and run["workload"] == "lifetimes":
            run["metrics"]["retained_rss_bytes"] = 0.0
    file.write_text(json.dumps(data))
    assert main(["report", str(file), "--page", str(documents)]) == 0
    written = (documents / page.PAGE).read_text()
    assert re.search(r"\(retained_rss_bytes\) 38.1 MiB \[.*?\], jemalloc 0 bytes \[", written)
    assert "So few rounds give no 95 % interval" in written


def test_what_was_not_run_is_not_on_the_page(documents: Path) -> None:
    data, file = full_result(), documents / "bench.json"
    data["cases"] = [case for case in data["cases"] if case["workload"] == "latency"]
    data["runs"] = [run for run in data["runs"] if run["workload"] == "latency"]
    file.write_text(json.dumps(data))
    assert main(["report", str(file), "--page", str(documents)]) == 0
    assert {path.stem for path in (documents / page.PICTURES).iterdir()} == {"tails", "memory"}
    assert "Whole programs" not in (documents / page.PAGE).read_text()


def test_every_workload_is_in_a_family_or_on_the_page_of_counts() -> None:
    known = {workload for family in FAMILIES for workload in family.workloads}
    assert known | {scale.WORKLOAD} == {case.workload for case in CASES}


def test_results_of_two_commits_are_not_merged() -> None:
    other = full_result()
    other["machine"] = {**other["machine"], "commit": "def"}
    with pytest.raises(LabError, match="different commits"):
        merge([Result(full_result(), "glibc"), Result(other, "glibc")])


def test_calibration_figures_as_a_table() -> None:
    figures = {"measured_pct": [-1.0, 0.5, 2.0], "half_width_pct": [0.9, 1.0, 1.1], "rounds": [8, 9, 10]}
    host = {"cpu": "c", "cores": 2, "kernel": "k", "commit": "abc"}
    text = calibrate.markdown(
        {
            "workload": "random-mixed", "minutes": 3, "machine": host,
            "equal": {**figures, "false": 1, "of": 60},
            "slower_3_pct": {**figures, "caught": 20, "of": 20},
            "instructions_1_pct": {"measured_pct": [-1.01], "caught": 20, "of": 20},
        }
    )  # fmt: skip
    assert "| equal arms (A/A) | 1 of 60 false verdicts | at most 6 | +0.50 % (-1.00 … +2.00) | ± 1.00 % | 9 |" in text
    assert "| 1 % more instructions | 20 of 20 caught | at least 19 | -1.01 % (-1.01 … -1.01) | counted |" in text
