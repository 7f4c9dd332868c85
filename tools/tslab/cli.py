"""The tslab command."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from rich.console import Console

from tslab.commands import COMMANDS, documentation, load
from tslab.errors import LabError

PIPE_WIDTH = 320
TAKE_PROGRAMS = ("run", "record", "ab")


def build_parser(names: Sequence[str] = COMMANDS, whole: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Returns the parser of these commands. Only a command that is alone, or among the `whole`, has its options."""
    parser = argparse.ArgumentParser(
        prog="tslab", description="Inspect and benchmark programs that run under temporal-slab."
    )
    parser.add_argument(
        "--version", action="version", help="print the version and exit",
        version=f"tslab {metadata.version('tslab')}",
    )  # fmt: skip
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in names:
        text = documentation(name)
        subparser = subparsers.add_parser(
            name, help=text.splitlines()[0], description=text, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in whole or len(names) == 1:
            module = load(name)
            module.prepare(subparser)
            subparser.set_defaults(module=module)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    # The words after -- are a program with options of its own, which argparse must not read.
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    named = [name for name in words[:1] if name in COMMANDS]
    if sys.stdout is None:  # closed
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    try:
        parser = build_parser(named or COMMANDS)
    except LabError as error:
        print(f"tslab {named[0]}: {error}", file=sys.stderr)
        return error.exit_code
    arguments, unknown = parser.parse_known_args(words[:cut])
    if unknown:
        hint = "; a command and its options come after --" if named and named[0] in TAKE_PROGRAMS else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    arguments.program = words[cut + 1 :]
    # In a file or a pipe there is no screen to fit, and a table keeps all of its columns.
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=PIPE_WIDTH)
    try:
        status = int(arguments.module.run(arguments, console))
        sys.stdout.flush()
        return status
    except LabError as error:
        print(f"tslab {arguments.command}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader has seen enough, as head has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        print(f"tslab {arguments.command}: cannot go on:{where} {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more can be said there
        return 2
    except KeyboardInterrupt:
        print(f"tslab {arguments.command}: interrupted; nothing was written", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
