"""What is made from the parser of every command: the manual page tslab(1), and completion for shells.

python -m tslab.manual              writes the files in tslab/completions anew, with shtab
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from tslab.cli import build_parser
from tslab.commands.completion import FILES


def parser() -> argparse.ArgumentParser:
    return build_parser(complete=True)


def actions_of(some: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The actions of a parser and of the parsers below it."""
    for action in some._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from actions_of(below)


def takes_a_file(action: argparse.Action) -> bool:
    return action.type is Path or "FILE" in str(action.metavar)


def completion(shell: str) -> str:
    """The script that teaches `shell` the commands and options of tslab."""
    import shtab  # noqa: PLC0415 only developers have it

    whole = parser()
    for action in actions_of(whole):
        if takes_a_file(action):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    script = str(shtab.complete(whole, shell))
    # Where nothing else fits, as after `tslab run --`, bash completes the names of files.
    return script.replace("complete -o bashdefault -F", "complete -o bashdefault -o default -F").rstrip() + "\n"


if __name__ == "__main__":
    for name, path in FILES.items():
        path.write_text(completion(name), encoding="utf-8")
