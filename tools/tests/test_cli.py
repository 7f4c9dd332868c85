"""Every command under right and wrong arguments, and with an output that takes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tslab.cli import main
from tslab.commands import COMMANDS, OF_THE_LAB
from tslab.errors import LabError
from tslab.given import place_for


def command(line: str) -> subprocess.CompletedProcess[str]:
    words = ["sh", "-c", line.replace("tslab", f"{sys.executable} -m tslab.cli", 1)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "ls"], "unrecognized arguments: ls; a command and its options come after --"),
        (["diff", "a", "b", "c"], "unrecognized arguments: c"),
        (["bench", "--budget", "nan"], "a number of minutes, above 0 and a week at most, not 'nan'"),
        (["ab", "tslab", "glibc", "--budget", "-1"], "a number of minutes, above 0 and a week at most, not '-1'"),
    ],
)
def test_words_that_mean_nothing(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert capsys.readouterr().err.rstrip().endswith(said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--", ""], "tslab run: no command: tslab run [options] -- COMMAND...\n"),
        (["stats", "x" * 5000], f"tslab stats: '{'x' * 100}' is neither the number of a process nor a file\n"),
        (["stats", ""], "tslab stats: '' is neither the number of a process nor a file\n"),
    ],
)
def test_names_of_nothing(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == said


def test_the_version() -> None:
    assert command("tslab --version").stdout.split()[0] == "tslab"


WITHOUT_LAB = (
    "import sys; sys.modules.update(dict.fromkeys({blocked!r}, None)); sys.argv = {words!r}\n"
    "from tslab.cli import main; sys.exit(main())"
)


def without_lab(*words: str, blocked: Sequence[str] = OF_THE_LAB) -> subprocess.CompletedProcess[str]:
    script = WITHOUT_LAB.format(blocked=tuple(blocked), words=["tslab", *words])
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_reads_processes_needs_no_library_of_the_lab(name: str) -> None:
    done = without_lab(name, "--help")
    if name in {"bench", "replay", "report", "ab", "verdict"}:
        assert done.returncode == 2
        assert done.stderr == f"tslab {name}: needs numpy, which is not installed: pip install 'tslab[lab]'\n"
    else:
        assert (done.returncode, done.stderr) == (0, "")


def test_the_list_of_commands_needs_no_library_of_the_lab() -> None:
    done = without_lab("--help")
    assert done.returncode == 0
    assert all(f"\n    {name}" in done.stdout for name in COMMANDS)


def test_a_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main(["stats", str(tmp_path / "pipe")]) == 5
    assert "is no regular file" in capsys.readouterr().err


def test_output_that_takes_nothing() -> None:
    full = command("tslab fields >/dev/full")
    assert (full.returncode, full.stderr) == (2, "tslab fields: cannot go on: No space left on device\n")
    closed = command("tslab fields >&-")
    assert (closed.returncode, closed.stderr) == (0, "")


def test_places_are_asked_for_before_the_work(tmp_path: Path) -> None:
    assert place_for(tmp_path / "result.json") == tmp_path / "result.json"
    with pytest.raises(LabError, match=r"is a directory: name a file in it"):
        place_for(tmp_path)
    with pytest.raises(LabError, match=r"there is no directory .*nowhere"):
        place_for(tmp_path / "nowhere" / "result.json")


def test_a_file_of_another_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = tmp_path / "a.json"
    for text in ("[]", '{"schema": "tslab-bench-1"}'):
        result.write_text(text)
        assert main(["report", str(result)]) == 2
        assert "is no result of tslab bench, or of an older one" in capsys.readouterr().err
