"""The figures of a running process, or of saved ones.

tslab stats 4711                    what a person asks first, on one screen: findings, memory, top classes and labels
tslab stats 4711 --all              every class, path, label, epoch, lock and thread
tslab stats 4711 --watch            again every two seconds, in place, with what happened since
tslab stats 4711 --json             everything, by the schema that `tslab fields --schema` prints
tslab stats 4711 --save now.seg     a copy for later: tslab stats now.seg, tslab diff now.seg 4711

The process is only looked at: it need not answer, and may hang, be stopped, or be dead.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from tslab import process as processes
from tslab.errors import LabError, Unreadable
from tslab.figures import Document, Source, read_pair
from tslab.findings import findings
from tslab.looks import Look
from tslab.reporters.figures import print_stats
from tslab.reporters.screen import redraw, show
from tslab.reporters.summary import summary

WATCH_S = 2.0


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="PID|FILE", help="a process, or a file that --save or --json made")
    parser.add_argument("--all", action="store_true", help="every table, as long as it is")
    parser.add_argument("--json", action="store_true", help="one JSON document; with --watch one a line")
    parser.add_argument(
        "--watch", nargs="?", type=float, const=WATCH_S, metavar="SECONDS",
        help=f"again and again until the process is gone (default: every {WATCH_S:g} s)",
    )  # fmt: skip
    parser.add_argument("--save", type=Path, metavar="FILE", help="also keep the figures in a file")


@contextmanager
def _interrupted() -> Iterator[threading.Event]:
    """Set by ctrl-C, which is how a person ends a watch. An exception could come where Python drops it."""
    stop = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _watch(arguments: argparse.Namespace, console: Console, source: Source, found: Document) -> int:
    with _interrupted() as stop:
        while found["state"] not in ("gone", "ended") and not stop.wait(arguments.watch):
            try:
                before, found = found, source.read()
            except Unreadable:
                if processes.look(source.pid or 0):
                    raise
                print(f"process {source.pid} has ended", file=sys.stderr)
                return 0
            _print(console, arguments, found, before, first=False)
    return 0


def run(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.watch is not None and not 0.1 <= arguments.watch <= 86400:
        raise LabError(f"--watch takes 0.1 to 86400 seconds, not {arguments.watch:g}")
    source = Source(arguments.source)
    if arguments.watch is not None and source.pid is None:
        raise LabError("a file does not change: --watch needs the number of a process")
    found, before = _first(source, arguments.save)
    _print(console, arguments, found, before, first=True)
    return 0 if arguments.watch is None else _watch(arguments, console, source, found)


def _first(source: Source, save: Path | None) -> tuple[Document, Document | None]:
    """The figures, and what the process published a second before, so that a first look has rates."""
    if save:
        return source.read_and_save(save), None
    return read_pair(source.pid) if source.pid is not None else (source.read(), None)


def _print(
    console: Console, arguments: argparse.Namespace, found: Document, before: Document | None, first: bool
) -> None:
    watching = arguments.watch is not None
    if arguments.json:
        print(json.dumps(found, indent=None if watching else 1, ensure_ascii=False), flush=True)
    elif arguments.all:
        if not first:
            console.print()
        print_stats(console, found, before if not first else None)
    else:
        # A look at a screen that nobody reads has no height; the prompt takes a line of one that somebody does.
        height = console.height - 1 if console.is_terminal else None
        lines = summary(found, before, findings([Look(found, None)]), console.width, height)
        if watching:
            redraw(console, lines, first)
        else:
            show(console, lines)
