"""Sampled allocations and the cause of each one's time, in the words of docs/observability.md, "The truth table"."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

from tslab.errors import Unreadable
from tslab.segment import WITHOUT_BOUND, printable

# The fast path is some twenty instructions; with page faults and cold caches it stays below this. One that took longer
# and whose thread time was not taken may have waited for a processor, or not: we cannot know.
FAST_MOST_NS = 10_000

_WAITING = frozenset({"remote", "lock", "free: remote"})
_FRESH = frozenset({"fresh", "run", "map", "chunk", "birth"})
_LARGE = frozenset({"large", "free: large"})

COLUMNS = (
    "number", "at_ns", "thread_id", "requested", "usable", "wall_ns", "cpu_ns", "lock_wait_ns", "path", "label",
)  # fmt: skip
_NUMBERS = COLUMNS[:-2]


class Cause(Enum):
    CONTENTION = "contention"
    SCHEDULER = "scheduler"
    FRESH = "fresh memory"
    LARGE = "large"
    PURGE = "purge"
    REFILL = "refill"
    FAST = "fast path"
    UNKNOWN = "not known"


MEANINGS = {
    Cause.CONTENTION: "it waited for a lock, or took in what other threads had freed",
    Cause.SCHEDULER: "the processor was given to somebody else meanwhile",
    Cause.FRESH: "memory that was not in use before: page faults and the kernel's zeroing",
    Cause.LARGE: "a block above the largest size class, a run of pages of its own",
    Cause.PURGE: "memory was refused, given back and asked for again",
    Cause.REFILL: "the list was empty and was filled from what the thread or the library kept",
    Cause.FAST: "served by the thread's list",
    Cause.UNKNOWN: f"served by the list in over {FAST_MOST_NS // 1000} µs, and its thread time was not taken",
}


@dataclass(frozen=True)
class Sample:
    number: int
    at_ns: int
    thread_id: int
    requested: int
    usable: int
    wall_ns: int
    cpu_ns: int | None  # None where it was not taken
    lock_wait_ns: int
    path: str
    label: str  # empty for epoch 0

    @property
    def wait_ns(self) -> int | None:
        """The two clocks are read one after the other, so the thread's may be ahead by a few nanoseconds."""
        return None if self.cpu_ns is None else max(0, self.wall_ns - self.cpu_ns)


def classify(wall_ns: float, cpu_ns: float | None, lock_wait_ns: float, path: str) -> Cause:
    """Returns the cause of the time. The first row that holds decides:

    ====================================================================  ============
    lock wait is more than half of the wall time                          contention
    wait, without the lock wait, is more than thread time                 scheduler
    path remote, lock, free: remote                                       contention
    path fresh, run, map, chunk, birth                                    fresh memory
    path large, free: large                                               large
    path purge                                                            purge
    any other path but fast                                               refill
    path fast, at most 10 µs, or its thread time was taken                fast path
    path fast, more than 10 µs, and its thread time was not taken         not known
    ====================================================================  ============

    wait = wall - thread time. A thread that waits for a lock sleeps, too: the first row keeps that from the scheduler.
    """
    if 2 * lock_wait_ns > wall_ns:
        return Cause.CONTENTION
    if cpu_ns is not None and wall_ns - cpu_ns - lock_wait_ns > cpu_ns:
        return Cause.SCHEDULER
    if path in _WAITING:
        return Cause.CONTENTION
    if path in _FRESH:
        return Cause.FRESH
    if path in _LARGE:
        return Cause.LARGE
    if path == "purge":
        return Cause.PURGE
    if path != "fast":
        return Cause.REFILL
    return Cause.FAST if cpu_ns is not None or wall_ns <= FAST_MOST_NS else Cause.UNKNOWN


def cause_of(sample: Sample) -> Cause:
    return classify(sample.wall_ns, sample.cpu_ns, sample.lock_wait_ns, sample.path)


# ---- from a document, to and from CSV --------------------------------------------------------------------------------


def samples_of(document: dict[str, Any]) -> list[Sample]:
    """The samples that a document of `tslab stats` holds, oldest first."""
    paths = [str(row.get("name", "")) for row in document.get("paths", [])]
    labels = [str(row.get("label", "")) for row in document.get("labels", [])]
    found = []
    for row in document.get("samples", []):
        if any(not isinstance(row.get(name), int) for name in COLUMNS):
            raise Unreadable(f"a sample lacks one of {', '.join(COLUMNS)}: this library's are of another version")
        numbers = {name: row[name] for name in _NUMBERS}
        if numbers["cpu_ns"] == WITHOUT_BOUND:
            numbers["cpu_ns"] = None
        path, label = row["path"], row["label"]
        found.append(
            Sample(
                **numbers,
                path=paths[path] if path < len(paths) else f"path {path}",
                label="" if label == WITHOUT_BOUND else labels[label] if label < len(labels) else f"label {label}",
            )
        )
    return sorted(found, key=lambda sample: sample.number)


class CsvWriter:
    """Writes each sample once, by its number, however often it is seen."""

    def __init__(self, stream: TextIO) -> None:
        self._rows = csv.writer(stream, lineterminator="\n")
        self._rows.writerow(COLUMNS)
        self._last = 0
        self.written = 0
        self.missed = 0

    def add(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            if sample.number <= self._last:
                continue
            self.missed += sample.number - self._last - 1 if self.written else 0
            self._last = sample.number
            self.written += 1
            values = [getattr(sample, name) for name in COLUMNS]
            self._rows.writerow(["" if value is None else value for value in values])


def read_csv(path: Path) -> list[Sample]:
    try:
        with path.open(newline="", encoding="utf-8", errors="backslashreplace") as stream:
            rows = csv.DictReader(stream, strict=True)
            if tuple(rows.fieldnames or ()) != COLUMNS:
                raise Unreadable(f"{path} has other columns than raw samples have ({', '.join(COLUMNS)})")
            return [_of_csv(path, rows.line_num, row) for row in rows]
    except OSError as error:
        raise Unreadable(f"cannot read {path}: {error.strerror}") from error
    except csv.Error as error:
        raise Unreadable(f"{path} is no readable CSV: {error}") from error


def _of_csv(path: Path, line: int, row: dict[str, Any]) -> Sample:
    try:
        numbers = {name: None if name == "cpu_ns" and row[name] == "" else int(row[name]) for name in _NUMBERS}
        if row.get(None) or any(value is not None and not 0 <= value < 2**64 for value in numbers.values()):  # type: ignore[call-overload]
            raise ValueError
        return Sample(**numbers, path=printable(row["path"]), label=printable(row["label"]))  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise Unreadable(f"{path}, line {line}: not the numbers of a sample") from error


# ---- summing up ------------------------------------------------------------------------------------------------------


def percentile(values: Sequence[int], share: float) -> int:
    """Returns the least measured value that is not below `share` of the values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def causes(samples: Iterable[Sample]) -> Counter[Cause]:
    return Counter(cause_of(sample) for sample in samples)
