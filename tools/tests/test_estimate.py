"""The interval of an estimate from samples: its ends, and how often the true figure lies in it."""

from __future__ import annotations

import math
import random
from dataclasses import astuple

import pytest

from tslab.estimate import Estimate, Z, estimate
from tslab.figures import derive
from tslab.reporters.quantities import interval_text, short_interval
from tslab.sites import Site, growth_of

KIB, MIB = 1 << 10, 1 << 20


def samples(count: int, reach: float = 64 * KIB) -> tuple[float, float]:
    """The estimate and the error of so many samples, of blocks that are small beside what they stand for."""
    return count * reach, math.sqrt(count) * reach


def test_what_has_no_error_is_exact() -> None:
    found = estimate(3 * MIB, 0)
    assert astuple(found) == (3 * MIB, 3 * MIB, 3 * MIB)
    assert found.is_exact
    assert estimate(0, 0).is_exact
    assert interval_text(found) == short_interval(found) == "exact"


def test_one_sample_may_stand_for_a_fifth_or_for_five_times_as_much() -> None:
    found = estimate(*samples(1, 1000))
    assert (round(found.least), round(found.most)) == (177, 5665)
    assert interval_text(estimate(*samples(1))) == "11 to 363 KiB"


@pytest.mark.parametrize("usual", [0.0, 64.0 * KIB])
def test_many_samples_have_errors_to_either_side(usual: float) -> None:
    value, error = samples(10_000)
    found = estimate(value, error, usual)
    assert found.least == pytest.approx(value - Z * error, rel=1e-3)
    assert found.most == pytest.approx(value + Z * error, rel=1e-3)
    assert found.value - found.least < found.most - found.value  # it leans to larger figures


def test_no_sample_leaves_room_for_some() -> None:
    found = estimate(0, 0, 64 * KIB)
    assert (found.least, found.most) == (0, pytest.approx(Z * Z * 64 * KIB))


def test_samples_that_reach_far_may_be_missing() -> None:
    value, error = samples(5, KIB)
    alone, among_others = estimate(value, error), estimate(value, error, 64 * KIB)
    assert among_others.least == alone.least
    assert among_others.most > 10 * alone.most
    assert estimate(20 * MIB, 0, KIB).least == 20 * MIB  # a large block that is a sample is in use for certain


def test_a_difference_is_off_by_both_sides() -> None:
    grown = Estimate(30, 26, 36).minus(Estimate(10, 7, 14.5))
    assert (grown.value, grown.least) == (20, pytest.approx(20 - math.hypot(4, 4.5)))
    assert grown.most == pytest.approx(20 + math.hypot(6, 3))
    assert interval_text(Estimate(0, -3 * MIB, 5 * MIB), "+") == "-3.0 to +5.0 MiB"


def test_a_site_that_is_new_may_have_been_there_without_a_sample() -> None:
    value, error = map(round, samples(1))
    new = Site(1, (), 1, value, 1, 1, value, error, error)
    grown, shrunk = growth_of(None, new), growth_of(new, None)
    assert grown and shrunk
    assert grown.least < 0 < grown.value < grown.most
    assert (shrunk.least, shrunk.most) == (-grown.most, -grown.least)


@pytest.mark.parametrize("mean", [3, 5, 10, 30])
def test_the_truth_lies_in_95_of_100_intervals(mean: int) -> None:
    """The mean varies by a quarter: at one mean, whole numbers of samples leave no interval of just 95 %."""
    draw, inside, runs = random.Random(mean), 0, 4000
    for _ in range(runs):
        blocks = round(mean * 100 * draw.uniform(0.75, 1.25))  # one in 100 is a sample
        count = sum(draw.random() < 0.01 for _ in range(blocks))
        found = estimate(count * 100.0, math.sqrt(count * 100 * 99), 99)
        inside += found.least <= blocks <= found.most
    assert 0.93 < inside / runs < 0.97


def test_rows_of_a_document_have_the_ends() -> None:
    value, error = map(round, samples(4))
    tables = {"process": {}, "locks": [], "classes": [], "paths": [], "threads": [], "labels": [], "epochs": []}
    held = {"site": 2, "live_bytes": value, "error_bytes": error}
    site = held | {"allocated_bytes": value, "allocated_error_bytes": error}
    gone = site | {"site": 3, "live_bytes": 0, "error_bytes": 0}
    found = tables | {"sites": [site, gone, held | {"site": 4}], "holders": [held, held | {"site": 9}]}
    derive(found)
    ends = {"live_least_bytes": 101941, "live_most_bytes": 674110}
    allocated = {"allocated_least_bytes": 101941, "allocated_most_bytes": 674110}
    assert [row["derived"] for row in found["sites"]] == [
        ends | allocated, {"live_least_bytes": 0, "live_most_bytes": round(Z * Z * 64 * KIB)} | allocated, ends,
    ]  # fmt: skip
    assert [row["derived"] for row in found["holders"]] == [ends, ends]
