"""The processes that run under temporal-slab, the largest first.

tslab ps                            every process that you may read, containers included
tslab ps --sort change --watch      again every two seconds, in place
tslab ps --json                     one JSON document

Nothing is asked of the processes: their figures lie in shared memory. K, M and G are 1,024 to the power of 1, 2 and 3.
CHANGE/MIN is how live memory changed within the last second that the process was active in, as a rate per minute.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from tslab import process as processes
from tslab import served
from tslab.errors import LabError
from tslab.figures import RESIDENT, Document
from tslab.rates import Between
from tslab.reporters.quantities import share_text, short_bytes, short_count, short_rate, short_time, signed
from tslab.reporters.screen import Column, fit, joined, redraw, shorten
from tslab.served import Served

WATCH_S = 2.0
# A process publishes once a second while it allocates; older figures mean that nothing happens now.
NOW_NS = 3_000_000_000


@dataclass(frozen=True)
class Row:
    """The line of ps and top about a process."""

    pid: int
    user: str
    command: str
    state: str
    version: str
    live: int
    in_use: int
    resident: int
    change: float | None  # bytes of live memory a minute
    calls: float | None  # allocations a second
    epochs: int
    oldest_ns: int | None
    slow: float | None
    document: Document


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sort", choices=tuple(_SORTS), default="live", help="the largest first (default: %(default)s; pid: smallest)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document; with --watch one a line")
    parser.add_argument(
        "--watch", nargs="?", type=float, const=WATCH_S, metavar="SECONDS",
        help=f"again and again until Ctrl-C (default: every {WATCH_S:g} s)",
    )  # fmt: skip


def run(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.watch is not None and not 0.1 <= arguments.watch <= 86400:
        raise LabError(f"--watch takes 0.1 to 86400 seconds, not {arguments.watch:g}")
    first = True
    try:
        while True:
            known = served.published()
            found = list(served.read_all(known))
            silent = [pid for pid in served.idle(known) if _readable(pid)]
            rows = sorted(filter(None, map(row_of, found)), key=_SORTS[arguments.sort])
            if arguments.json:
                print(json.dumps(_as_json(rows, found, silent), indent=None if arguments.watch else 1), flush=True)
            elif arguments.watch is not None:
                redraw(console, screen(rows, found, silent, console.width, console.height - 1), first)
            else:
                for line in screen(rows, found, silent, console.width):
                    console.print(line, soft_wrap=True)
            if arguments.watch is None:
                return 0
            first = False
            time.sleep(arguments.watch)
    except KeyboardInterrupt:
        return 0  # how a person ends a watch


def row_of(one: Served) -> Row | None:
    document = one.document
    if document is None:
        return None
    total = document["process"]
    between = Between(one.before, document) if one.before else None
    active = document.get("age_ns", 0) < NOW_NS and document["state"] not in ("stopped", "traced")
    change = between.rate("live_bytes") if between else None
    calls = between.rate("allocations") if between else None
    users = one.process.users if one.process else frozenset()
    words = document.get("library", "").split()
    return Row(
        pid=one.pid, user=processes.owner_names(users), command=short_command(document.get("command", "")),
        state=document["state"],
        version=words[1] if len(words) > 1 else "?", live=total.get("live_bytes", 0),
        in_use=total.get("in_use_bytes", 0), resident=total.get(RESIDENT, 0),
        change=None if change is None else 60 * change if active else 0.0,
        calls=None if calls is None else max(0.0, calls) if active else 0.0,
        epochs=total.get("epochs_open", 0) + total.get("epochs_closing", 0),
        oldest_ns=max((row.get("age_ns", 0) for row in document["epochs"]), default=None),
        slow=total["derived"]["slow_share"], document=document,
    )  # fmt: skip


def short_command(command: str) -> str:
    """Without the folder of the program, which would fill the column."""
    program, space, rest = command.partition(" ")
    return (program.rpartition("/")[2] or program) + space + rest


def change_text(row: Row) -> str:
    return "–" if row.change is None else signed(short_bytes(row.change), row.change)


COLUMNS = (
    Column("PID", lambda row: str(row.pid), value=lambda row: row.pid),
    Column("USER", lambda row: row.user, rank=8, text=True),
    Column("LIVE", lambda row: short_bytes(row.live), value=lambda row: row.live),
    Column("IN USE", lambda row: short_bytes(row.in_use), rank=2, value=lambda row: row.in_use),
    Column(
        "RESIDENT", lambda row: short_bytes(row.resident) if row.resident else "–", rank=1,
        value=lambda row: row.resident,
    ),
    Column("CHANGE/MIN", change_text, rank=1, value=lambda row: row.change),
    Column("ALLOC/S", lambda row: short_rate(row.calls), rank=6, value=lambda row: row.calls),
    Column("EPOCHS", lambda row: short_count(row.epochs), rank=3, value=lambda row: row.epochs),
    Column("OLDEST", lambda row: short_time(row.oldest_ns), rank=4, value=lambda row: row.oldest_ns),
    Column("SLOW", lambda row: share_text(row.slow).replace(" ", ""), rank=5, value=lambda row: row.slow),
    Column("VERSION", lambda row: row.version, rank=7),
    Column("COMMAND", lambda row: row.command, text=True),
)  # fmt: skip

_SORTS: dict[str, Any] = {
    "live": lambda row: -row.live,
    "resident": lambda row: -row.resident,
    "change": lambda row: -(row.change or 0),
    "epochs": lambda row: -row.epochs,
    "slow": lambda row: -(row.slow or 0),
    "pid": lambda row: row.pid,
}


def screen(
    rows: list[Row], found: list[Served], silent: list[int], width: int, height: int | None = None
) -> list[Text]:
    one_user = len({row.user for row in rows}) <= 1
    columns = [column for column in COLUMNS if column.title != "USER" or not one_user]
    notes = _notes([one for one in found if one.document is None], silent, width)
    room = len(rows) if height is None else max(1, height - 1 - len(notes))
    if not rows:
        hint = "no process that you may read has figures: start one with `tslab run -- COMMAND`"
        return [Text(shorten(hint, width)), *notes]
    fitted = fit(columns, rows, width)
    lines = [fitted.head(), *map(fitted.row, rows[:room])]
    if len(rows) > room:
        lines[-1] = Text(f"and {len(rows) - room + 1} more")
    return lines + notes


def _notes(unread: list[Served], silent: list[int], width: int) -> list[Text]:
    lines = [Text(shorten(f"{one.pid}: {one.why}", width), style="dim") for one in unread[:3]]
    if len(unread) > 3:
        lines.append(Text(f"and {len(unread) - 3} more that cannot be read", style="dim"))
    if silent:
        numbers = ", ".join(map(str, silent[:5])) + (", …" if len(silent) > 5 else "")
        words = [f"{len(silent)} more under the library without figures: {numbers}", "`tslab stats PID` says why"]
        lines += [Text(line, style="dim") for line in joined(words, width)]
    return lines


def _readable(pid: int) -> bool:
    found = processes.look(pid)
    return found is not None and found.state != processes.STATES["Z"]


def _as_json(rows: list[Row], found: list[Served], silent: list[int]) -> Document:
    return {
        "schema_version": 1,
        "processes": [
            {
                "pid": row.pid, "user": row.user, "command": row.command, "state": row.state, "version": row.version,
                "live_bytes": row.live, "in_use_bytes": row.in_use, "resident_bytes": row.resident,
                "live_bytes_per_minute": row.change, "allocations_per_second": row.calls, "epochs": row.epochs,
                "oldest_epoch_ns": row.oldest_ns, "slow_share": row.slow,
            }
            for row in rows
        ],
        "unreadable": [{"pid": one.pid, "why": one.why} for one in found if one.document is None],
        "without_figures": silent,
    }  # fmt: skip
