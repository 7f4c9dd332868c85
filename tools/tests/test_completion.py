"""Shells complete `tslab` and `./dev`: the scripts are those of today's parser, and a real shell completes by them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import REPOSITORY

from tslab.cli import main
from tslab.commands import COMMANDS
from tslab.commands.completion import FILES

SUBCOMMANDS = re.findall(r"^## (\w+) ", (REPOSITORY / "dev").read_text(), re.MULTILINE)
COMPLETES = r"""
eval "$1"
shift
words=("$@")
registered=$(complete -p "$1") || exit 1
[[ $registered =~ -F\ ([^ ]+) ]] || exit 1
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMPREPLY=()
"${BASH_REMATCH[1]}" "$1" "${!#}" "${words[$# - 2]}"
printf '%s\n' "${COMPREPLY[@]}"
"""


def in_bash(script: str, *words: str, where: Path = REPOSITORY) -> set[str]:
    """What bash offers for the last of `words`."""
    done = subprocess.run(
        ["bash", "--norc", "-c", COMPLETES, "bash", script, *words],
        cwd=where,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return {line.rstrip() for line in done.stdout.splitlines()} - {""}


def dev_script() -> str:
    return subprocess.run([REPOSITORY / "dev", "completion"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("shell", sorted(FILES))
def test_the_scripts_are_of_this_parser(shell: str) -> None:
    pytest.importorskip("shtab")
    from tslab.manual import completion  # noqa: PLC0415 it needs what the lab needs

    assert FILES[shell].read_text() == completion(shell), "write them anew: python -m tslab.manual"


@pytest.mark.parametrize("shell", sorted(FILES))
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == FILES[shell].read_text()


def test_bash_completes_tslab(tmp_path: Path) -> None:
    script = FILES["bash"].read_text()
    assert in_bash(script, "tslab", "") >= set(COMMANDS)
    assert in_bash(script, "tslab", "do") == {"doctor"}
    assert in_bash(script, "tslab", "stats", "--w") == {"--watch"}
    assert in_bash(script, "tslab", "ps", "--sort", "re") == {"resident"}
    (tmp_path / "saved.json").touch()
    assert in_bash(script, "tslab", "stats", "sav", where=tmp_path) == {"saved.json"}


def test_bash_completes_dev() -> None:
    script = dev_script()
    assert in_bash(script, "./dev", "") == set(SUBCOMMANDS)
    assert in_bash(script, "./dev", "so") == {"soak"}
    assert in_bash(script, "./dev", "bench", "--b") == {"--budget", "--baseline"}
    assert in_bash(script, "./dev", "soak", "-") == {"--help"}


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh here")
def test_zsh_takes_both() -> None:
    dev, tslab = shlex.quote(dev_script()), shlex.quote(FILES["zsh"].read_text())
    script = f"autoload -Uz compinit && compinit -D\neval {tslab}\neval {dev}\nprint $_comps[tslab] $_comps[dev]"
    done = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, check=False)
    assert "_shtab_tslab" in done.stdout
    assert "_tslab_dev" in done.stdout
