"""Judges what causes.c injected: the words of tools/tslab/attribution.py for each cause, and the names of paths.

causes.py PROGRAM
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from tslab.attribution import Cause, classify

SKIPPED = 77
SHARE = 0.95
LEAST = 100  # calls, of which 95 % are to be right
WITHOUT_CPU = -1

# The name of each injected cause in the library's report, and the paths that are right for it; None: any.
EXPECTED: dict[str, tuple[Cause, set[str] | None]] = {
    "cpu": (Cause.SCHEDULER, None),
    "lock": (Cause.CONTENTION, {"lock"}),
    "faults": (Cause.FRESH, {"fresh", "run", "map"}),
    "remote": (Cause.CONTENTION, {"remote"}),
    "map": (Cause.FRESH, {"map"}),
}


def main() -> int:
    done = subprocess.run([sys.argv[1]], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, SKIPPED):
        print(f"{sys.argv[1]} ended with {done.returncode}")
        return 1
    said: dict[str, Counter[tuple[Cause, str]]] = defaultdict(Counter)
    for line in done.stdout.splitlines():
        cause, wall, cpu, lock_wait, path = line.split(" ", 4)
        cpu_ns = None if int(cpu) == WITHOUT_CPU else int(cpu)
        said[cause][classify(int(wall), cpu_ns, int(lock_wait), path), path] += 1
    failed = False
    for cause, (word, paths) in EXPECTED.items():
        total = said[cause].total()
        right = sum(n for (found, path), n in said[cause].items() if found is word and (not paths or path in paths))
        by = f" by {', '.join(sorted(paths))}" if paths else ""
        print(f"{cause:8} {right} of {total} calls are {word.value}{by}")
        skipped = cause == "cpu" and done.returncode == SKIPPED
        if not skipped and (total < LEAST or right < SHARE * total):
            failed = True
            for (found, path), n in said[cause].most_common():
                print(f"         {n:6} {found.value} by {path}")
    return 1 if failed else done.returncode


if __name__ == "__main__":
    sys.exit(main())
