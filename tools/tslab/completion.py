"""The scripts by which bash and zsh complete `tslab`. shtab makes the most of each from the command's own parser."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType

from tslab import process, served
from tslab.cli import build_parser
from tslab.commands import COMMANDS, load
from tslab.errors import LabError

SHELLS = ("bash", "zsh")
WIDTH = 60
OLDEST = [1, 7]  # what older ones print fails in zsh, and in bash offers the first of several choices alone

_ASK = {shell: "_tslab_process_or_file" for shell in SHELLS}  # shtab's bash takes it for one of files by this name
_SOURCES = ("PID", "PID|FILE", "A", "B", ("A", "B"))

_HELPERS = {
    "bash": """
# Prints the processes that begin with $1, or else such files.
_tslab_process_or_file() {
  local found=
  [[ $1 == *[!0-9]* ]] || found=$("${COMP_WORDS[0]}" completion processes 2>/dev/null | cut -d: -f1)
  compgen -W "$found" -- "$1" || compgen -f -- "$1"
}

# Completes a program and its words, which begin at word $1.
_tslab_program() {
  local word=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=()
  if declare -F _command_offset >/dev/null; then
    _command_offset "$1"
  elif [[ $COMP_CWORD -eq $1 && $word != */* ]]; then
    mapfile -t COMPREPLY < <(compgen -c -- "$word" | sort -u)
  fi
}

_tslab() {
  local at
  for ((at = 1; at < COMP_CWORD; at++)); do
    [[ ${COMP_WORDS[at]} != -- ]] || { _tslab_program $((at + 1)) && return; }
  done
  _shtab_tslab "$@"
}
""",
    "zsh": """
_tslab_process_or_file() {
  local -a found=(${(f)"$($tslab_command completion processes 2>/dev/null)"})
  _describe -t processes 'process under temporal-slab' found
  _files
}

_tslab() {
  local tslab_command=$words[1] at=${words[(i)--]}
  if ((at < CURRENT)); then
    shift at words
    ((CURRENT -= at))
    _normal
  else
    _shtab_tslab "$@"
  fi
}
""",
}
_ENDS = {"bash": "complete -o bashdefault -o default -F _tslab tslab\n", "zsh": "compdef _tslab tslab\n"}


def script(shell: str) -> str:
    shtab = _shtab()
    parser = build_parser(whole=[name for name in COMMANDS if _loads(name)])
    for action in _actions(parser):
        if action.metavar in _SOURCES:
            action.complete = _ASK  # type: ignore[attr-defined]
        elif action.type is Path:
            action.complete = shtab.DIRECTORY if action.metavar == "FOLDER" else shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell=shell, preamble=_HELPERS[shell])) + "\n" + _ENDS[shell]


def processes() -> list[str]:
    """Returns a line `PID:COMMAND` for each process that has figures and that this user may read."""
    found = [one for pid in served.published() if (one := process.look(pid))]
    return [f"{one.pid}:{one.command[:WIDTH]}" for one in found if os.getuid() in {0, *one.users}]


def _shtab() -> ModuleType:
    """Loaded for a script alone: the list of processes, which is asked for at a Tab, does without."""
    try:
        version = metadata.version("shtab")
        if [int(part) for part in version.split(".")[:2]] >= OLDEST:
            return import_module("shtab")
    except ModuleNotFoundError:  # PackageNotFoundError is one, too
        version = "none"
    raise LabError(f"needs shtab {'.'.join(map(str, OLDEST))} or newer, and {version} is installed: pip install shtab")


def _loads(name: str) -> bool:
    try:
        load(name)
    except LabError:
        return False
    return True


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _actions(subparser)
        else:
            yield action
