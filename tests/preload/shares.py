"""Samples are taken in the true shares of the traffic: of each class, and of the fast path.

    shares.py LIBRARY RANDOM_MIXED [SAMPLE [ITERATIONS]]

A share is compared with that of all calls, which the library counts by other means. Were each call drawn for itself, n
samples of a class with the share p would vary by sqrt(n p (1 - p)); 5 of these are exceeded once in a million times.
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

SAMPLE = 1024
ITERATIONS = 20_000_000
DEVIATIONS = 5.0


def figures(library: str, program: str, sample: int, iterations: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        variables = {"LD_PRELOAD": library, "TSLAB_SAMPLE": str(sample), "TSLAB_STATS_AT_EXIT": str(file)}
        command = [program, f"--iterations={iterations}", f"--expect={library}"]
        subprocess.run(command, env={**os.environ, **variables}, stdout=subprocess.DEVNULL, check=True)
        return dict(json.loads(file.read_text()))


def compare(what: str, samples: int, of_samples: int, calls: int, of_calls: int) -> bool:
    """Checks that the share of the samples is that of the calls."""
    share = calls / of_calls
    expected = of_samples * share
    deviation = math.sqrt(of_samples * share * (1 - share)) or 1.0
    away = (samples - expected) / deviation
    fits = abs(samples - expected) <= DEVIATIONS * deviation + 1  # a whole sample may go either way
    print(f"{what:>12} {samples:8} samples, {expected:10.1f} expected, {away:+6.1f}" + ("" if fits else "  <-"))
    return fits


def main() -> int:
    sample, iterations = (*map(int, sys.argv[3:]), *(SAMPLE, ITERATIONS)[len(sys.argv) - 3 :])
    found = figures(str(Path(sys.argv[1]).resolve()), sys.argv[2], sample, iterations)
    classes = [row for row in found["classes"] if row["allocations"]]
    samples, calls = (sum(row[name] for row in classes) for name in ("samples", "allocations"))
    fits = [
        compare(f"{row['object_size']} bytes", row["samples"], samples, row["allocations"], calls) for row in classes
    ]
    fast = next(row for row in found["paths"] if row["name"] == "fast")
    fits.append(compare("fast path", fast["samples"], samples, sum(row["from_list"] for row in classes), calls))
    # All of them were one in `sample`, counted down from random numbers whose deviation is their mean.
    rate = samples * sample / calls
    fits.append(abs(rate - 1) <= DEVIATIONS / math.sqrt(samples))
    print(f"{samples} samples of {calls} calls, {rate:.4f} of what was asked for")
    return 0 if all(fits) else 1


if __name__ == "__main__":
    sys.exit(main())
