"""The heap profile's estimates against a program that knows the truth, for each call site.

    profile.py LIBRARY PROFILED [RUNS [INTERVAL]]

What a site holds, or has allocated, is the sum of its samples' weights. Each sample is drawn for itself, so the sum's
variance is known, and the program says what it is. An estimate that is right in the mean is 4.5 standard deviations off
once in 150,000 times; over all runs, the mean of that distance and its share below 1.96 must fit, too.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RUNS = 4
INTERVAL = 65536
MOST_AWAY = 4.5
SITE_BYTES = 1024  # each begins at a multiple of this


def run(library: str, program: str, seed: int, interval: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        variables = {"LD_PRELOAD": library, "TSLAB_PROFILE": str(interval), "TSLAB_STATS_AT_EXIT": str(file)}
        command = [program, str(interval), str(seed)]
        done = subprocess.run(
            command, env={**os.environ, **variables}, stdout=subprocess.PIPE, check=True, timeout=120, text=True
        )
        return json.loads(done.stdout), dict(json.loads(file.read_text()))


def site_of(stack: str, truth: list[dict[str, Any]]) -> str | None:
    """The program's function that the innermost of the addresses lies in that lies in one."""
    for word in stack.split():
        for site in truth:
            if site["address"] < int(word, 16) < site["address"] + SITE_BYTES:
                return str(site["name"])
    return None


def compare(truth: list[dict[str, Any]], figures: dict[str, Any], seen: list[float]) -> bool:
    fits = True
    for site in truth:
        rows = [row for row in figures["sites"] if site_of(row["stack"], truth) == site["name"]]
        for what in ("allocated", "live"):
            estimate = sum(row[f"{what}_bytes"] for row in rows)
            true = site[f"{what}_bytes"]
            deviation = math.sqrt(max(site[f"{what}_variance"], 1))
            away = (estimate - true) / deviation if deviation > 1 else float(estimate != true)
            if deviation > 1:
                seen.append(away)
            is_near = abs(away) <= MOST_AWAY
            fits &= is_near
            print(
                f"{site['name']:>14} {what:>9}: {estimate:12} estimated, {true:12} true, {away:+5.1f}"
                + ("" if is_near else "  <-")
            )
    return fits


def main() -> int:
    runs, interval = (*map(int, sys.argv[3:]), *(RUNS, INTERVAL)[len(sys.argv) - 3 :])
    seen: list[float] = []
    fits = True
    for seed in range(1, runs + 1):
        truth, figures = run(str(Path(sys.argv[1]).resolve()), sys.argv[2], seed, interval)
        fits &= compare(truth, figures, seen)
        profile = figures["profiles"][0]
        fits &= profile["lost"] == 0 and profile["samples"] == profile["frees"] + profile["live_samples"]
        print(profile)
    mean = sum(seen) / len(seen)
    within = sum(abs(away) < 1.96 for away in seen) / len(seen)
    print(f"{len(seen)} estimates: {mean:+.3f} standard deviations in the mean, {within:.1%} within 1.96")
    fits &= abs(mean) < MOST_AWAY / math.sqrt(len(seen)) and within > 0.95 - MOST_AWAY * 0.22 / math.sqrt(len(seen))
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
