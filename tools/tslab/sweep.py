"""The runs of bench/cliffs in a result: the cost of one thing at each count, and its rise at the greatest.

Ratios are taken round by round, as everywhere: both counts met the same machine then.
"""

from __future__ import annotations

from dataclasses import dataclass

from tslab.result import TIME, Key, Result
from tslab.scale import KINDS, WORKLOAD, Cost, Kind, verdict
from tslab.stats import Interval, median_interval


@dataclass(frozen=True)
class Reading:
    """A cost at the greatest count over the same cost at the least one."""

    ratio: Interval

    @property
    def words(self) -> str:
        ratio = self.ratio.point
        return f"{verdict(ratio)} ({ratio:,.0f} ×)" if ratio >= 10 else f"{verdict(ratio)} ({ratio:.2f} ×)"


class Sweep:
    def __init__(self, result: Result) -> None:
        self.result = result
        self._cases = {
            tuple(case["options"]): case["name"] for case in result.data["cases"] if case["workload"] == WORKLOAD
        }

    @property
    def kinds(self) -> list[Kind]:
        """Those that the result has."""
        return [kind for kind in KINDS if any(kind.case_options(count) in self._cases for count in kind.counts)]

    def key(self, kind: Kind, cost: Cost, count: int) -> Key | None:
        name = self._cases.get(kind.case_options(count))
        return Key(name, "", cost.metric, TIME) if name else None

    def value(self, kind: Kind, cost: Cost, count: int, allocator: str) -> Interval | None:
        by_round = self._rounds(kind, cost, count, allocator)
        return median_interval(list(by_round.values()))[0] if by_round else None

    def status(self, kind: Kind, cost: Cost, count: int, allocator: str) -> str:
        """Returns the text for a missing value."""
        key = self.key(kind, cost, count)
        return self.result.cell(key, allocator).status if key else "not run"

    def reading(self, kind: Kind, cost: Cost, allocator: str) -> Reading | None:
        least = self._rounds(kind, cost, kind.counts[0], allocator)
        greatest = self._rounds(kind, cost, kind.counts[-1], allocator)
        both = sorted(least.keys() & greatest.keys())
        if not both:
            return None
        ratios = [cost.resolved(greatest[number]) / cost.resolved(least[number]) for number in both]
        return Reading(median_interval(ratios)[0])

    def _rounds(self, kind: Kind, cost: Cost, count: int, allocator: str) -> dict[int, float]:
        key = self.key(kind, cost, count)
        if key is None or self.result.failure(key.case, allocator):
            return {}
        return self.result.by_round(key, allocator)
