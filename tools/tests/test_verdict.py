"""`tslab verdict`: the files it reads, and what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tslab import measured
from tslab.cli import main
from tslab.errors import LabError

DATA = Path(__file__).parent / "data"


def test_the_earlier_experiments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verdict", str(DATA / "c2_local_cache.csv")]) == 0
    said = capsys.readouterr().out
    for figure in ("41.87", "42.10", "2.3 %", "1.3 %", "+0.56 % ± 1.7 %", "UNDECIDED: about 376 runs on each side"):
        assert figure in said
    assert main(["verdict", str(DATA / "atomic_prune.csv"), "--kind", "prune"]) == 0
    said = capsys.readouterr().out
    for figure in ("53 136 246", "53 310 773", "+0.33 % ± 1.8 %", "UNDECIDED: about 2670 runs on each side"):
        assert figure in said


def test_a_log_with_two_series(tmp_path: Path) -> None:
    log = tmp_path / "log.md"
    log.write_text(
        "## Before\nRun 1: 1,000.5 ops/s\nRun 2: 1,001 ops/s\n## After\nRun 1: 990\nRun 2: 991\nMean: 990.5\n"
    )
    found = measured.read(log)
    assert (found.baseline, found.treatment) == ((1000.5, 1001.0), (990.0, 991.0))


def test_json_and_csv_of_unequal_length(tmp_path: Path) -> None:
    file = tmp_path / "runs"
    file.write_text('{"old": [1, 2, 3], "new": [1, 2]}')
    assert measured.read(file) == measured.TwoSeries(("old", "new"), (1.0, 2.0, 3.0), (1.0, 2.0))
    file.write_text("# a comment\nold,new\n1,1\n2,2\n3,\n")
    assert measured.read(file) == measured.TwoSeries(("old", "new"), (1.0, 2.0, 3.0), (1.0, 2.0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no two series"),
        ("a,b\n1,x\n", "holds no two series"),
        ('{"a": [1, 2]}', "holds no two series"),
        ("a,b\n1,2\n", "has 1 run"),
        ("a,b\n1,2\n0,2\n", "not above zero"),
    ],
)
def test_files_that_cannot_be_judged(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "runs"
    file.write_text(text)
    with pytest.raises(LabError, match=message):
        measured.read(file)


@pytest.mark.parametrize("value", ["inf", "nan", "1e308", "0", "-1"])
def test_what_is_no_measurement(tmp_path: Path, value: str) -> None:
    file = tmp_path / "runs.csv"
    file.write_text(f"a,b\n1,1\n2,{value}\n")
    with pytest.raises(LabError, match=r"series 'b' has a value that is not above zero, or no number at all"):
        measured.read(file)


def test_a_missing_file_is_a_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verdict", "/no/such/file"]) == 2
    assert "tslab verdict: cannot read /no/such/file" in capsys.readouterr().err


def test_interleaved_rounds_need_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.csv"
    file.write_text("old,new\n1,1\n2,2\n3,\n")
    assert main(["verdict", "--rounds", str(file)]) == 2
    assert "--rounds needs as many runs on each side; there are 3 and 2" in capsys.readouterr().err


def test_times_are_better_when_lower(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.csv"
    file.write_text("old,new\n10.0,11.0\n10.01,11.01\n9.99,10.99\n")
    assert main(["verdict", "--lower-is-better", str(file)]) == 0
    assert "-10.00 %" in (said := capsys.readouterr().out) and "NO-GO" in said
