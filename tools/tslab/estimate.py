"""An estimate from samples, with the interval in which the true figure lies in 95 of 100 cases.

A block of s bytes that is a sample with the probability 1 / w stands for w blocks. It adds w s to the estimate, and
w (w - 1) s^2 to the square of the standard error. The square of the error divided by the estimate is the mean of the
bytes that a sample stands for beyond itself: the reach.

By chance the estimate lies about a root of (reach T) from the true figure T. The interval holds each T that is at most
Z such roots away (Wilson's score interval). It leans to larger figures, because T itself says how far the estimate may
be off, and becomes Z errors to either side where there are many samples.

Samples that might be there, and are not, may reach further than those that are there. For the upper end the reach is
therefore that of all samples in use and of USUAL more, which reach as far as the call site's samples do in the mean.

This module needs nothing but Python: tests/preload/profile.py judges the interval by it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Z = 1.96  # of a normal distribution, 95 % lie within so many deviations of the mean
USUAL = 10


@dataclass(frozen=True)
class Estimate:
    value: float
    least: float
    most: float

    @property
    def is_exact(self) -> bool:
        return self.least == self.most

    def minus(self, other: Estimate) -> Estimate:
        """The difference of two figures whose samples are independent. Where they share samples it is more exact.

        The distance of each end is the root of the squares of the two distances that lead there.
        """
        value = self.value - other.value
        return Estimate(
            value,
            value - math.hypot(self.value - self.least, other.most - other.value),
            value + math.hypot(self.most - self.value, other.value - other.least),
        )


def reach_of(value: float, error: float) -> float:
    return error * error / value if value else 0.0


def estimate(value: float, error: float, usual: float = 0.0) -> Estimate:
    """Returns a sum of samples with its interval. `usual` is the mean reach of all samples of the call site, those that
    are no longer in use too; 0 if it is not known."""
    likely = reach_of(value + USUAL * usual, math.hypot(error, math.sqrt(USUAL) * usual))
    return Estimate(value, max(0.0, _end(value, reach_of(value, error), -Z)), _end(value, likely, Z))


def _end(value: float, reach: float, z: float) -> float:
    middle = value + reach * z * z / 2
    return middle + z * math.sqrt(reach * (value + reach * z * z / 4))
