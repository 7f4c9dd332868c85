"""Decides if a series of looks grows for good, and how fast.

Memory of a working program goes up and down. A leak raises the floor: the least value of each of some equal spans of
time. A series grows where each floor is above the one before, the later half grows at least half as fast as the earlier
one (a cache that fills slows down), and the slope's 95 % interval (least squares over the floors, Student's t) lies
above 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

SPANS = 10
LEAST = 6  # floors; fewer tell growth from chance too rarely
# Student's t, two-sided 95 %, by degrees of freedom from 1: enough for SPANS, without waiting for scipy.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306)

Points = Sequence[tuple[float, float]]  # seconds, value


@dataclass(frozen=True)
class Growth:
    """Per second, with its 95 % interval."""

    slope: float
    low: float
    high: float
    seconds: float
    first: float
    last: float


def growth(points: Points) -> Growth | None:
    """None where the series is too short or does not grow for good."""
    lowest = floors(points)
    if len(lowest) < LEAST or any(b[1] <= a[1] for a, b in itertools.pairwise(lowest)):
        return None
    middle = len(lowest) // 2
    early, late = _slope(lowest[: middle + 1]), _slope(lowest[middle:])
    slope = _slope(lowest)
    half = _half_width(lowest, slope)
    if late < early / 2 or slope - half <= 0:
        return None
    return Growth(slope, slope - half, slope + half, points[-1][0] - points[0][0], lowest[0][1], lowest[-1][1])


def floors(points: Points) -> list[tuple[float, float]]:
    """The least point of each span; spans without a point are left out."""
    if len(points) < LEAST:
        return list(points)
    start, length = points[0][0], points[-1][0] - points[0][0]
    if length <= 0:
        return []
    spans = min(SPANS, len(points))
    found: dict[int, tuple[float, float]] = {}
    for at, value in points:
        span = min(spans - 1, int((at - start) / length * spans))
        if span not in found or value < found[span][1]:
            found[span] = (at, value)
    return [found[span] for span in sorted(found)]


def _slope(points: Points) -> float:
    mean_at = sum(at for at, _ in points) / len(points)
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    return sum((at - mean_at) * value for at, value in points) / spread if spread else 0.0


def _half_width(points: Points, slope: float) -> float:
    n = len(points)
    mean_at = sum(at for at, _ in points) / n
    mean = sum(value for _, value in points) / n
    errors = sum((value - mean - slope * (at - mean_at)) ** 2 for at, value in points)
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    return _T[min(n - 2, len(_T)) - 1] * math.sqrt(errors / (n - 2) / spread)
