"""What the scripts of this folder share: the allocators that take turns, and how a process stands in memory."""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

MIB = 1 << 20
LIBRARIES = [Path(folder) for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")]


def _library(name: str) -> str | None:
    return next((str(folder / name) for folder in LIBRARIES if (folder / name).exists()), None)


def allocators(tslab: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields a name and the environment for each that is installed. libc is preloaded where a program links another."""
    libc = _library("libc.so.6")
    assert libc
    yield "glibc", {"LD_PRELOAD": libc}
    yield "glibc, `MALLOC_ARENA_MAX=2`", {"LD_PRELOAD": libc, "MALLOC_ARENA_MAX": "2"}
    for name, file in (("jemalloc", "libjemalloc.so.2"), ("mimalloc", "libmimalloc.so.2")):
        library = _library(file)
        if library:
            yield name, {"LD_PRELOAD": library}
    yield "temporal-slab", {"LD_PRELOAD": tslab}


def resident(pid: int) -> int:
    """Returns the bytes of the process's own memory that are resident; files that it maps are not in it."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) << 10


def table(title: str, columns: list[str], measure: Callable[[dict[str, str]], list[float]]) -> None:
    """Prints a row for each allocator: the medians of rounds in which they took turns, and the extremes."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("library", type=Path, help="libtslab.so.0")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    kinds = list(allocators(str(arguments.library.resolve())))
    rows: dict[str, list[list[float]]] = {name: [] for name, _ in kinds}
    for _ in range(arguments.rounds):
        for name, variables in kinds:
            rows[name].append(measure({**os.environ, **variables}))
    print(f"{title}, {arguments.rounds} rounds, load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores\n")
    print(f"| allocator | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name, rounds in rows.items():
        cells = [f"{statistics.median(of):.0f} [{min(of):.0f} … {max(of):.0f}]" for of in zip(*rounds, strict=True)]
        print(f"| {name} | {' | '.join(cells)} |")


def ended(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait(60)
