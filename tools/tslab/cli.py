"""The tslab command."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from rich.console import Console

from tslab.commands import COMMANDS, load
from tslab.errors import LabError

PIPE_WIDTH = 320


def build_parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tslab", description="The glass box and the laboratory of temporal-slab.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in names:
        module = load(name)
        text = (module.__doc__ or "").strip()
        subparser = subparsers.add_parser(
            name, help=text.splitlines()[0], description=text, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.prepare(subparser)
        subparser.set_defaults(module=module)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    # What follows -- is a program with options of its own, which argparse must not look at.
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    named = [name for name in words[:1] if name in COMMANDS]
    arguments = build_parser(named or COMMANDS).parse_args(words[:cut])
    arguments.program = words[cut + 1 :]
    # In a file or a pipe there is no screen to fit, and a table keeps all of its columns.
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=PIPE_WIDTH)
    try:
        return int(arguments.module.run(arguments, console))
    except LabError as error:
        print(f"tslab {arguments.command}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # whoever read our output has seen enough, as head has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        print(f"tslab {arguments.command}: interrupted; nothing was written", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
