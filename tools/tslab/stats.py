"""The statistics of the laboratory: intervals, verdicts, power, and the figures of a table.

A change is a signed fraction of the baseline, and positive always means better: for times, bytes and instructions
the sign is turned. Intervals are two-sided and hold 95 %. Nothing here looks at a file, a clock or a process.

Two designs, one verdict:
  independent  two lists of runs. Student's t on the difference of means, divided by the baseline's mean. With as many
               runs on each side its level holds under unequal variances; with unequal numbers it does not, so Welch's
               degrees of freedom are used there.
  by rounds    interleaved rounds, each with its own ratio: a drift of the machine that is slower than a round cancels.
               The trimmed mean of the ratios' logarithms, a fifth off each end, and Student's t on it by the
               winsorised variance (Tukey and McLaughlin 1963): a machine shared with others disturbs whole rounds.

Verdict, from the interval [low, high], the point and the threshold T of the kind of change:
  GO         low > 0  and point >= T            NEUTRAL    -T <= low and high <= T
  NO-GO      high < 0 and point <= -T           UNDECIDED  anything else, with the number of runs that would decide
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

import numpy as np
from scipy import stats as sps
from scipy.stats import mstats

CONFIDENCE = 0.95
POWER = 0.90
TRIMMED = 0.2
# No laboratory runs more than this; past it the answer to "how many runs" is "another method".
MAX_RUNS = 1_000_000


class Verdict(Enum):
    GO = "GO"
    NO_GO = "NO-GO"
    NEUTRAL = "NEUTRAL"
    UNDECIDED = "UNDECIDED"


class Kind(Enum):
    """The purpose of a change, and therefore the least gain that it must bring."""

    FEATURE = "feature"
    PRUNE = "prune"
    STRONG = "strong"

    @property
    def threshold(self) -> float:
        return {Kind.FEATURE: 0.010, Kind.PRUNE: 0.005, Kind.STRONG: 0.030}[self]


@dataclass(frozen=True)
class Summary:
    """One side's runs. `cv` is the standard deviation over the mean, never the range over the mean."""

    n: int
    mean: float
    median: float
    sd: float
    low: float
    high: float

    @property
    def cv(self) -> float:
        return self.sd / self.mean

    @property
    def range_over_mean(self) -> float:
        return (self.high - self.low) / self.mean


@dataclass(frozen=True)
class Interval:
    point: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Judgement:
    """A verdict with the numbers behind it.

    `noise` is the standard deviation that n divides: of one round's ratio, or of a pair of runs. `runs_needed` is how
    many rounds (or runs on each side) would decide if the true change were the measured point; None when decided, or
    when no affordable number would. `resolves` is the change that this many runs find nine times in ten.
    """

    verdict: Verdict
    change: Interval
    threshold: float
    n: int
    noise: float
    t: float
    runs_needed: int | None
    resolves: float


def verdict_of(change: Interval, threshold: float) -> Verdict:
    """The rule at the head of this file, and nothing else."""
    if change.low > 0 and change.point >= threshold:
        return Verdict.GO
    if change.high < 0 and change.point <= -threshold:
        return Verdict.NO_GO
    if -threshold <= change.low and change.high <= threshold:
        return Verdict.NEUTRAL
    return Verdict.UNDECIDED


def summarize(values: Sequence[float]) -> Summary:
    data = _checked(values)
    return Summary(
        n=len(data),
        mean=float(np.mean(data)),
        median=float(np.median(data)),
        sd=float(np.std(data, ddof=1)),
        low=float(np.min(data)),
        high=float(np.max(data)),
    )


def judge_independent(
    baseline: Sequence[float], treatment: Sequence[float], threshold: float, higher_is_better: bool = True
) -> Judgement:
    """The verdict on two lists of runs that were not interleaved."""
    a, b = summarize(baseline), summarize(treatment)
    var_a, var_b = a.sd**2 / a.n, b.sd**2 / b.n
    error = math.sqrt(var_a + var_b)
    if a.n == b.n or error == 0:
        freedom = float(a.n + b.n - 2)
    else:
        freedom = (var_a + var_b) ** 2 / (var_a**2 / (a.n - 1) + var_b**2 / (b.n - 1))
    sign = 1.0 if higher_is_better else -1.0
    n = min(a.n, b.n)
    noise = math.sqrt(a.sd**2 + b.sd**2) / a.mean
    point, reach = sign * (b.mean - a.mean) / a.mean, _reach(error / a.mean, freedom)
    change = Interval(point, point - reach, point + reach)
    return _judge(change, error / a.mean, threshold, n, noise, per_side=True)


def judge_rounds(
    baseline: Sequence[float], treatment: Sequence[float], threshold: float, higher_is_better: bool = True
) -> Judgement:
    """The verdict on interleaved rounds: baseline[i] and treatment[i] were measured around each other."""
    if len(baseline) != len(treatment):
        raise ValueError(f"rounds come in pairs, but there are {len(baseline)} and {len(treatment)} values")
    a, b = _checked(baseline), _checked(treatment)
    sign = 1.0 if higher_is_better else -1.0
    ratios, ends = np.log(b / a), (TRIMMED, TRIMMED)  # logarithms, where twice as fast and half as fast balance
    n = len(ratios)
    mean, error = float(mstats.trimmed_mean(ratios, ends)), float(mstats.trimmed_stde(ratios, ends))
    reach = _reach(error, _rounds_freedom(n))
    low, high = sorted(sign * math.expm1(end) for end in (mean - reach, mean + reach))
    change = Interval(sign * math.expm1(mean), low, high)
    return _judge(change, error, threshold, n, error * math.sqrt(n), per_side=False)


def runs_for(effect: float, noise: float, *, per_side: bool, power: float = POWER) -> int | None:
    """Rounds, or runs on each side, that find `effect` with the given power; None above MAX_RUNS."""
    if effect <= 0:
        return None
    # The normal's quantiles give an n that is never too large; Student's then ask for a few more.
    normal = float(sps.norm.ppf((1 + CONFIDENCE) / 2) + sps.norm.ppf(power))
    wanted = (normal * noise / effect) ** 2
    if wanted > MAX_RUNS:
        return None
    n = max(2, math.floor(wanted))
    while resolution(noise, n, per_side=per_side, power=power) > effect:
        n += 1
    return n


def resolution(noise: float, n: int, *, per_side: bool, power: float = POWER) -> float:
    """The smallest change that n rounds (or runs on each side) find with the given power."""
    freedom = 2.0 * n - 2 if per_side else _rounds_freedom(n)
    return float(_quantile_sum(freedom, power) * noise / math.sqrt(n))


def amdahl(share: float) -> float:
    """The gain in throughput if the touched share of the work cost nothing at all."""
    return math.inf if share >= 1 else share / (1 - share)


def compound(changes: Sequence[float]) -> float:
    """Changes one on top of the other; percentages of different baselines do not add."""
    return math.prod(1 + change for change in changes) - 1


def geometric_mean(values: Sequence[float]) -> float:
    return float(sps.gmean(_checked(values, least=1)))


def median_interval(values: Sequence[float]) -> tuple[Interval, float]:
    """The median, with the narrowest interval of order statistics that holds 95 %, and the share that it does hold.

    Fewer than six values have no such interval: then it runs from the least to the greatest, which holds
    1 - 2^(1-n), and the caller is told so. Only the order counts, so values may be 0 or infinite.
    """
    data = sorted(float(value) for value in values)
    n = len(data)
    if n == 0 or any(math.isnan(value) for value in data):
        raise ValueError(f"no median of {n} value(s), or of one that is no number")
    rank = 0  # data[rank] and data[n - 1 - rank] bound the interval
    while rank + 1 < n - 2 - rank and _order_coverage(n, rank + 1) >= CONFIDENCE:
        rank += 1
    coverage = _order_coverage(n, rank)
    return Interval(float(np.median(data)), float(data[rank]), float(data[n - 1 - rank])), coverage


@cache
def _order_coverage(n: int, rank: int) -> float:
    return float(1 - 2 * sps.binom.cdf(rank, n, 0.5)) if n > 1 else 0.0


def _rounds_freedom(n: int) -> float:
    return n - 2 * int(TRIMMED * n) - 1.0


def _quantile_sum(freedom: float, power: float) -> float:
    return float(sps.t.ppf((1 + CONFIDENCE) / 2, freedom) + sps.t.ppf(power, freedom))


def _reach(error: float, freedom: float) -> float:
    return float(sps.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error


def _judge(change: Interval, error: float, threshold: float, n: int, noise: float, *, per_side: bool) -> Judgement:
    point = change.point
    verdict = verdict_of(change, threshold)
    needed = None
    if verdict is Verdict.UNDECIDED:
        # To leave zero out, or to fit the whole interval between the thresholds: the point decides which.
        effect = abs(point) if abs(point) >= threshold else threshold - abs(point)
        needed = runs_for(effect, noise, per_side=per_side)
    t = point / error if error > 0 else math.copysign(math.inf, point) if point else 0.0
    return Judgement(verdict, change, threshold, n, noise, t, needed, resolution(noise, n, per_side=per_side))


def _checked(values: Sequence[float], least: int = 2) -> np.ndarray:
    data = np.asarray(values, dtype=float)
    if len(data) < least:
        raise ValueError(f"{len(data)} value(s) given; at least {least} are needed")
    if not np.all(np.isfinite(data)) or np.any(data <= 0):
        raise ValueError("every value must be a positive number")
    return data
