"""Checks how much memory programs take under LD_PRELOAD=libtslab.so. programs/programs.py compares their results.

    preload.py TEST LIBRARY [ARGUMENT]

TEST is one of the functions below whose names begin with test_ (without that prefix). Every process that a test starts
under the library writes its statistics at exit (TSLAB_STATS_AT_EXIT), and the test reads there how much it was served.
"""

import ctypes
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS = 400  # of a program whose memory is a matter of chance
RUNS_MOST = 4 * RUNS  # until the mean is on one side of the bar by more than its error


class Failure(Exception):
    """A line that says what does not hold."""


def preloaded(library: Path, stats: Path) -> dict[str, str]:
    return {**plain(), "LD_PRELOAD": str(library), "TSLAB_STATS_AT_EXIT": str(stats)}


def plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD" and not name.startswith("TSLAB_")}


def allocations(stats: Path) -> int:
    """How many allocations the process that wrote `stats` was served."""
    if not stats.exists():
        raise Failure(f"no statistics in {stats}: the library was not loaded, or did not see the exit")
    for line in stats.read_text().splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "allocations":
            return int(words[1])
    raise Failure(f"no line 'allocations N' in {stats}")


def require_served(stats: Path, least: int, who: str) -> int:
    served = allocations(stats)
    if served < least:
        raise Failure(f"{who}: {served} allocations served, expected at least {least}")
    return served


# ---- resident memory -------------------------------------------------------------------------------------------------


def draw() -> None:
    """Random addresses for what is executed next, though the tests themselves may run at fixed ones."""
    ctypes.CDLL(None).personality(0)


def asleep(program: Path, environment: dict[str, str], table: str) -> str:
    """A table of /proc/PID of the program while it sleeps, read from outside: neither we nor its launcher count.

    It runs at random addresses, as programs do. The pages that the kernel maps around a touched page depend on where
    64 KiB begin, so one process differs from the next by up to 500 KiB, and fixed addresses are one draw of many.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen([program], env=environment, stdin=pipe, stdout=pipe, text=True, preexec_fn=draw) as child:  # noqa: PLW1509
        assert child.stdin and child.stdout
        if child.stdout.readline() != "ready\n":
            raise Failure(f"{program.name} did not start")
        text = Path(f"/proc/{child.pid}/{table}").read_text()
        child.stdin.close()
    return text


def sleeping_kib(program: Path, environment: dict[str, str]) -> dict[str, int]:
    rows = (line.split() for line in asleep(program, environment, "smaps_rollup").splitlines()[1:])
    return {row[0].rstrip(":"): int(row[1]) for row in rows}


def code_kib(program: Path, environment: dict[str, str], library: Path) -> list[int]:
    """Resident KiB of each mapping of the library's code, in the order of addresses."""
    mappings = re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", asleep(program, environment, "smaps"))
    ours = [m for m in mappings if library.resolve().name in m and " r-xp " in m.splitlines()[0]]
    return [int(found[1]) for m in ours if (found := re.search(r"^Rss:\s+(\d+) kB", m, re.MULTILINE))]


def test_idle(library: Path, scratch: Path, program: Path) -> None:
    stats = scratch / "stats"
    sleeping_kib(program, preloaded(library, stats))
    require_served(stats, 3, program.name)
    idle = {name: value for name, value in preloaded(library, stats).items() if name != "TSLAB_STATS_AT_EXIT"}
    runs: list[tuple[dict[str, int], dict[str, int]]] = []
    more = error = 0.0
    while not runs or (len(runs) < RUNS_MOST and abs(more - 256) <= 2 * error):
        runs += [(sleeping_kib(program, plain()), sleeping_kib(program, idle)) for _ in range(RUNS)]
        differences = [tslab["Rss"] - glibc["Rss"] for glibc, tslab in runs]
        more, error = statistics.fmean(differences), statistics.stdev(differences) / len(runs) ** 0.5
    for what in ("Rss", "Pss", "Private_Dirty"):
        glibc, tslab = (statistics.fmean(r[side][what] for r in runs) for side in (0, 1))
        print(f"{what}: {glibc:.0f} KiB with glibc, {tslab:.0f} KiB with tslab")
    print(f"Rss differs by {more:.0f} +-{error:.1f} KiB in {len(runs)} runs")
    code = code_kib(program, idle, library)
    if len(code) != 2 or code[1] != 0:
        raise Failure(f"code of the library: {code} KiB resident; rare code belongs into the second (cmake/rare.ld)")
    if more > 256:
        raise Failure(f"an idle process is {more:.0f} KiB larger than with glibc; the bar is 256 KiB")


def test_burst(library: Path, scratch: Path, program: Path) -> None:
    stats = scratch / "stats"
    run = subprocess.run([program], env=preloaded(library, stats), check=True, capture_output=True, text=True)
    start, peak, after = (int(word) for word in run.stdout.split())
    served = require_served(stats, 10000, program.name)
    print(f"{served} allocations; resident {start >> 10} KiB, at most {peak >> 10}, two seconds after {after >> 10}")
    if peak < start + (200 << 20):
        raise Failure("the burst did not reach 200 MiB")
    most = 3 << 20 if b"release-hardened" in library.read_bytes() else 2 << 20  # blocks in quarantine pin pages
    if after > start + most:
        raise Failure(f"{(after - start) >> 10} KiB did not go back; the bar is {most >> 10} KiB")


def main() -> int:
    test = globals().get(f"test_{sys.argv[1]}") if len(sys.argv) > 2 else None
    if test is None:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        try:
            test(Path(sys.argv[2]).absolute(), Path(scratch), *(Path(argument).absolute() for argument in sys.argv[3:]))
        except Failure as failure:
            print(f"failed: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
