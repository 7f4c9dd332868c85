"""The scripts of this folder share this: allocators that take turns, and the cost of a program's processes.

A script gives `compare` a function that starts its program under one environment. All of them are started, and then
each in turn gets the same bursts of work, in an order that is reversed from turn to turn. CPU time is compared turn by
turn, so that a machine that serves others at the time slows both sides of a ratio."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import queue
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[2]
FETCHED = ROOT / "build" / "adopt"  # scripts install packages from PyPI or npm here
LIBRARIES = [Path(folder) for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")]
PLAIN, TWO_ARENAS, OURS = "glibc", "glibc, `MALLOC_ARENA_MAX=2`", "temporal-slab"
TICKS = os.sysconf("SC_CLK_TCK")
REST_SECONDS = 4

Environment = dict[str, str]
Start = Callable[[Environment], contextlib.AbstractContextManager["Program"]]


@dataclass
class Program:
    """One that runs. `burst` gives it the work of that number; `afterwards`, if any, comes when it has rested."""

    pid: int
    burst: Callable[[int], None]
    afterwards: Callable[[], None] | None = None


@dataclass
class Result:
    """Of one allocator: resident bytes, one for each column, and the CPU seconds of each turn."""

    resident: list[int]
    seconds: list[float]


class MissingError(Exception):
    """The packages to install first."""


def needed(program: str, package: str) -> str:
    found = next((where for where in (f"/usr/sbin/{program}", f"/usr/bin/{program}") if Path(where).exists()), None)
    if found is None:
        raise MissingError(f"{program} is not here: apt-get install {package}")
    return found


# ---- the allocators ----


def _library(name: str) -> str | None:
    return next((str(folder / name) for folder in LIBRARIES if (folder / name).exists()), None)


def _peers() -> dict[str, tuple[str, str]]:
    """Returns the path and the version of each that ./dev peers has made; where it made none, the system's own."""
    index = ROOT / ".peers" / "peers.json"
    listed = json.loads(index.read_text()) if index.exists() else []
    made = {peer["name"]: (peer["path"], peer["version"]) for peer in listed if peer["path"] and not peer["reason"]}
    system = {"jemalloc": "libjemalloc.so.2", "mimalloc3": "libmimalloc.so.3", "mimalloc2": "libmimalloc.so.2"}
    for name, file in system.items():
        if path := _library(file):
            made.setdefault(name, (path, "the system's"))
    return made


def allocators(tslab: str, only: str | None, epochs: bool) -> Iterator[tuple[str, str, Environment]]:
    """Yields a name, a version and the environment for each. libc is preloaded where a program links another.

    With `epochs`: all that ./dev peers has made, and ours twice; ADOPT_EPOCHS tells the program which is which."""
    libc = _library("libc.so.6")
    assert libc
    version = os.confstr("CS_GNU_LIBC_VERSION") or ""
    made = _peers()
    mimalloc = "mimalloc3" if "mimalloc3" in made else "mimalloc2"
    found = [(PLAIN, version, {"LD_PRELOAD": libc}), (TWO_ARENAS, "", {"LD_PRELOAD": libc, "MALLOC_ARENA_MAX": "2"})]
    wanted = {name: name for name in made} if epochs else {"jemalloc": "jemalloc", "mimalloc": mimalloc}
    found += [(name, made[key][1], {"LD_PRELOAD": made[key][0]}) for name, key in wanted.items() if key in made]
    if epochs:
        found.append((f"{OURS}, malloc and free", "", {"LD_PRELOAD": tslab}))
    found.append((OURS, "", {"LD_PRELOAD": tslab, **({"ADOPT_EPOCHS": "1"} if epochs else {})}))
    for name, said, variables in found:
        if only is None or name in only.split(","):
            yield name, said, variables


# ---- what a process and those it started take ----


def tree(pid: int) -> list[int]:
    """Returns the process and its descendants."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def resident(pid: int) -> int:
    """Returns the bytes of the processes' own memory that are resident: anonymous pages, a shared one in parts."""
    total = 0
    for each in tree(pid):
        found = re.search(r"Pss_Anon:\s+(\d+) kB", Path(f"/proc/{each}/smaps_rollup").read_text())
        assert found
        total += int(found[1]) << 10
    return total


def seconds(pid: int) -> float:
    """Returns the CPU time that the process, its descendants, and those that it has waited for have taken."""
    total = 0.0
    for each in tree(pid):
        total += time.clock_gettime((~each << 3) | 2)  # its CPU clock, as clock_getcpuclockid(3) names it
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[13:15])) / TICKS
    return total


# ---- programs and loads ----


@contextlib.contextmanager
def worker(words: list[str], environment: Environment) -> Iterator[Program]:
    """A program that reads the number of a burst from its input, does its work, and then says "served"."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(words, env=environment, text=True, **pipes)  # type: ignore[call-overload]

    def burst(number: int) -> None:
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
        said = process.stdout.readline()
        assert said == "served\n", f"{words[0]} said {said!r}"

    try:
        yield Program(process.pid, burst)
    finally:
        process.stdin.close()
        process.wait(60)


@contextlib.contextmanager
def server(words: list[str], environment: Environment, **options: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, text=True, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def await_port(process: subprocess.Popen[str], port: int) -> None:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert process.poll() is None, "the server ended"
            time.sleep(0.05)


def by_clients(clients: int, jobs: Sequence[str], client: Callable[[Iterator[str]], None]) -> None:
    """Runs so many clients in threads; together they take all the jobs, in order."""
    waiting = queue.SimpleQueue[str | None]()
    for job in [*jobs, *[None] * clients]:
        waiting.put(job)
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(client, iter(waiting.get, None)) for _ in range(clients)]:
            done.result()


def http_load(port: int, paths: Sequence[str], clients: int) -> None:
    """Asks for all the paths, by so many connections that are kept open; each answer must be a good one."""

    def client(mine: Iterator[str]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        for path in mine:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200 and body, f"{path}: {answer.status} {body[:400]!r}"
        connection.close()

    by_clients(clients, paths, client)


# ---- comparing ----


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns the two order statistics between which the median lies, at 95 %; of fewer than six values, all."""
    ordered, count = sorted(values), len(values)
    cut, tail = 0, 1 / 2**count
    while 2 * (tail + comb(count, cut + 1) / 2**count) <= 0.05:
        cut += 1
        tail += comb(count, cut) / 2**count
    return ordered[cut], ordered[-1 - cut]


def _loads(programs: dict[str, Program], turns: int, bursts: int) -> dict[str, Result]:
    results = {name: Result([], []) for name in programs}
    names = list(programs)
    for program in programs.values():
        program.burst(turns * bursts)  # uncounted: it starts what a program starts late
    for turn in range(turns):
        for name in names if turn % 2 == 0 else reversed(names):
            before = seconds(programs[name].pid)
            for number in range(turn * bursts, turn * bursts + bursts):
                programs[name].burst(number)
            results[name].seconds.append(seconds(programs[name].pid) - before)
            if turn == turns - 1:
                results[name].resident.append(resident(programs[name].pid))
        print(f"\r{turn + 1} of {turns} turns", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return results


def _rests(programs: dict[str, Program], results: dict[str, Result], rest: int) -> None:
    time.sleep(rest)
    for name, program in programs.items():
        results[name].resident.append(resident(program.pid))
        if program.afterwards:
            program.afterwards()
    if any(program.afterwards for program in programs.values()):
        time.sleep(rest)
        for name, program in programs.items():
            results[name].resident.append(resident(program.pid))


def _against(name: str, results: dict[str, Result]) -> str:
    if name == OURS or OURS not in results:
        return "–"
    ratios = [o / t for o, t in zip(results[OURS].seconds, results[name].seconds, strict=True) if t > 0]
    low, high = interval(ratios)
    return f"{statistics.median(ratios):.3f} [{low:.3f} … {high:.3f}]"


def compare(title: str, columns: list[str], start: Start, epochs: bool = False) -> int:
    """Prints a row for each allocator. `columns` name what is resident: at once, at rest, and after `afterwards`."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("library", type=Path, help="libtslab.so.0")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--bursts", type=int, default=12, help="of a turn, one after another")
    parser.add_argument("--rest", type=int, default=REST_SECONDS, help="seconds before resident memory is read again")
    parser.add_argument("--only", help="names of allocators, with commas")
    arguments = parser.parse_args()
    kinds = list(allocators(str(arguments.library.resolve()), arguments.only, epochs))
    with contextlib.ExitStack() as running:
        try:
            programs = {name: running.enter_context(start({**os.environ, **own})) for name, _, own in kinds}
        except MissingError as missing:
            print(f"not here: {missing}")
            return 77
        results = _loads(programs, arguments.turns, arguments.bursts)
        _rests(programs, results, arguments.rest)
    versions = ", ".join(f"{name} {version.removeprefix('glibc ')}" for name, version, _ in kinds if version)
    load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
    print(f"{title}: {arguments.turns} turns of {arguments.bursts} bursts; {versions}; {load}\n")
    headings = [*(f"{column}, MiB" for column in columns), "CPU s in all", "temporal-slab's CPU time for one of its"]
    print(f"| allocator | {' | '.join(headings)} |\n|---|{'---|' * len(headings)}")
    for name, of in results.items():
        sizes = [f"{size / MIB:.1f}" for size in of.resident]
        print(f"| {name} | {' | '.join([*sizes, f'{sum(of.seconds):.1f}', _against(name, results)])} |")
    return 0
