"""Processes under temporal-slab, live, by keys: processes, classes, epochs, tails, contention, call sites.

tslab top                           all processes that you may read
tslab top 4711                      one of them, its classes first

? lists the keys. Nothing is asked of the processes: their figures lie in shared memory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console

from tslab import served
from tslab.commands import ps
from tslab.errors import LabError
from tslab.figures import Source, read_pair
from tslab.reporters.screen import redraw
from tslab.top import Seen, Top, screen

EVERY_S = 1.0
_NAMES = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left", "\x1bOA": "up", "\x1bOB": "down",
    "\x1bOC": "right", "\x1bOD": "left", "\x1b[5~": "pageup", "\x1b[6~": "pagedown", "\x1b[H": "home", "\x1b[F": "end",
    "\x1b[1~": "home", "\x1b[4~": "end", "\t": "tab", "\r": "enter", "\n": "enter", "\x7f": "backspace",
    "\x08": "backspace", "\x1b": "escape",
}  # fmt: skip
_KEY = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Z])|.", re.DOTALL)


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", nargs="?", metavar="PID", help="the process to look into (default: all)")
    parser.add_argument(
        "--every", type=float, default=EVERY_S, metavar="SECONDS", help="how often to look (default: %(default)g)"
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    if not 0.25 <= arguments.every <= 60:
        raise LabError(f"--every takes 0.25 to 60 seconds, not {arguments.every:g}")
    top = Top(every_s=arguments.every)
    if arguments.pid is not None:
        source = Source(arguments.pid)
        if source.pid is None:
            raise LabError(f"'{arguments.pid:.100}' is a file: tslab stats shows files, tslab top live processes")
        source.read()
        top.pid, top.view = source.pid, 1
    if not (console.is_terminal and sys.stdin.isatty()):
        raise LabError("tslab top needs a terminal: use tslab ps or tslab stats PID, with --json for programs")
    with _terminal(console):
        _loop(top, console)
    return 0


def _loop(top: Top, console: Console) -> None:
    next_look, first = 0.0, True
    while not top.done:
        if not top.paused and time.monotonic() >= next_look:
            look(top)
            next_look = time.monotonic() + top.every_s
        redraw(console, screen(top, console.width, console.height - 1), first)
        first = False
        wait = 3600.0 if top.paused else max(0.0, next_look - time.monotonic())
        for key in _keys(wait):
            before = (top.view, top.pid)
            top.key(key)
            if (top.view, top.pid) != before and not top.paused:
                next_look = 0.0


def look(top: Top) -> None:
    """Reads what the view shows: one process, or all."""
    pids = served.published() if top.view == 0 else [top.pid or 0]
    if top.view:
        with contextlib.suppress(LabError):  # it has ended: its last figures stay
            document, before = read_pair(pids[0])
            _take(top, pids[0], document, before)
            return
        if top.pid in top.seen:
            top.seen[top.pid].document["state"] = "ended"
        return
    found = list(served.read_all(pids))
    for one in found:
        if one.document:
            _take(top, one.pid, one.document, one.before)
    # Over a minute a change means more than over the last second, which is all that ps has.
    top.rows = [replace(row, change=top.seen[one.pid].change()) for one in found if (row := ps.row_of(one))]
    here = {row.pid for row in top.rows}
    top.seen = {pid: seen for pid, seen in top.seen.items() if pid in here}


def _take(top: Top, pid: int, document: dict[str, object], before: dict[str, object] | None) -> None:
    top.seen.setdefault(pid, Seen(document)).take(document, before)


# ---- the terminal ----------------------------------------------------------------------------------------------------


def _keys(seconds: float) -> Iterator[str]:
    """Returns the keys typed within that time; none if the window changes its size."""
    ready, _, _ = select.select([sys.stdin.fileno(), _wake[0]], [], [], seconds)
    if _wake[0] in ready:
        os.read(_wake[0], 512)
    if sys.stdin.fileno() in ready:
        data = os.read(sys.stdin.fileno(), 512)
        if not data:  # the terminal is gone
            yield "q"
        for key in _KEY.findall(data.decode(errors="replace")):
            yield _NAMES.get(key, key)


_wake = [-1, -1]


@contextlib.contextmanager
def _terminal(console: Console) -> Iterator[None]:
    """A screen of our own, keys one by one; all of it is put back, also when we are stopped or ended."""
    mode = termios.tcgetattr(sys.stdin)
    _wake[:] = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def enter() -> None:
        tty.setcbreak(sys.stdin)
        console.file.write("\x1b[?1049h\x1b[?25l")
        console.file.flush()

    def leave() -> None:
        console.file.write("\x1b[?25h\x1b[?1049l")
        console.file.flush()
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, mode)

    def stop(number: int, _: object) -> None:
        leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        enter()

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    signal.set_wakeup_fd(_wake[1], warn_on_full_buffer=False)
    handlers = {signal.SIGWINCH: lambda *_: None, signal.SIGTSTP: stop, signal.SIGTERM: end, signal.SIGHUP: end}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    enter()
    try:
        yield
    except KeyboardInterrupt:
        pass  # as q
    finally:
        leave()
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        for descriptor in _wake:
            os.close(descriptor)
