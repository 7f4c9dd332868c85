"""Generated parts of documents are replaced, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import REPOSITORY
from test_report import full_result

from tslab import calibrate
from tslab.cli import main
from tslab.errors import LabError
from tslab.reporters import sections

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
    text = (REPOSITORY / "docs" / "benchmarking.md").read_text()
    for name in ("table", "calibration"):
        assert text.count(f"<!-- generated: {name} -->\n") == text.count(f"<!-- end of {name} -->\n") == 1


def test_a_report_into_a_document(tmp_path: Path) -> None:
    path, file = tmp_path / "doc.md", tmp_path / "bench.json"
    path.write_text(DOCUMENT)
    file.write_text(json.dumps(full_result()))
    assert main(["report", str(file), "--into", str(path)]) == 0
    assert "| **geometric mean** |" in path.read_text() or "| geometric mean |" in path.read_text()


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
