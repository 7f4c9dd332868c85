"""A benchmark's result read as tables: medians with intervals, ratios to a baseline and to the envelope.

Ratios are taken round by round, where both sides met the same machine, and turned so that above 1 is better. The
envelope of a row is its best peer: the one over which temporal-slab's ratio is least. All figures of a row come from
all of its rounds. To choose the best of many peers by the rounds that also judge it favours the peer, never
temporal-slab.

A figure of 0 is a figure: the clock saw nothing, or nothing more was resident than before. Ratios to it are infinite,
which a median bears; a geometric mean does not, and leaves such a row out of its count.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tslab.benchmark import SCHEMA
from tslab.errors import LabError
from tslab.runner import higher_is_better
from tslab.stats import Interval, geometric_mean, median_interval

TIME, MEMORY = "time", "memory"
# Within two percent is called level: most rows cannot resolve less.
LEVEL = 0.02
AHEAD, LEVEL_WITH, LOSES = "ahead", "level", "LOSES"


@dataclass(frozen=True)
class Key:
    """One line of a table: a case, the row of it if it prints several, and a metric. Geometric means count a case once,
    by its headline."""

    case: str
    variant: str
    metric: str
    category: str
    headline: bool = True

    @property
    def name(self) -> str:
        return f"{self.case} [{self.variant}]" if self.variant else self.case


@dataclass(frozen=True)
class Cell:
    """An allocator's result in a row: figures, or the status that stands in their place."""

    status: str
    note: str = ""
    value: Interval | None = None
    coverage: float = 0.0
    ratio: Interval | None = None


@dataclass(frozen=True)
class Envelope:
    peer: str
    ratio: Interval

    @property
    def verdict(self) -> str:
        """Ahead or behind only where the interval leaves 1 out."""
        if self.ratio.low <= 1 <= self.ratio.high or abs(self.ratio.point - 1) <= LEVEL:
            return LEVEL_WITH
        return AHEAD if self.ratio.point > 1 else LOSES


class Result:
    def __init__(self, data: Mapping[str, Any], baseline: str) -> None:
        if data.get("schema") != SCHEMA:
            raise LabError(f"this is no result of tslab bench (schema {data.get('schema')!r}, wanted {SCHEMA!r})")
        self.data = data
        self.ours: str = data["ours"]
        self.allocators: list[str] = [a["name"] for a in data["allocators"]]
        self.missing: dict[str, str] = {a["name"]: a["missing"] for a in data["allocators"] if a["missing"]}
        self.measured = [name for name in self.allocators if name not in self.missing]
        if baseline not in self.measured:
            raise LabError(f"baseline '{baseline}' was not measured; there are {', '.join(self.measured)}")
        self.baseline = baseline
        self._ok: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
        self._failed: dict[tuple[str, str], dict[str, Any]] = {}
        self._variants: dict[str, list[str]] = defaultdict(list)
        self._ratios: dict[tuple[Key, str, str], Interval | None] = {}  # each is asked for by several tables
        for run in data["runs"]:
            if run["status"] != "ok":
                self._failed[run["case"], run["allocator"]] = run
                continue
            self._ok[run["case"], run["variant"], run["allocator"]].append(run)
            if run["variant"] not in self._variants[run["case"]]:
                self._variants[run["case"]].append(run["variant"])

    def rows(self) -> list[Key]:
        found = []
        for case in self.data["cases"]:
            variants = self._variants.get(case["name"], [""])
            for variant in variants:
                shown = variant if len(variants) > 1 else ""
                for category in (TIME, MEMORY):
                    metrics = case[category]
                    # A mean over malloc's work leaves out cases that one allocator does by other means.
                    # Results of before the sweeps do not say it.
                    counts = case.get("in_means", not case.get("routes"))
                    found += [Key(case["name"], shown, m, category, counts and m == metrics[0]) for m in metrics]
        return found

    def runs(self, case: str, variant: str, allocator: str) -> list[dict[str, Any]]:
        variant = variant or next(iter(self._variants.get(case, [""])))
        return self._ok.get((case, variant, allocator), [])

    def failure(self, case: str, allocator: str) -> dict[str, Any] | None:
        """The last run of the case that gave no figures, if any did not."""
        return self._failed.get((case, allocator))

    def by_round(self, key: Key, allocator: str) -> dict[int, float]:
        return {
            run["round"]: run["metrics"][key.metric]
            for run in self.runs(key.case, key.variant, allocator)
            if key.metric in run["metrics"]
        }

    def cell(self, key: Key, allocator: str) -> Cell:
        if allocator in self.missing:
            return Cell("missing", self.missing[allocator])
        failed = self.failure(key.case, allocator)
        values = self.by_round(key, allocator)
        if failed:
            return Cell(failed["status"], failed["note"])
        if not self.runs(key.case, key.variant, allocator):
            return Cell("not run")
        if not values:
            return Cell("no figure", f"{key.metric} was not printed")
        value, coverage = median_interval(list(values.values()))
        return Cell("ok", "", value, coverage, self.ratio(key, allocator, self.baseline))

    def ratio(self, key: Key, allocator: str, to: str) -> Interval | None:
        pair = (key, allocator, to)
        if pair not in self._ratios:
            self._ratios[pair] = self._ratio(key, allocator, to)
        return self._ratios[pair]

    def _ratio(self, key: Key, allocator: str, to: str) -> Interval | None:
        mine, other = self.by_round(key, allocator), self.by_round(key, to)
        common = sorted(mine.keys() & other.keys())
        if not common:
            return None
        more = higher_is_better(key.metric)
        return median_interval(
            [_quotient(mine[r], other[r]) if more else _quotient(other[r], mine[r]) for r in common]
        )[0]

    def envelope(self, key: Key) -> Envelope | None:
        peers = [name for name in self.measured if name != self.ours and (key.case, name) not in self._failed]
        found = [Envelope(peer, ratio) for peer in peers if (ratio := self.ratio(key, self.ours, peer))]
        return min(found, key=lambda envelope: envelope.ratio.point, default=None)

    def headlines(self, category: str) -> list[Key]:
        return [key for key in self.rows() if key.category == category and key.headline]

    def overall(self, allocator: str, category: str) -> tuple[float, int] | None:
        """The geometric mean of the ratios to the baseline, and over how many cases."""
        cells = [self.cell(key, allocator) for key in self.headlines(category)]
        return _mean([cell.ratio.point for cell in cells if cell.ratio])

    def overall_envelope(self, category: str) -> tuple[float, int] | None:
        return _mean([e.ratio.point for key in self.headlines(category) if (e := self.envelope(key))])

    def losses(self) -> list[tuple[Key, Envelope]]:
        """Rows in which temporal-slab is behind the envelope, the worst first."""
        rows = [(key, e) for key in self.rows() if (e := self.envelope(key)) and e.verdict == LOSES]
        return sorted(rows, key=lambda row: row[1].ratio.point)


def _quotient(above: float, below: float) -> float:
    """A value at or below 0 counts as 0; two such values are equal."""
    above, below = max(0.0, above), max(0.0, below)
    if below == 0:
        return 1.0 if above == 0 else math.inf
    return above / below


def _mean(ratios: list[float]) -> tuple[float, int] | None:
    """The geometric mean of those ratios that have a place in one, and their number."""
    usable = [ratio for ratio in ratios if 0 < ratio < math.inf]
    return (geometric_mean(usable), len(usable)) if usable else None


def load(path: Path, baseline: str) -> Result:
    try:
        return Result(json.loads(path.read_text(encoding="utf-8")), baseline)
    except OSError as error:
        raise LabError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise LabError(f"{path} is no result of tslab bench, or of an older one ({type(error).__name__})") from error


def merge(results: list[Result]) -> Result:
    """Several files of one machine, commit and suite as one result: their rounds follow each other."""
    first = results[0]
    if len(results) == 1:
        return first
    data = dict(first.data)
    data["runs"], offset = [], 0
    cases = {case["name"]: case for result in results for case in result.data["cases"]}
    allocators = {a["name"]: a for result in results for a in result.data["allocators"]}
    for result in results:
        if result.data["machine"]["cpu"] != first.data["machine"]["cpu"]:
            raise LabError("these results come from different machines: report them apart")
        if result.data["machine"]["commit"] != first.data["machine"]["commit"]:
            raise LabError("these results come from different commits: report them apart")
        data["runs"] += [run | {"round": run["round"] + offset} for run in result.data["runs"]]
        offset += result.data["rounds"]
    data |= {"rounds": offset, "cases": list(cases.values()), "allocators": list(allocators.values())}
    data["lifecycle"] = [entry for result in results for entry in result.data["lifecycle"]]
    return Result(data, first.baseline)
