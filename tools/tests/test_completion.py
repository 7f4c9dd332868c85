"""Tab in a real bash and a real zsh: commands, options, files, processes, and the program that `tslab run` starts."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import REPOSITORY
from terminal import Terminal
from test_cli import without_lab

from tslab import served
from tslab.cli import main
from tslab.commands import COMMANDS, OF_THE_LAB
from tslab.commands.completion import FILES, WIDTH, processes

LIBRARY = REPOSITORY / "build/release/libtslab.so"
PROCESS = """
import sys
held = bytearray(8 << 20), [bytes(1000) for _ in range(4000)]
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Returns a folder with two files in it. The command is in its bin, and both scripts, as they are printed."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "tslab"
    tools = shlex.quote(str(REPOSITORY / "tools"))
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH={tools}:$PYTHONPATH exec {shlex.quote(sys.executable)} -m tslab.cli "$@"\n'
    )
    command.chmod(0o755)
    (tmp_path / "saved figures.seg").touch()
    (tmp_path / "other").touch()
    for shell in FILES:
        (tmp_path / f".script.{shell}").write_text(FILES[shell].read_text())
    return tmp_path


@pytest.fixture
def pid() -> Iterator[int]:
    """Returns the number of a process that has figures."""
    environment = {**os.environ, "LD_PRELOAD": str(LIBRARY)}
    words = [sys.executable, "-c", PROCESS]
    with subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        end = time.monotonic() + 60
        while process.pid not in served.published():  # the library publishes for the first time
            assert time.monotonic() < end
            time.sleep(0.05)
        yield process.pid
        process.stdin.close()


def completed(place: Path, *words: str) -> list[str]:
    """Returns what bash offers for the last of the words of a line."""
    text = (
        'eval "$(cat .script.bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tslab tslab\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-euc", text, "bash", "tslab", *words],
        cwd=place, env={**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([""], sorted(COMMANDS)),
        (["do"], ["doctor"]),
        (["stats", "--sa"], ["--save"]),
        (["ps", "--sort", "r"], ["resident"]),
        (["run", "--json", "sa"], ["saved figures.seg"]),
        (["doctor", "sa"], ["saved figures.seg"]),
        (["report", "--page", ""], ["bin"]),
        (["run", "--hardened", "--", "tsla"], ["tslab"]),
        (["run", "--", "tslab", "--json", "./sa"], [""]),  # left to bash, which completes files
        (["completion", ""], ["bash", "processes", "zsh"]),
    ],
)
def test_bash_completes(place: Path, words: list[str], found: list[str]) -> None:
    assert completed(place, *words) == found


@pytest.mark.skipif(not LIBRARY.exists(), reason="no build/release")
@pytest.mark.parametrize("words", [["stats"], ["top"], ["profile", "--diff"], ["doctor", "--for", "3"]])
def test_bash_completes_processes(place: Path, pid: int, words: list[str]) -> None:
    assert str(pid) in completed(place, *words, str(pid)[:-1])
    assert str(pid) in completed(place, *words, "")
    assert completed(place, *words, "oth") == ["other"]


@pytest.mark.skipif(not LIBRARY.exists(), reason="no build/release")
def test_the_list_of_processes(pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = (line for line in processes() if line.startswith(f"{pid}:"))
    assert line.startswith(f"{pid}:{sys.executable}"[:WIDTH])
    assert "\n" not in line
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert not any(line.startswith(f"{pid}:") for line in processes())


def tab(place: Path, shell: str, line: str, until: str, load: str = "") -> None:
    """Types the line and Tab at the prompt of a shell, and waits until the screen has what is meant to be there."""
    start = {"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
    variables = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "HOME": str(place), "PS1": "ready> "}
    words = ["env", "-C", str(place), *start]
    terminal = Terminal(words, 100, 40, variables)
    with contextlib.closing(terminal):
        terminal.until(lambda: "ready>" in terminal.text)
        before = "autoload -Uz compinit && compinit -u -D && " if shell == "zsh" else ""
        load = load or f'{before}eval "$(cat .script.{shell})"'
        terminal.keys(f'{load} && clear && echo lo""aded\n')
        terminal.until(lambda: re.search(r"^loaded\nready>", terminal.text, re.MULTILINE) is not None)
        terminal.keys(f"{line}\t")
        shown = f"ready> {until}"
        terminal.until(lambda: shown.rstrip() in terminal.lines and terminal.screen.cursor.x == len(shown))


@pytest.mark.parametrize("shell", FILES)
@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("tslab do", "tslab doctor "),
        ("tslab stats --sa", "tslab stats --save "),
        ("tslab ps --sort re", "tslab ps --sort resident "),
        ("tslab run --json sa", "tslab run --json saved\\ figures.seg "),
        ("tslab run -- tsla", "tslab run -- tslab "),
        ("tslab run -- cat oth", "tslab run -- cat other "),
    ],
)
def test_a_person_types_tab(place: Path, shell: str, line: str, whole: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    tab(place, shell, line, whole)


@pytest.mark.skipif(not LIBRARY.exists(), reason="no build/release")
@pytest.mark.parametrize("shell", FILES)
def test_a_person_types_tab_for_a_process(place: Path, pid: int, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    tab(place, shell, f"tslab stats {pid}", f"tslab stats {pid} ")


@pytest.mark.parametrize("shell", FILES)
def test_the_scripts_are_of_this_parser(shell: str) -> None:
    pytest.importorskip("shtab")
    from tslab.manual import completion  # noqa: PLC0415 it needs what the lab needs

    assert FILES[shell].read_text() == completion(shell), "write them anew: python -m tslab.manual"


@pytest.mark.parametrize("shell", FILES)
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == FILES[shell].read_text()


@pytest.mark.parametrize("what", [*FILES, "processes"])
def test_it_needs_no_library_of_the_lab(what: str) -> None:
    done = without_lab("completion", what, blocked=(*OF_THE_LAB, "shtab"))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", FILES)
def test_the_file_that_packages_install(place: Path, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    folder = shlex.quote(str(FILES[shell].parent))
    load = {
        "bash": f". {folder}/tslab.bash",
        "zsh": f"fpath=({folder} $fpath) && autoload -Uz compinit && compinit -u -D",
    }
    tab(place, shell, "tslab do", "tslab doctor ", load[shell])
    tab(place, shell, "tslab run -- cat oth", "tslab run -- cat other ", load[shell])
