"""A process watched for a while: its figures and what the system says, about once a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tslab import system, trend
from tslab.errors import LabError
from tslab.figures import Document, Source
from tslab.metrics import KEYS, PROCESS
from tslab.rates import Between
from tslab.sites import Site
from tslab.system import System

PERIOD_S = 1.0


@dataclass(frozen=True)
class Look:
    document: Document
    system: System | None

    @property
    def at(self) -> float:
        """Seconds on the library's clock."""
        return float(self.document[PROCESS].get("clock_ns") or self.document["timestamp_ns"]) / 1e9


def take(source: Source) -> Look:
    document = source.read()
    total = document[PROCESS]
    idle = max(0, total.get("reserved_bytes", 0) - total.get("committed_bytes", 0))
    return Look(document, system.look(source.pid, idle) if source.pid is not None else None)


def watch(sources: Sequence[Source], seconds: float, sleep: Callable[[float], None] = time.sleep) -> list[list[Look]]:
    """The looks at each process. One that ends meanwhile keeps the looks that were taken."""
    found = [[take(source)] for source in sources]
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        sleep(min(PERIOD_S, left))
        for source, looks in zip(sources, found, strict=True):
            try:
                looks.append(take(source))
            except LabError:
                continue
    return found


class Case:
    """One process's looks, for the rules of `findings`: its growth between the looks, or since the start."""

    def __init__(self, looks: Sequence[Look], name_of: Callable[[Site], str] | None = None) -> None:
        self.looks = looks
        self.name_of = name_of  # of call sites; None: findings name none
        self.found = looks[-1].document
        self.total: Document = self.found[PROCESS]
        self.system = looks[-1].system
        between = Between(looks[0].document, self.found) if len(looks) > 1 else None
        # Nothing new was published meanwhile: nothing happened, and the figures since the start stand.
        self.between = between if between and between.seconds else None
        since_start = (self.found["timestamp_ns"] - self.found.get("started_ns", 0)) / 1e9
        self.seconds: float = (self.between.seconds if self.between else None) or max(since_start, 1e-3)
        self.span = "since its start" if self.between is None else f"within {self.seconds:.0f} s"

    def grown(self, name: str, section: str = PROCESS, key: object = None) -> int:
        if self.between:
            return self.between.grown(name, section, key)
        if section == PROCESS:
            return int(self.total.get(name, 0))
        return next((int(row.get(name, 0)) for row in self.found[section] if row[KEYS[section]] == key), 0)

    def throughout(self, holds: Callable[[Document], bool]) -> bool:
        """Returns true if it holds in every look."""
        return all(holds(look.document) for look in self.looks)

    def series(self, value: Callable[[Document], float | None]) -> list[tuple[float, float]]:
        """Of the looks that have new figures."""
        points: list[tuple[float, float]] = []
        for look in self.looks:
            number = value(look.document)
            if number is not None and (not points or look.at > points[-1][0]):
                points.append((look.at, number))
        return points

    def growth(self, value: Callable[[Document], float | None]) -> trend.Growth | None:
        return trend.growth(self.series(value))

    @property
    def watched_s(self) -> float:
        """From the first look to the last, whether or not there were new figures."""
        first, last = self.looks[0], self.looks[-1]
        if first.system and last.system:
            return (last.system.at_ns - first.system.at_ns) / 1e9
        return last.at - first.at

    def system_span(self) -> tuple[System, System, float] | None:
        first, last = self.looks[0].system, self.looks[-1].system
        if first is None or last is None or last.at_ns <= first.at_ns:
            return None
        return first, last, (last.at_ns - first.at_ns) / 1e9
