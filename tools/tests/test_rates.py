"""The changes between two looks: rates only where there is a rate, and growth told from going up and down."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tslab import trend
from tslab.rates import Between


def document(pid: int = 7, at_s: float = 1.0, started: int = 5, **total: int) -> dict[str, Any]:
    return {
        "pid": pid, "timestamp_ns": int(at_s * 1e9), "started_ns": started,
        "process": {"clock_ns": int(at_s * 1e9), **total},
        "labels": [{"label": "a", "opened": total.get("allocations", 0)}],
    }  # fmt: skip


def test_a_rate_needs_two_looks_at_one_life() -> None:
    between = Between(document(at_s=1, allocations=10, live_bytes=90), document(at_s=3, allocations=50, live_bytes=10))
    assert between.seconds == 2.0
    assert between.rate("allocations") == 20.0
    assert between.change("live_bytes") == -80
    assert between.grown("live_bytes") == 0
    assert between.grown("opened", "labels", "a") == 40
    assert between.grown("opened", "labels", "b") == 0
    other = Between(document(pid=1), document(pid=2))
    assert (other.seconds, other.rate("allocations")) == (None, None)
    assert "two lives" in other.why
    assert "two lives" in Between(document(started=1), document(started=2)).why
    assert "is not later" in Between(document(at_s=2), document(at_s=2)).why


def test_a_clock_that_somebody_set_is_not_used() -> None:
    first, second = document(at_s=1), document(at_s=3)
    second["timestamp_ns"] = 0
    assert Between(first, second).seconds == 2.0


def steady(slope: float, seconds: int = 600, swing: float = 0.0, seed: int = 1) -> list[tuple[float, float]]:
    chance = random.Random(seed)
    return [(float(at), 1e6 + slope * at + chance.uniform(0, swing)) for at in range(seconds + 1)]


def test_a_steady_leak_is_found_with_its_rate_in_the_interval() -> None:
    slope = (1 << 20) / 60  # 1 MiB a minute under allocations of 8 MiB that come and go
    for seed in range(20):
        found = trend.growth(steady(slope, swing=8 << 20, seed=seed))
        assert found
        assert found.low <= slope <= found.high or found.slope == pytest.approx(slope, rel=0.1)


def test_what_goes_up_and_down_or_fills_up_is_no_leak() -> None:
    wrong = 0
    for seed in range(200):
        chance = random.Random(seed)
        value, walk = 1e7, []
        for at in range(60):
            value += chance.uniform(-1e5, 1e5)
            walk.append((float(at), value))
        wrong += trend.growth(walk) is not None
    assert wrong <= 4
    assert trend.growth(steady(0.0, swing=1e6)) is None
    assert trend.growth([(float(at), 1e6 * (1 - 0.9**at)) for at in range(60)]) is None  # a cache that fills
    assert trend.growth([(float(at), float(at)) for at in range(4)]) is None
    assert trend.growth([]) is None
