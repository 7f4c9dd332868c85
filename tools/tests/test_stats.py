"""The verdict rules, held to the digits that follow from the raw runs of the two earlier experiments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tslab import measured
from tslab.stats import (
    Interval,
    Kind,
    Verdict,
    amdahl,
    compound,
    geometric_mean,
    judge_independent,
    judge_rounds,
    median_interval,
    resolution,
    runs_for,
    summarize,
    verdict_of,
)

DATA = Path(__file__).parent / "data"


def test_the_c2_cache_runs_decide_nothing() -> None:
    series = measured.read(DATA / "c2_local_cache.csv")
    a, b = summarize(series.baseline), summarize(series.treatment)
    assert (a.mean, b.mean) == pytest.approx((41.868, 42.103))
    assert (round(a.mean, 2), round(b.mean, 2)) == (41.87, 42.10)
    assert (a.sd, b.sd) == pytest.approx((0.951441, 0.544774), abs=1e-6)
    assert (round(100 * a.cv, 1), round(100 * b.cv, 1)) == (2.3, 1.3)
    # The published "coefficient of variation" is the range over the mean.
    assert (round(100 * a.range_over_mean, 1), round(100 * b.range_over_mean, 1)) == (8.2, 4.5)
    judged = judge_independent(series.baseline, series.treatment, Kind.FEATURE.threshold)
    assert judged.verdict is Verdict.UNDECIDED
    assert 100 * judged.change.point == pytest.approx(0.5613, abs=1e-4)
    assert 100 * judged.change.half_width == pytest.approx(1.7397, abs=1e-4)
    assert judged.t == pytest.approx(0.6778, abs=1e-4)
    assert judged.runs_needed == 376
    assert 100 * judged.resolves == pytest.approx(2.841, abs=1e-3)


def test_the_atomics_prune_runs_decide_nothing() -> None:
    series = measured.read(DATA / "atomic_prune.csv")
    a, b = summarize(series.baseline), summarize(series.treatment)
    assert (round(a.mean), round(b.mean)) == (53136246, 53310773)
    assert (round(a.sd), round(b.sd)) == (963465, 1087011)
    judged = judge_independent(series.baseline, series.treatment, Kind.PRUNE.threshold)
    assert judged.verdict is Verdict.UNDECIDED
    assert 100 * judged.change.point == pytest.approx(0.3285, abs=1e-4)
    assert 100 * judged.change.half_width == pytest.approx(1.8161, abs=1e-4)
    assert judged.runs_needed == 2670


def with_moments(mean: float, sd: float, n: int = 10) -> list[float]:
    shape = np.linspace(-1, 1, n)
    return list(mean + sd * shape / shape.std(ddof=1))


def test_a_change_well_above_its_interval_is_go() -> None:
    # Two series with the published moments of the one experiment of that log that was decided.
    judged = judge_independent(with_moments(44.169, 0.273), with_moments(45.438, 0.556), Kind.FEATURE.threshold)
    assert judged.verdict is Verdict.GO
    assert (round(100 * judged.change.point, 1), round(100 * judged.change.half_width, 1)) == (2.9, 0.9)
    assert judged.runs_needed is None


@pytest.mark.parametrize(
    ("low", "point", "high", "verdict"),
    [
        (0.001, 0.010, 0.019, Verdict.GO),
        (0.001, 0.009, 0.017, Verdict.UNDECIDED),  # better for sure, but not by enough, and not surely by too little
        (0.001, 0.005, 0.009, Verdict.NEUTRAL),  # surely better, surely by less than asked
        (0.000, 0.020, 0.040, Verdict.UNDECIDED),  # zero is not left out
        (-0.019, -0.010, -0.001, Verdict.NO_GO),
        (-0.017, -0.009, -0.001, Verdict.UNDECIDED),
        (-0.010, 0.000, 0.010, Verdict.NEUTRAL),
        (-0.0101, 0.000, 0.0101, Verdict.UNDECIDED),
    ],
)
def test_the_rule(low: float, point: float, high: float, verdict: Verdict) -> None:
    assert verdict_of(Interval(point, low, high), Kind.FEATURE.threshold) is verdict


def test_thresholds_by_kind() -> None:
    assert [(kind.value, kind.threshold) for kind in Kind] == [("feature", 0.01), ("prune", 0.005), ("strong", 0.03)]


def test_less_is_better_turns_the_sign() -> None:
    faster, slower = with_moments(100, 0.1), with_moments(105, 0.1)
    assert judge_independent(faster, slower, 0.01, higher_is_better=False).verdict is Verdict.NO_GO
    assert judge_independent(faster, slower, 0.01, higher_is_better=True).verdict is Verdict.GO
    assert judge_rounds(faster, slower, 0.01, higher_is_better=False).verdict is Verdict.NO_GO


def test_rounds_cancel_a_drift_that_independent_runs_do_not() -> None:
    drift = [100 + 3 * i + (0.2 if i % 2 else -0.2) for i in range(12)]
    better = [1.02 * value + (0.1 if i % 3 else -0.1) for i, value in enumerate(drift)]
    assert judge_rounds(drift, better, 0.01).verdict is Verdict.GO
    assert judge_independent(drift, better, 0.01).verdict is Verdict.UNDECIDED


def test_unequal_numbers_of_runs_use_welch() -> None:
    a, b = with_moments(100, 5, 4), with_moments(101, 1, 40)
    half = judge_independent(a, b, 0.01).change.half_width
    assert 100 * half == pytest.approx(7.92, abs=0.02)  # 3.04 degrees of freedom, not 42


def test_equal_runs_without_noise_are_neutral() -> None:
    judged = judge_independent([5.0, 5.0], [5.0, 5.0], 0.01)
    assert (judged.verdict, judged.change.half_width, judged.t) == (Verdict.NEUTRAL, 0.0, 0.0)


def test_false_verdicts_are_as_rare_as_promised() -> None:
    random = np.random.default_rng(1)
    wrong = 0
    for _ in range(2000):
        a, b = random.normal(100, 1.5, (2, 10))
        judged = judge_independent(a, b, Kind.FEATURE.threshold)
        wrong += judged.verdict in (Verdict.GO, Verdict.NO_GO)
    assert wrong / 2000 < 0.06


@pytest.mark.parametrize("per_side", [True, False])
def test_the_runs_asked_for_find_the_effect_nine_times_in_ten(per_side: bool) -> None:
    n = runs_for(0.01, 0.02, per_side=per_side)
    assert n is not None
    assert resolution(0.02, n, per_side=per_side) <= 0.01 < resolution(0.02, n - 1, per_side=per_side)
    random = np.random.default_rng(2)
    found = 0
    for _ in range(1000):
        if per_side:
            # `noise` is that of a difference of two runs.
            a, b = random.normal(1, 0.02 / 2**0.5, n), random.normal(1.01, 0.02 / 2**0.5, n)
            judged = judge_independent(a, b, 0.01)
        else:
            judged = judge_rounds(np.ones(n), random.normal(1.01, 0.02, n), 0.01)
        found += judged.change.low > 0
    assert 0.87 < found / 1000 < 0.93


def test_no_affordable_number_of_runs() -> None:
    assert runs_for(0.0, 0.02, per_side=True) is None
    assert runs_for(1e-6, 0.02, per_side=True) is None
    assert runs_for(0.01, 0.0, per_side=True) == 2


def test_disturbed_rounds_do_not_move_the_point() -> None:
    quiet = [1.0, 1.01, 0.99, 1.005, 0.995, 1.002, 0.998, 1.001, 0.999, 1.0]
    still = judge_rounds([1.0] * 10, quiet, 0.01)
    shaken = judge_rounds([1.0] * 10, [*quiet[:8], 1.4, 1.6], 0.01)
    assert still.verdict is Verdict.NEUTRAL
    assert abs(shaken.change.point) < 0.005 < np.mean([*quiet[:8], 1.4, 1.6]) - 1


def test_the_interval_of_rounds_by_hand() -> None:
    # 1 to 9 and 30 hundredths: the two least and the two greatest go, so the mean of 3 to 8; winsorised, 333 4567 888.
    changes = [i / 100 for i in (9, 2, 30, 4, 1, 6, 7, 8, 3, 5)]
    judged = judge_rounds([1.0] * 10, list(np.exp(changes)), 0.01)
    error = np.std([0.03] * 3 + [0.04, 0.05, 0.06, 0.07] + [0.08] * 3, ddof=1) / (0.6 * 10**0.5)
    reach = 2.5706 * error  # Student's, 5 degrees of freedom
    assert judged.change.point == pytest.approx(np.expm1(0.055))
    assert judged.change.low == pytest.approx(np.expm1(0.055 - reach), rel=1e-4)
    assert judged.change.high == pytest.approx(np.expm1(0.055 + reach), rel=1e-4)


@pytest.mark.parametrize("n", [8, 20, 60])
def test_the_interval_of_rounds_holds_what_it_says_on_a_shared_machine(n: int) -> None:
    # One run in four is up to a third slower, as beside a neighbour; a round's side is the mean of two runs.
    random = np.random.default_rng(3)
    outside = 0
    for _ in range(2000):
        disturbed = np.where(random.random((2, n, 2)) < 0.25, random.uniform(1, 1.33, (2, n, 2)), 1)
        a, b = (random.normal(1, 0.01, (2, n, 2)) * disturbed).mean(axis=2)
        change = judge_rounds(a, b, 0.01).change
        outside += not change.low <= 0 <= change.high
    assert outside / 2000 < 0.065


def test_amdahl() -> None:
    # A cache for 1.56 % of the traffic cannot bring much over 1.56 %, whatever it costs.
    assert amdahl(0.0156) == pytest.approx(0.01585, abs=1e-5)
    assert amdahl(0.5) == 1.0
    assert amdahl(1.0) == float("inf")


def test_gains_compound() -> None:
    assert 100 * compound([0.0705, 0.0231]) == pytest.approx(9.52, abs=0.01)
    assert compound([]) == 0


def test_geometric_mean() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)


def test_median_intervals_say_what_they_hold() -> None:
    assert median_interval([3.0]) == (Interval(3.0, 3.0, 3.0), 0.0)
    assert median_interval([1, 2, 3]) == (Interval(2, 1, 3), 0.75)
    assert median_interval(range(1, 7)) == (Interval(3.5, 1, 6), 0.96875)
    interval, coverage = median_interval(range(1, 21))
    assert (interval.low, interval.high) == (6, 15)
    assert 0.95 <= coverage < 0.97


@pytest.mark.parametrize("values", [[], [1.0], [1.0, -1.0], [1.0, float("nan")]])
def test_values_that_cannot_be_judged(values: list[float]) -> None:
    with pytest.raises(ValueError):
        summarize(values)
