"""The change between two looks at one process: growth of counters, change of gauges, and both per second."""

from __future__ import annotations

from collections.abc import Iterator

from tslab.figures import Document
from tslab.metrics import KEYS, PROCESS

_CLOCK = "clock_ns"


class Between:
    """Two documents of one process. `seconds` is None where nothing may be called a rate; `why` then says so."""

    def __init__(self, before: Document, after: Document) -> None:
        self.before, self.after = before, after
        self.seconds, self.why = _seconds(before, after)

    def change(self, name: str, section: str = PROCESS, key: object = None) -> int:
        """After less before; a row or a figure that is missing counts as 0."""
        old, new = (_row(document, section, key).get(name, 0) for document in (self.before, self.after))
        return int(new) - int(old)

    def grown(self, name: str, section: str = PROCESS, key: object = None) -> int:
        """Returns a counter's growth. A table's row that went away and came back began anew, which is no growth."""
        return max(0, self.change(name, section, key))

    def rate(self, name: str, section: str = PROCESS, key: object = None) -> float | None:
        return self.change(name, section, key) / self.seconds if self.seconds else None

    def keys(self, section: str) -> Iterator[object]:
        """The keys of the later look's rows."""
        return (row[KEYS[section]] for row in self.after.get(section, []))


def same_life(before: Document, after: Document) -> bool:
    """Returns true if both are of one execution of one program, looked at live or from a file."""
    started = (before.get("started_ns"), after.get("started_ns"))
    return bool(before["pid"] == after["pid"] and (started[0] == started[1] or None in started))


def _seconds(before: Document, after: Document) -> tuple[float | None, str]:
    if not same_life(before, after):
        return None, f"A is process {before['pid']}, B is process {after['pid']}: two lives, so nothing is per second"
    # The clock that nobody sets, where both looks have it.
    first, second = (document[PROCESS].get(_CLOCK) for document in (before, after))
    nanoseconds: int = second - first if first and second else after["timestamp_ns"] - before["timestamp_ns"]
    if nanoseconds <= 0:
        return None, f"process {after['pid']}: B is not later than A, so nothing is per second"
    return nanoseconds / 1e9, ""


def _row(document: Document, section: str, key: object) -> Document:
    if section == PROCESS:
        found: Document = document[PROCESS]
        return found
    return next((row for row in document.get(section, []) if row[KEYS[section]] == key), {})
