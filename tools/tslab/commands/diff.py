"""What changed between two looks at a process, or between two processes, the largest first.

tslab stats 4711 --save before.seg; sleep 60; tslab diff before.seg 4711

Each side is the number of a process, a file of `tslab stats --save`, or one of `tslab stats --json`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console

from tslab.figures import RESIDENT, Document, Source
from tslab.metrics import KEYS, PROCESS, known_fields
from tslab.reporters.figures import print_table
from tslab.reporters.quantities import bytes_text, rate_text, time_text
from tslab.segment import COUNTER, GAUGE

MOST_ROWS = 20
_TITLES = {"bytes": "bytes", "nanoseconds": "time", "none": "counts"}


@dataclass(frozen=True)
class Change:
    where: str
    name: str
    kind: str
    unit: str
    before: int
    after: int

    @property
    def by(self) -> int:
        return self.after - self.before


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a process or a file, the earlier one")
    parser.add_argument("b", metavar="B", help="a process or a file, the later one")
    parser.add_argument("--all", action="store_true", help=f"every change (default: the {MOST_ROWS} largest of a kind)")


def run(arguments: argparse.Namespace, console: Console) -> int:
    first, second = Source(arguments.a).read(), Source(arguments.b).read()
    seconds = (second["timestamp_ns"] - first["timestamp_ns"]) / 1e9
    # What a counter has grown by is a rate only where both looks were at one life of one process.
    same = first["pid"] == second["pid"] and first.get("started_ns") == second.get("started_ns")
    one = same and seconds > 0
    console.print(
        f"process {first['pid']}, {time_text(seconds * 1e9)} between the figures"
        if one
        else f"process {first['pid']}: B is not later than A, so nothing is per second"
        if same
        else f"A is process {first['pid']}, B is process {second['pid']}: two lives, so nothing is per second",
        markup=False,
    )
    found = sorted(changes(first, second), key=lambda change: -abs(change.by))
    if not found:
        console.print("nothing changed")
        return 0
    for unit, title in _TITLES.items():
        own = [change for change in found if change.unit == unit]
        shown = own if arguments.all else own[:MOST_ROWS]
        more = f", the largest {len(shown)} of {len(own)}" if len(own) > len(shown) else ""
        print_table(
            console,
            f"{title}{more}",
            ["where", "what", "before", "after", "change", "per second"],
            (_cells(change, seconds if one else None) for change in shown),
            left=2,
        )
    return 0


def changes(first: Document, second: Document) -> Iterator[Change]:
    """Of all numbers that both have, or that one of them has and the other would have as 0."""
    known = known_fields()
    for name in (PROCESS, *KEYS):
        if name == "samples":
            continue
        before, after = _rows(first, name), _rows(second, name)
        for where in (*before, *(key for key in after if key not in before)):
            old, new = before.get(where, {}), after.get(where, {})
            for field in known.get(name, {}).values():
                if field.kind not in (COUNTER, GAUGE) or field.name == KEYS.get(name):
                    continue
                a, b = old.get(field.name, 0), new.get(field.name, 0)
                unknown = field.name == RESIDENT and 0 in (a, b)
                if a != b and not unknown:
                    yield Change(where, field.name, field.kind, field.unit, a, b)


def _rows(found: Document, name: str) -> dict[str, Document]:
    if name == PROCESS:
        return {PROCESS: found[PROCESS]}
    singular = {"classes": "class"}.get(name, name[:-1])
    return {f"{singular} {row[KEYS[name]] or '(none)'}": row for row in found[name]}


def _cells(change: Change, seconds: float | None) -> list[str]:
    def text(value: float) -> str:
        if change.unit == "bytes":
            return bytes_text(value)
        return time_text(value) if change.unit == "nanoseconds" else f"{value:,.0f}"

    rate = ""
    if seconds and change.kind == COUNTER and change.by >= 0:
        value = change.by / seconds
        rate = rate_text(value) if change.unit == "none" else f"{text(value)}/s"
    sign = "+" if change.by > 0 else ""
    return [change.where, change.name, text(change.before), text(change.after), sign + text(change.by), rate]
