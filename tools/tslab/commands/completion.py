"""Shell completion: commands, options, files, and the numbers of processes under temporal-slab.

eval "$(tslab completion bash)"     in ~/.bashrc
eval "$(tslab completion zsh)"      in ~/.zshrc, below compinit
tslab completion processes          what may stand for a PID, one a line; the scripts ask for it

Commands of the laboratory complete with their options where what they need is installed.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from tslab import completion

PROCESSES = "processes"


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=(*completion.SHELLS, PROCESSES), help="a script for this shell, or the list")


def run(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.what == PROCESSES:
        print("".join(f"{line}\n" for line in completion.processes()), end="")
        return 0
    print(completion.script(arguments.what), end="")
    return 0
