"""Print the script that completes tslab in a shell: commands, options, files, and processes under temporal-slab.

eval "$(tslab completion bash)"     in ~/.bashrc
eval "$(tslab completion zsh)"      in ~/.zshrc, after compinit
tslab completion processes          what may stand for a PID, one a line; the scripts ask for it
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console

from tslab import process, served

FOLDER = Path(__file__).parents[1] / "completions"
FILES = {"bash": FOLDER / "tslab.bash", "zsh": FOLDER / "_tslab"}  # python -m tslab.manual makes them
PROCESSES = "processes"
WIDTH = 60


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=(*FILES, PROCESSES), help="a script for this shell, or the list")


def run(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.what == PROCESSES:
        print("".join(f"{line}\n" for line in processes()), end="")
    else:
        print(FILES[arguments.what].read_text(encoding="utf-8"), end="")
    return 0


def processes() -> list[str]:
    """Returns a line `PID:COMMAND` for each process that has figures and that this user may read."""
    found = [one for pid in served.published() if (one := process.look(pid))]
    return [f"{one.pid}:{one.command[:WIDTH]}" for one in found if os.getuid() in {0, *one.users}]
