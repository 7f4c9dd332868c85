"""The tslab command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from tslab.commands import COMMANDS
from tslab.errors import LabError

PIPE_WIDTH = 320


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tslab", description="The laboratory of temporal-slab.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
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
    arguments = build_parser().parse_args(words[:cut])
    arguments.program = words[cut + 1 :]
    # In a file or a pipe there is no screen to fit, and a table keeps all of its columns.
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=PIPE_WIDTH)
    try:
        return int(arguments.module.run(arguments, console))
    except LabError as error:
        print(f"tslab {arguments.command}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"tslab {arguments.command}: interrupted; nothing was written", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
