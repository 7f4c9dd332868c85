"""The heap profiles of other allocators against the same program that knows the truth, read by their own tools.

    profile_peers.py jemalloc LIBRARY JEPROF PROFILED [RUNS [INTERVAL]]
    profile_peers.py tcmalloc LIBRARY PPROF PROFILED [RUNS [INTERVAL]]

jemalloc draws samples at INTERVAL bytes, and so has the deviation that the program expects. The heap profiler of
gperftools' tcmalloc records every block, so its figures should be exact. LIBRARY is a libjemalloc with profiling or a
full libtcmalloc: Debian has libjemalloc2 with libjemalloc-dev, and libgoogle-perftools4 with google-perftools. This
prints figures and asserts nothing.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

RUNS = 50
INTERVAL = 65536  # a power of two
MODES = ("fixed", "forks")  # no peer changes its interval in a process that runs
SPACES = {"live": "inuse", "allocated": "alloc"}
ROW = re.compile(r"^ *\d+ +[\d.]+% +[\d.]+% +(\d+) +[\d.]+% (\w+)", re.MULTILINE)


def variables(peer: str, library: str, folder: str, interval: int) -> dict[str, str]:
    if peer == "tcmalloc":
        return {"LD_PRELOAD": library, "HEAPPROFILE": f"{folder}/p"}
    settings = f"prof:true,prof_final:true,prof_accum:true,lg_prof_sample:{int(math.log2(interval))}"
    return {"LD_PRELOAD": library, "MALLOC_CONF": f"{settings},prof_prefix:{folder}/p"}


def read(tool: str, program: str, heap: Path, space: str) -> dict[str, int]:
    """The bytes of each function and all that it calls, as the peer's tool prints them."""
    command = [tool, "--text", "--show_bytes", f"--{space}_space", program, str(heap)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
    return {name: int(size) for size, name in ROW.findall(done.stdout)}


def run(peer: str, library: str, program: str, mode: str, seed: int, interval: int, tool: str) -> list[dict[str, Any]]:
    """Returns the truth of each site, with the figures of the tool as `live` and `allocated`."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [program, str(interval), str(seed), mode],
            env={**os.environ, **variables(peer, library, folder, interval)},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=120, text=True,
        )  # fmt: skip
        truth: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[0])
        last = max(Path(folder).glob("*.heap"), key=lambda heap: heap.stat().st_mtime_ns)
        for what, space in SPACES.items():
            found = read(tool, program, last, space)
            for site in truth:
                site[what] = found.get(site["name"], 0)
    return truth


def summary(rows: list[tuple[float, float, float]]) -> str:
    """Of (figure, truth, expected deviation)."""
    ratio = sum(figure for figure, _, _ in rows) / sum(true for _, true, _ in rows)
    away = [(figure - true) / deviation for figure, true, deviation in rows]
    within = sum(abs(one) <= 1.96 for one in away) / len(away)
    return (
        f"{ratio:.3f} of the truth, {statistics.mean(away):+.2f} ± {1 / math.sqrt(len(away)):.2f} errors off, "
        f"{within:6.1%} within 1.96 of the expected error"
    )


def main() -> None:
    peer, library, tool, program = sys.argv[1:5]
    runs, interval = (*map(int, sys.argv[5:]), *(RUNS, INTERVAL)[len(sys.argv) - 5 :])
    for mode in MODES:
        of: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
        for seed in range(1, runs + 1):
            for site in run(peer, library, program, mode, seed, interval, tool):
                for what in SPACES:
                    if site[f"{what}_variance"] > 1:
                        row = (site[what], site[f"{what}_bytes"], math.sqrt(site[f"{what}_variance"]))
                        of[site["name"], what].append(row)
        for (name, what), rows in of.items():
            print(f"{mode:>7} {name:>14} {what:>9}: {summary(rows)}")
        for what in SPACES:
            rows = [row for (_, which), some in of.items() if which == what for row in some]
            print(f"{mode:>7} {'all':>14} {what:>9}: {summary(rows)}", flush=True)


if __name__ == "__main__":
    main()
