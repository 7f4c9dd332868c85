"""Lists the changes between two looks at a process, or between two processes, the largest first.

tslab stats 4711 --save before.seg; sleep 60; tslab diff before.seg 4711

Each side is the number of a process, a file of `tslab stats --save`, or one of `tslab stats --json`. Memory that is
alive, held and resident stands first, with its rate; then what changed most. --all adds clocks, threads, the parts of
sums, and rows below the largest.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console

from tslab.figures import RESIDENT, Document, Source
from tslab.metrics import KEYS, PROCESS, known_fields
from tslab.rates import Between
from tslab.reporters.figures import print_table
from tslab.reporters.quantities import bytes_text, rate_text, signed, time_text
from tslab.reporters.screen import joined
from tslab.segment import COUNTER, GAUGE

MOST_ROWS = 20
# Figures that say nothing by themselves: clocks, ages, addresses, and sums from which errors are worked out.
HIDDEN = frozenset((
    "clock_ns", "clock_raw_ns", "age_ns", "reserved_bytes", "sampled_requested_bytes", "sampled_requested_squares",
    "sampled_wall_ns_sum", "cpu_wall_ns_sum", "requested_error", "samples", "cpu_samples", "alloc_samples",
    "alloc_cpu_samples", "repair_cpu_samples", "state", "flags", "parent",
))  # fmt: skip
# Rows that repeat other rows: threads add up to the process, and the layers that served to a class's allocations.
HIDDEN_SECTIONS = ("threads",)
HIDDEN_STARTS = ("from_", "slab_take_", "slab_push_", "slab_adopt_", "repair_")
# The first lines: a leak shows in these figures.
MEMORY = (("live", "live_bytes"), ("in use", "in_use_bytes"), ("resident", RESIDENT))
_TITLES = {"bytes": "bytes", "nanoseconds": "time", "none": "counts"}


@dataclass(frozen=True)
class Change:
    section: str
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
    parser.add_argument("--all", action="store_true", help="every change (default: the largest of each kind)")


def run(arguments: argparse.Namespace, console: Console) -> int:
    first, second = Source(arguments.a).read(), Source(arguments.b).read()
    between = Between(first, second)
    seconds = between.seconds
    head = f"process {first['pid']}, {time_text(seconds * 1e9)} between the figures" if seconds else between.why
    console.print(head, markup=False)
    every = list(changes(first, second))
    found = sorted((c for c in every if arguments.all or _asked_for(c)), key=lambda change: -abs(change.by))
    if not found:
        console.print("nothing changed")
        return 0
    for line in leaks(between, console.width):
        console.print(line, markup=False)
    # On a screen, what is largest of each kind fits on it.
    most = max(3, (console.height - 14) // 3) if console.is_terminal else MOST_ROWS
    for unit, title in _TITLES.items():
        own = [change for change in found if change.unit == unit]
        shown = own if arguments.all else own[:most]
        more = f", the largest {len(shown)} of {len(own)}" if len(own) > len(shown) else ""
        print_table(
            console,
            f"{title}{more}",
            ["where", "what", "change", "per second", "after", "before"],
            (_cells(change, seconds) for change in shown),
            left=2,
        )
    if hidden := len(every) - len(found):
        console.print(f"\n{hidden:,} changes of parts and sums are left out: --all shows them", markup=False)
    return 0


def _asked_for(change: Change) -> bool:
    return not (change.name in HIDDEN or change.name.startswith(HIDDEN_STARTS) or change.section in HIDDEN_SECTIONS)


def leaks(between: Between, width: int) -> list[str]:
    """How memory changed, as MiB an hour. Two looks cannot tell a leak from a peak; the last line says what can."""
    if not between.seconds:
        return []
    parts = []
    for name, field in MEMORY:
        if all(document[PROCESS].get(field) for document in (between.before, between.after)):
            change = between.change(field)
            an_hour = change / between.seconds * 3600 / (1 << 20)
            parts.append(
                f"{name} {signed(bytes_text(change), change)}, {signed(f'{an_hour:,.1f}', an_hour)} MiB an hour"
            )
    grown = between.change("live_bytes") > 0
    hint = ["a peak or a leak? `tslab doctor PID --for 600` gives the rate with its interval"] if grown else []
    return joined([*parts, *hint], width)


def changes(first: Document, second: Document) -> Iterator[Change]:
    """Returns the changes of all numbers that both sides have, or that one has and the other would have as 0."""
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
                    yield Change(name, where, field.name, field.kind, field.unit, a, b)


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
    # A counter that is less than before began anew; a gauge may go either way.
    if seconds and (change.kind == GAUGE or change.by >= 0) and not change.name.endswith("_max"):
        value = change.by / seconds
        rate = signed(rate_text(value) if change.unit == "none" else f"{text(value)}/s", value)
    return [
        change.where, change.name, signed(text(change.by), change.by), rate, text(change.after), text(change.before),
    ]  # fmt: skip
