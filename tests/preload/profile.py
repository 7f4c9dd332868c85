"""The heap profile's estimates against a program that knows the truth, for each call site.

    profile.py LIBRARY PROFILED [RUNS [INTERVAL]]

What a site holds, or has allocated, is the sum of its samples' weights. Each sample is drawn for itself, so the sum's
variance is known, and the program says what it is. An estimate that is right in the mean is 4.5 standard deviations off
once in 150,000 times; over all runs, the mean of that distance and its share below 1.96 must fit, too.

The figures state a standard error of their own, which comes from the samples that there are. The truth must lie in the
interval that the tools make of it (tslab/estimate.py) in 95 of 100 cases, where some three samples or more are to be
expected. With fewer, whole numbers of samples leave no interval that does. All of this holds while the interval
changes, and in a child of fork.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from tslab.estimate import Z, estimate, reach_of

RUNS = 4
INTERVAL = 65536
MODES = ("fixed", "changes", "forks")
MOST_AWAY = 4.5
ENOUGH_SAMPLES = 3  # of one weight, for the stated interval
FEW_MISSES = 4  # more than a normal distribution has, where few are to be expected
SITE_BYTES = 1024  # each begins at a multiple of this


@dataclass
class Estimate:
    site: str
    what: str  # "allocated" or "live"
    bytes: int
    true: int
    deviation: float  # that the program expects; 0: the estimate must be exact
    stated: float  # the error that the figures state
    reach: float  # of all samples of the site
    samples: int

    @property
    def off(self) -> int:
        return self.bytes - self.true

    @property
    def away(self) -> float:
        return self.off / self.deviation if self.deviation else float(self.off and math.copysign(math.inf, self.off))

    @property
    def is_near(self) -> bool:
        """True if the estimate may be chance. One that is too high has more samples, so a larger error."""
        return abs(self.away) <= MOST_AWAY * math.sqrt(max(self.bytes / self.true, 1) if self.true else 1)

    @property
    def has_enough(self) -> bool:
        """True if as many samples are to be expected. Their real number would say which way the estimate is off."""
        return self.true >= math.sqrt(ENOUGH_SAMPLES) * self.deviation

    @property
    def is_covered(self) -> bool:
        found = estimate(self.bytes, self.stated, self.reach)
        return found.least <= self.true <= found.most

    @property
    def is_within_errors(self) -> bool:
        """True if the truth lies in an interval of equal sides, which few samples need not fill."""
        return abs(self.off) <= Z * self.stated


def run(library: str, program: str, mode: str, seed: int, interval: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    variables = {"LD_PRELOAD": library, "TSLAB_PROFILE": str(interval)}
    done = subprocess.run(
        [program, str(interval), str(seed), mode],
        env={**os.environ, **variables}, stdout=subprocess.PIPE, check=True, timeout=120, text=True,
    )  # fmt: skip
    truth, figures = done.stdout.split("\n", 1)
    return json.loads(truth), dict(json.loads(figures))


def site_of(stack: str, truth: list[dict[str, Any]]) -> str | None:
    """The program's function that the innermost of the addresses lies in that lies in one."""
    for word in stack.split():
        for site in truth:
            if site["address"] < int(word, 16) < site["address"] + SITE_BYTES:
                return str(site["name"])
    return None


def compare(truth: list[dict[str, Any]], figures: dict[str, Any]) -> Iterator[Estimate]:
    rows_of = defaultdict(list)
    for row in figures["sites"]:
        rows_of[site_of(row["stack"], truth)].append(row)
    for site in truth:
        rows = rows_of[site["name"]]
        allocated_bytes = sum(row["allocated_bytes"] for row in rows)
        allocated_error = math.hypot(*(row["allocated_error_bytes"] for row in rows))
        for what in ("allocated", "live"):
            variance = site[f"{what}_variance"]
            yield Estimate(
                site["name"],
                what,
                sum(row[f"{what}_bytes"] for row in rows),
                site[f"{what}_bytes"],
                math.sqrt(variance) if variance > 1 else 0.0,
                math.hypot(*(row["error_bytes"] for row in rows)) if what == "live" else allocated_error,
                reach_of(allocated_bytes, allocated_error),
                sum(row[f"{what}_samples"] for row in rows),
            )


def share(estimates: Sequence[Estimate]) -> float:
    return sum(one.is_covered for one in estimates) / len(estimates)


def summary(estimates: Sequence[Estimate]) -> str:
    seen = [one.away for one in estimates]
    ratio = sum(one.bytes for one in estimates) / sum(one.true for one in estimates)
    samples = sum(one.samples for one in estimates) / len(estimates)
    within = sum(abs(away) <= 1.96 for away in seen) / len(seen)
    errors = sum(one.is_within_errors for one in estimates) / len(estimates)
    return (
        f"{samples:6.1f} samples, {ratio:.3f} of the truth, {statistics.mean(seen):+.2f} ± "
        f"{1 / math.sqrt(len(seen)):.2f} errors off, {within:6.1%} within 1.96 of the expected error, "
        f"{errors:6.1%} of the stated one, {share(estimates):6.1%} in the stated interval"
    )


def fits_over_all(estimates: Sequence[Estimate]) -> bool:
    seen = [one.away for one in estimates]
    slack = MOST_AWAY / math.sqrt(len(seen))
    within = sum(abs(away) < 1.96 for away in seen) / len(seen)
    return abs(statistics.mean(seen)) < slack and within > 0.95 - 0.22 * slack


def fits_as_stated(estimates: Sequence[Estimate]) -> bool:
    """True if chance explains how many intervals miss the truth, neither too many nor too few."""
    mean = 0.05 * len(estimates)
    missed = sum(not one.is_covered for one in estimates)
    return mean - MOST_AWAY * math.sqrt(mean) <= missed <= mean + MOST_AWAY * math.sqrt(mean) + FEW_MISSES


def main() -> int:
    runs, interval = (*map(int, sys.argv[3:]), *(RUNS, INTERVAL)[len(sys.argv) - 3 :])
    fits = True
    for mode in MODES:
        of: dict[tuple[str, str], list[Estimate]] = defaultdict(list)
        for seed in range(1, runs + 1):
            truth, figures = run(str(Path(sys.argv[1]).resolve()), sys.argv[2], mode, seed, interval)
            for one in compare(truth, figures):
                of[one.site, one.what].append(one)
                if not one.is_near:
                    print(f"{mode}, seed {seed}: {one}, {one.away:+.1f} errors off  <-")
                    fits = False
            profile = figures["profiles"][0]
            if profile["lost"] or profile["samples"] != profile["frees"] + profile["live_samples"]:
                print(f"{mode}, seed {seed}: {profile}  <-")
                fits = False
        all_of = {key: drawn for key, all in of.items() if (drawn := [one for one in all if one.deviation])}
        for (site, what), estimates in all_of.items():
            print(f"{mode:>7} {site:>14} {what:>9}: {summary(estimates)}")
        together = [one for estimates in all_of.values() for one in estimates]
        fits &= fits_over_all(together)
        for what in ("allocated", "live"):
            stated = [one for one in together if one.what == what and one.has_enough]
            print(f"{mode:>7} {'all of enough':>14} {what:>9}: {summary(stated)}")
            fits &= fits_as_stated(stated)
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
