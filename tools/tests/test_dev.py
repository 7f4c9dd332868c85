"""./dev: help helps, and what a subcommand does not take is refused, before anything is installed, built or written."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import REPOSITORY
from test_completion import tab

# Programs that only read. ./dev finds no other program, and would say so.
READERS = ("bash", "cat", "cut", "dirname", "grep", "nproc", "sed", "sort", "tail")
TEXT = (REPOSITORY / "dev").read_text()
SUBCOMMANDS = re.findall(r"^## (\w+) ", TEXT, re.MULTILINE)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for name in READERS:
        found = shutil.which(name)
        assert found
        (tmp_path / "bin" / name).symlink_to(found)
    (tmp_path / "tree").mkdir()
    shutil.copy(REPOSITORY / "dev", tmp_path / "tree" / "dev")
    return tmp_path


def dev(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(place / "bin"), "HOME": str(place / "home"), "TMPDIR": str(place / "tmp")}
    tree = place / "tree"
    done = subprocess.run(
        [tree / "dev", *words], env=environment, cwd=tree, capture_output=True, text=True, check=False, timeout=60
    )
    assert [path.name for path in tree.iterdir()] == ["dev"], "it made something"
    return done


def test_every_subcommand_has_its_lines() -> None:
    assert sorted(SUBCOMMANDS) == sorted(re.findall(r"^cmd_(\w+)\(\)", TEXT, re.MULTILINE))
    assert len(re.findall(r"^#\? ", TEXT, re.MULTILINE)) == len(SUBCOMMANDS)


@pytest.mark.parametrize("name", SUBCOMMANDS)
@pytest.mark.parametrize("words", [("--help",), ("-h",), ("something", "--help"), ("--no-such-option", "-h")])
def test_help_helps_and_does_nothing_else(place: Path, name: str, words: tuple[str, ...]) -> None:
    done = dev(place, name, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: ./dev {name} ")
    assert done.stdout == dev(place, "help", name).stdout


def offered(place: Path, *words: str) -> list[str]:
    """Returns what bash offers for the last of the words after ./dev."""
    text = f'{dev(place, "completion").stdout}\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tslab_dev\n'
    command = ["bash", "-uc", text + 'echo "${COMPREPLY[@]}"', "bash", "./dev", *words]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_bash_completes(place: Path) -> None:
    assert offered(place, "") == SUBCOMMANDS
    assert offered(place, "he") == ["help"]
    assert "hardened" in offered(place, "build", "")
    assert offered(place, "build", "--a") == ["--all"]
    assert offered(place, "build", "asan", "--a") == ["--all"]
    assert offered(place, "bench", "--") == ["--help", "--quick", "--budget", "--workload", "--allocator", "--baseline"]
    assert offered(place, "help", "d") == ["docs", "demo"]
    assert sorted(offered(place, "install", "")) == ["bin", "tree"]
    assert offered(place, "test", "") == offered(place, "nothing", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_person_types_tab(place: Path, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    script = 'eval "$(./dev completion)"'
    load = {"bash": script, "zsh": f"autoload -Uz compinit && compinit -u -D && {script}"}
    tab(place / "tree", shell, "./dev bench --quick --bud", "./dev bench --quick --budget ", load[shell])


@pytest.mark.parametrize("words", [(), ("help",), ("--help",), ("-h",)])
def test_the_list_has_every_subcommand(place: Path, words: tuple[str, ...]) -> None:
    done = dev(place, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"^  (\w+) ", done.stdout, re.MULTILINE) == SUBCOMMANDS


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_options_that_a_subcommand_does_not_take(place: Path, name: str) -> None:
    for option in ("--no-such-option", "--no-such-option=1", "--quick=1"):
        done = dev(place, name, option)
        said = f"dev: ./dev {name} does not take '{option}'; ./dev {name} --help says what it takes\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("build", "nothing"), "no preset 'nothing'; choose from: release"),
        (("build", "release", "debug"), "./dev build does not take 'debug'"),
        (("install",), "which directory?"),
        (("install", "a", "b"), "./dev install does not take 'b'"),
        (("test", "quick"), "./dev test does not take 'quick'"),
        (("bench", "quick"), "./dev bench does not take 'quick'"),
        (("bench", "--quick", "--budget"), "./dev bench: --budget needs a value"),
        (("bench", "--budget", "5", "extra"), "./dev bench does not take 'extra'"),
        (("demo", "nothing"), "no demo 'nothing'; ./dev demo, or ./dev demo redis"),
        (("demo", "redis", "tide"), "./dev demo does not take 'tide'"),
        (("nothing",), "no subcommand 'nothing'; ./dev help lists them"),
        (("nothing", "--help"), "no subcommand 'nothing'"),
        (("help", "nothing"), "no subcommand 'nothing'"),
    ],
)
def test_arguments_that_are_refused(place: Path, words: tuple[str, ...], message: str) -> None:
    done = dev(place, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"dev: {message}")


def function(name: str) -> str:
    found = re.search(rf"^{name}\(\) {{$.*?^}}$", TEXT, re.MULTILINE | re.DOTALL)
    assert found
    return found[0]


SHORT_WORDS, LONG_WORDS = "-q --durations=10 -n 2 tools/tests", "-q -m soak tools/tests"
OF_THE_LAB = ("sum_up", "start_lab_tests", "finish_lab_tests", "run_long_lab_tests", "count_lab_tests")


def bash(place: Path, stubs: str, lines: str, *functions: str) -> subprocess.CompletedProcess[str]:
    """Runs the lines with these functions of ./dev, and with others that do nothing."""
    script = "\n".join(
        [
            "set -euo pipefail; jobs=1 passed=0 failed=0 skipped=0",
            *(f"{name}() {{ :; }}" for name in stubs.split()),
            *(function(name) for name in functions),
            lines,
        ]
    )
    return subprocess.run(["bash", "-c", script], cwd=place, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(("command", "words"), [("test", SHORT_WORDS), ("soak", LONG_WORDS)])
def test_the_lab_s_tests_are_run_and_counted(tmp_path: Path, command: str, words: str) -> None:
    pytest_ = tmp_path / ".venv/bin/pytest"
    pytest_.parent.mkdir(parents=True)
    pytest_.write_text(
        '#!/bin/sh\necho "$@" > words\ngrep SigIgn /proc/self/status > ignored\n'
        'echo "1 failed, 14 passed, 2 skipped in 3s"\nexit 1\n'
    )
    pytest_.chmod(0o755)
    stubs = "need_test_tools need_lab_tools start_builds await_build say run_tests"
    done = bash(tmp_path, stubs, f"cmd_{command}", *OF_THE_LAB, f"cmd_{command}")
    assert (tmp_path / "words").read_text() == words + "\n"
    assert int((tmp_path / "ignored").read_text().split()[1], 16) & 6 == 0, "it cannot be interrupted"
    assert done.stdout.endswith("\n14 passed, 1 failed, 2 skipped\n")
    assert done.returncode == 1


BUILDS = ("choose", "start_builds", "build_all", "await_build")
TWO = 'presets=(release hardened) hardened_tests=(heap); declare -A is_built; die() { echo "died: $1"; exit 1; }\n'


def test_builds_go_on_beside_the_tests(tmp_path: Path) -> None:
    lines = TWO + 'build() { echo "$@" >> built; }\nstart_builds short\nawait_build hardened\nawait_build release\n'
    done = bash(tmp_path, "say", lines, *BUILDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "built").read_text() == "release\nhardened tslab test_heap\n"


def test_a_build_that_fails_is_shown_and_ends_it(tmp_path: Path) -> None:
    fails = 'build() { echo "$1 is bad" >&2; [ "$1" = release ]; }\n'
    done = bash(
        tmp_path,
        "say",
        TWO + fails + "start_builds short\nawait_build release\necho tested\nawait_build hardened\n",
        *BUILDS,
    )
    assert (done.returncode, done.stdout) == (1, "tested\ndied: hardened could not be built\n")
    assert done.stderr == "hardened is bad\n"


def test_presets_are_tested_and_counted(tmp_path: Path) -> None:
    said = """ 1/3 Test  #1: quick ........................   Passed    0.10 sec
 2/3 Test  #12: slow ........................   Passed   12.40 sec
 3/3 Test  #3: bad .....***Failed    1.00 sec

67% tests passed, 1 tests failed out of 3
"""
    (tmp_path / "said").write_text(said)
    lines = TWO + 'build() { :; }\nctest() { cat said; return 8; }\nfixed_addresses() { "$@"; }\n'
    lines += "start_builds short\nrun_tests short\nsum_up\n"
    done = bash(tmp_path, "say", lines, *BUILDS, "run_tests", "slowest", "sum_up")
    assert (done.returncode, done.stderr) == (1, "")
    slowest = "slowest: slow 12 s, bad 1 s, quick 0 s\n"
    assert done.stdout == f"{said}{slowest}" * 2 + "\n4 passed, 2 failed, 0 skipped\n"
