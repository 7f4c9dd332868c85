"""tslab record and tslab replay: a program of ours from its recording to a table, and what goes wrong on the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY

from tslab import trace
from tslab.cli import main
from tslab.project import Project

BUILT = REPOSITORY / "build" / "release" / "bench"
pytestmark = [
    pytest.mark.usefixtures("clean_environment"),
    pytest.mark.skipif(not (BUILT / trace.LIBRARY).exists(), reason="the recorder is not built"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("record") / "program"
    source = REPOSITORY / "bench" / "trace" / "program.c"
    flags = ["-D_GNU_SOURCE", "-O1", "-fno-builtin", "-pthread", "-w"]
    subprocess.run(["cc", *flags, "-o", str(out), str(source)], check=True)
    return out


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(REPOSITORY)
    return tmp_path


def facts_of(path: Path) -> trace.Facts:
    raw = path.with_suffix(".unpacked")
    trace.unpack(path, raw)
    return trace.facts(raw, path)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_a_recording_is_replayed(place: Path, program: Path, suffix: str, capfd: pytest.CaptureFixture[str]) -> None:
    out = place / f"it.trace{suffix}"
    assert main(["record", "-o", str(out), "--", str(program), "exit"]) == 0
    found = facts_of(out)
    said = capfd.readouterr().err
    assert f"{found.calls:,} calls of program, 2 threads at a time, in {out}" in said
    assert len(said.splitlines()) == 1  # a forked child leaves nothing to tell of
    assert main(["replay", str(out), "--info"]) == 0
    info = capfd.readouterr().out
    assert f"{out} is whole" in info
    assert f"{program} exit" in info
    assert sorted(path.name for path in place.iterdir()) == sorted([out.name, out.with_suffix(".unpacked").name])


def test_a_table_of_allocators(place: Path, program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = place / "it.trace.gz"
    assert main(["record", "-o", str(out), "--", str(program), "work"]) == 0
    words = ["--allocator", "glibc", "--allocator", "tslab", "--budget", "0.01", "--out", str(place / "it.json")]
    assert main(["replay", str(out), *words]) == 0
    table = capfd.readouterr().out
    for figure in ("cpu_per_op_ns", "op_ns", "heap_peak_bytes", "heap_end_bytes", "heap_rest_bytes"):
        assert f"replay it.trace.gz  {figure}" in table
    assert (place / "it.json").exists()


def test_the_busiest_process_or_the_one_that_was_named(
    place: Path, program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = place / "it.trace"
    command = ["--", "sh", "-c", f"{sys.executable} -S -c 'list(range(9))'; {program} work; exit 3"]
    assert main(["record", "-o", str(out), *command]) == 3
    assert trace.facts(out).program == "program"
    assert "not kept: " in capfd.readouterr().err
    python = Path(sys.executable).name
    assert main(["record", "-o", str(out), "--of", python, *command]) == 3
    assert trace.facts(out).program == python
    assert main(["record", "-o", str(out), "--of", "nobody", *command]) == 2
    assert "no process of 'nobody' was recorded, but of program (" in capfd.readouterr().err


def test_a_killed_program_and_a_limit(place: Path, program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = place / "it.trace"
    assert main(["record", "-o", str(out), "--", str(program), "kill"]) == 128 + 9
    assert "the program was killed, so the last calls of each thread are missing" in capfd.readouterr().err
    assert main(["replay", str(out)]) == 5
    assert "it.trace is unfinished" in capfd.readouterr().err
    assert main(["replay", str(out), "--partial", "--allocator", "glibc", "--budget", "0.01"]) == 0
    assert main(["record", "-o", str(out), "--limit", "64K", "--", str(program), "work"]) == 0
    assert "it stops at the limit of 64.0 KiB: a larger --limit records more" in capfd.readouterr().err


def test_files_that_cannot_be_replayed(place: Path, program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = place / "it.trace.gz"
    assert main(["record", "-o", str(out), "--", str(program), "work"]) == 0
    out.write_bytes(out.read_bytes()[: out.stat().st_size // 2])
    (place / "text").write_text("no trace" * 100)
    for path, status, words in (
        (out, 5, "was cut: its first "),
        (place / "text", 2, "is not a trace: tslab record makes one"),
        (place / "nowhere", 2, "cannot read the trace"),
        (place, 2, "cannot read the trace"),
    ):
        capfd.readouterr()
        assert main(["replay", str(path)]) == status
        assert words in capfd.readouterr().err
    assert main(["replay", str(out), "--window", "3"]) == 2
    assert "--window takes at least 64, not 3" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ([], 2, "no command: tslab record [options] -- COMMAND..."),
        (["--", "nobody-has-this"], 127, "no command 'nobody-has-this' to run"),
        (["--", "/etc/passwd"], 126, "cannot run '/etc/passwd': Permission denied"),
        (["-o", "/nowhere/it.trace", "--", "true"], 2, "there is no directory /nowhere"),
        (["--preset", "nosuch", "--", "true"], 2, "build it there with ./dev build nosuch --all"),
    ],
)
def test_what_cannot_be_recorded(
    place: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], status: int, said: str,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if "nosuch" not in words:
        monkeypatch.setattr("tslab.commands.record.find_recorder", lambda preset: BUILT / trace.LIBRARY)
        monkeypatch.chdir(place)
    assert main(["record", *words]) == status
    assert said in capfd.readouterr().err


def test_the_suite_s_recordings_are_made_where_they_are_missing(place: Path) -> None:
    """Only the missing ones are asked for, and nothing is where there is no recorder."""
    suite = Project(place)
    (place / "bench").mkdir()
    (suite.workloads / "traces").mkdir(parents=True)
    (suite.workloads / "traces" / "there.trace").touch()
    script = "import pathlib, sys; pathlib.Path(__file__).with_name('said').write_text(' '.join(sys.argv[1:]))"
    (place / "bench" / "traces.py").write_text(script)
    wanted = ["--trace=there", "--trace=gone", "--trace=lost"]
    trace.make_missing(suite, wanted)
    assert not (place / "bench" / "said").exists()
    (suite.workloads / trace.LIBRARY).touch()
    trace.make_missing(suite, wanted)
    assert (place / "bench" / "said").read_text() == f"gone lost --folder={suite.workloads}"


def test_a_size_that_is_none(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["record", "--limit", "7", "--", "true"])
    assert "a size of at least 64K, such as 200M or 1G, not '7'" in capfd.readouterr().err
