"""An A/B comparison: interleaved rounds, as many as the measured noise asks for, judged by the rule fixed beforehand.

A round is  A B X X B A  and every other round  B A X X A B, where X is A once more: within a round the three have the
same mean position, so a drift cancels, and X against A is an A/A comparison under the very conditions of A/B. When that
one comes out as a verdict, the machine invents differences, and the verdict on B is withheld.

Where a file's pages lie in physical memory changes what its code costs: two equal files differed by a tenth in a
workload, in every run. So each round runs new copies of the libraries, also for X, and chance places them anew.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tslab.arms import Arm, common_length
from tslab.errors import LabError
from tslab.machine import Pressure, PressureMeter
from tslab.runner import Program, Row, Run, higher_is_better, run
from tslab.stats import Judgement, Kind, Verdict, judge_rounds, runs_for

ORDERS = ("ABXXBA", "BAXXAB")
# Enough rounds to know the noise within a third; they count, since looking at the noise alone biases nothing.
PILOT_ROUNDS = 8
WALL = "wall_s"


@dataclass
class Series:
    """Per round the mean of each arm's two runs."""

    a: list[float] = field(default_factory=list)
    b: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    metric: str
    kind: Kind
    judgement: Judgement
    control: Judgement
    series: Series
    planned_rounds: int
    wanted_rounds: int | None
    seconds: float
    pressure: Pressure
    peak_rss: dict[str, float]

    @property
    def withheld(self) -> bool:
        return self.control.verdict in (Verdict.GO, Verdict.NO_GO)

    @property
    def verdict(self) -> Verdict:
        return Verdict.UNDECIDED if self.withheld else self.judgement.verdict


Progress = Callable[[int, int, float], None]


def _copied(arm: Arm, folder: Path) -> Arm:
    """The arm with a new copy of its library; as it is if it has none, or names its preload itself."""
    if arm.library is None or "LD_PRELOAD" in arm.variables:
        return arm
    folder.mkdir(exist_ok=True)
    copy = folder / arm.library.name
    copy.unlink(missing_ok=True)  # a new file gets new pages
    shutil.copyfile(arm.library, copy)
    return replace(arm, library=copy)


@dataclass(frozen=True)
class Experiment:
    program: Program
    a: Arm
    b: Arm
    kind: Kind = Kind.FEATURE
    budget_s: float = 300
    metric: str | None = None
    variant: str = ""
    options: tuple[str, ...] = ()

    def run(self, progress: Progress = lambda done, total, left: None) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="tslab-ab-") as folder:
            return self._run(Path(folder).resolve(), progress)

    def _run(self, folder: Path, progress: Progress) -> Outcome:
        meter, started = PressureMeter(), time.monotonic()
        pad = common_length([_copied(arm, folder / letter) for letter, arm in (("A", self.a), ("B", self.b))])
        metric = self.metric or self._first_metric(pad)
        better = higher_is_better(metric)
        series, peaks = Series(), {"A": 0.0, "B": 0.0}
        total, wanted = PILOT_ROUNDS, None
        while len(series.a) < total:
            self._round(series, metric, pad, peaks, folder)
            done, spent = len(series.a), time.monotonic() - started
            if done == PILOT_ROUNDS:
                wanted, total = self._rounds(series, better, spent)
            progress(done, total, spent / done * (total - done))
        threshold = self.kind.threshold
        return Outcome(
            metric,
            self.kind,
            judge_rounds(series.a, series.b, threshold, better),
            judge_rounds(series.a, series.again, threshold, better),
            series,
            total,
            wanted,
            time.monotonic() - started,
            meter.read(),
            peaks,
        )

    def _rounds(self, series: Series, better: bool, spent: float) -> tuple[int | None, int]:
        """Rounds that the noise asks for, and rounds that also fit the budget."""
        noises = [
            judge_rounds(series.a, other, self.kind.threshold, better).noise for other in (series.b, series.again)
        ]
        wanted = runs_for(self.kind.threshold, (sum(n * n for n in noises) / 2) ** 0.5, per_side=False)
        affordable = int(self.budget_s / (spent / PILOT_ROUNDS))
        return wanted, max(PILOT_ROUNDS, min(affordable, wanted or affordable))

    def _round(self, series: Series, metric: str, pad: int, peaks: dict[str, float], folder: Path) -> None:
        number = len(series.a)
        letters = {"A": self.a, "B": self.b, "X": self.a}
        arms = {letter: _copied(arm, folder / letter) for letter, arm in letters.items()}
        values: dict[str, list[float]] = {"A": [], "B": [], "X": []}
        for letter in ORDERS[number % 2]:
            result = run(self.program, arms[letter], pad_to=pad, options=self._options(number))
            values[letter].append(self._value(result, metric))
            if letter in peaks:
                peaks[letter] = max(peaks[letter], result.peak_rss_bytes or 0.0)
        for letter, target in (("A", series.a), ("B", series.b), ("X", series.again)):
            target.append(sum(values[letter]) / len(values[letter]))

    def _options(self, number: int) -> tuple[str, ...]:
        """All runs of a round share a seed and the next round has another: no draw of numbers decides."""
        own_seed = any(option.startswith("--seed=") for option in (*self.program.command, *self.options))
        seed = (f"--seed={1000 + number}",) if self.program.is_workload and not own_seed else ()
        return (*self.options, *seed)

    def _first_metric(self, pad: int) -> str:
        """The throughput that a workload prints first; for a command, its time. The run is the warm-up."""
        result = run(self.program, self.a, pad_to=pad, options=self._options(0))
        if not result.rows:
            return WALL
        names = list(self._row(result.rows).metrics)
        throughputs = [name for name in names if name.endswith("_per_s")]
        if not throughputs:
            raise LabError(
                f"{self.program.name} prints no throughput; choose one of its metrics with --metric: "
                + ", ".join(names)
            )
        return throughputs[0]

    def _value(self, result: Run, metric: str) -> float:
        whole = {WALL: result.wall_s, "cpu_s": result.cpu_s}
        if result.peak_rss_bytes is not None:
            whole["peak_rss_bytes"] = result.peak_rss_bytes
        if not result.rows:
            if metric not in whole:
                raise LabError(f"a command has the metrics {', '.join(whole)}, not '{metric}'")
            return whole[metric]
        row = self._row(result.rows)
        values = whole | dict(row.metrics)
        if metric not in values:
            raise LabError(f"{self.program.name} has no metric '{metric}'; it has " + ", ".join(values))
        return values[metric]

    def _row(self, rows: Sequence[Row]) -> Row:
        found = [row for row in rows if self.variant in row.variant]
        if len(found) != 1:
            listed = "\n  ".join(row.variant for row in (found or rows))
            raise LabError(f"--variant must single out one row of {self.program.name}; it has\n  {listed}")
        return found[0]
