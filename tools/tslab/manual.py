"""Makes the manual page tslab(1) and completion for shells from the parser of every command.

python -m tslab.manual              writes the files in tslab/completions anew, with shtab
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from tslab.cli import build_parser
from tslab.commands import COMMANDS
from tslab.commands.completion import FILES

_SOURCES = ("PID", "PID|FILE", "A", "B", ("A", "B"))
_ASK = dict.fromkeys(FILES, "_tslab_process_or_file")  # shtab's bash takes it for one of files by this name

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
_BEFORE_ENDS = {"bash": "\ncomplete -o", "zsh": "\nif [[ $zsh_eval_context"}  # _ENDS take the place of this
_ENDS = {
    "bash": "complete -o bashdefault -o default -F _tslab tslab\n",
    "zsh": """
if [[ $zsh_eval_context[-1] == eval ]]; then
  compdef _tslab tslab
else # read by zsh itself, at the first Tab
  _tslab "$@"
fi
""",
}


def parser() -> argparse.ArgumentParser:
    return build_parser(whole=COMMANDS)


def actions_of(some: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Returns the actions of a parser and of the parsers below it."""
    for action in some._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from actions_of(below)


def completion(shell: str) -> str:
    """Returns the script that teaches `shell` the commands and options of tslab, and which processes there are."""
    import shtab  # noqa: PLC0415 only developers have it

    whole = parser()
    for action in actions_of(whole):
        if action.metavar in _SOURCES:
            action.complete = _ASK  # type: ignore[attr-defined]
        elif action.type is Path:
            action.complete = shtab.DIRECTORY if action.metavar == "FOLDER" else shtab.FILE  # type: ignore[attr-defined]
    script, end, _ = str(shtab.complete(whole, shell, preamble=_HELPERS[shell])).rpartition(_BEFORE_ENDS[shell])
    assert end
    return f"{script.rstrip()}\n\n{_ENDS[shell].lstrip()}"


if __name__ == "__main__":
    for name, path in FILES.items():
        path.write_text(completion(name), encoding="utf-8")
