"""Print the script that completes the commands and options of tslab in a shell.

eval "$(tslab completion bash)"     in ~/.bashrc
eval "$(tslab completion zsh)"      in ~/.zshrc, after compinit
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

FOLDER = Path(__file__).parents[1] / "completions"
FILES = {"bash": FOLDER / "tslab.bash", "zsh": FOLDER / "_tslab"}  # python -m tslab.manual makes them


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=sorted(FILES), help="the shell that the script is for")


def run(arguments: argparse.Namespace, console: Console) -> int:
    print(FILES[arguments.shell].read_text(encoding="utf-8"), end="")
    return 0
