#!/usr/bin/env python3
"""A real redis-server under temporal-slab and under glibc's malloc, side by side.

Both servers live at the same time and take the same load from redis-benchmark in turns, so that a noisy machine
disturbs both alike. Then every second key is deleted, and what each gives back to the operating system is read from
/proc. temporal-slab's own figures come from the statistics that it writes when its server exits.

    ./dev demo redis        or        python3 demo/redis_demo.py build/release/libtslab.so
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

KEYS = 200_000
VALUE_SIZES = (24, 100, 400, 1500)  # one per round in turn: keys are overwritten with values of another class
ROUNDS = 8
REQUESTS = 500_000  # for each of SET and GET, each round and each server
SETTLE_SECONDS = 4  # without a request after the deletion: memory goes back by itself or not at all
LEAST_ALLOCATIONS = 100_000  # fewer than these, and something else served the process
MIB = 1 << 20


class DemoError(Exception):
    """The demo cannot show what it promises; the message says why."""


@dataclass
class Runs:
    """The figures of redis-benchmark for one command, one per round."""

    per_second: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)


class Server:
    """One redis-server whose malloc is the preloaded library's."""

    def __init__(self, name: str, preload: str, folder: Path) -> None:
        self.name = name
        self.preload = preload
        self.folder = folder / name
        self.folder.mkdir()
        self.socket = self.folder / "socket"
        self.statistics = self.folder / "statistics"
        self.runs = {"SET": Runs(), "GET": Runs()}
        with (self.folder / "output").open("wb") as output:
            self.process = subprocess.Popen(self.command_line(), stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    def command_line(self) -> list[str]:
        # Only redis-server gets the environment. setpriv: it must not outlive the demo, however that ends.
        # Debian builds redis-server, redis-check-rdb and -aof as one program that goes by its name. The package of
        # the other two starts no service, so it is the one ./dev installs.
        program = self.folder / "redis-server"
        program.symlink_to(find_program("redis-server", "redis-check-rdb"))
        environment = {
            "LD_PRELOAD": self.preload,
            "TSLAB_STATS_AT_EXIT": str(self.statistics),
            "LD_DEBUG": "bindings",  # the dynamic linker's own word on whose malloc is called
            "LD_DEBUG_OUTPUT": str(self.folder / "bindings"),
        }
        options = {"port": "0", "unixsocket": str(self.socket), "dir": str(self.folder), "save": "", "appendonly": "no",
                   "jemalloc-bg-thread": "no"}  # jemalloc is linked by Debian's build, and stays idle in both
        return ["setpriv", "--pdeathsig", "KILL", "env", *(f"{name}={value}" for name, value in environment.items()),
                str(program), *(word for name, value in options.items() for word in (f"--{name}", value))]

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 20
        while not (self.socket.exists() and self.cli("PING") == "PONG"):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise DemoError(f"redis-server did not start under {self.name}; it said:\n{self.last_words()}")
            time.sleep(0.05)

    def last_words(self) -> str:
        return "\n".join((self.folder / "output").read_text(errors="replace").splitlines()[-15:])

    def check_whose_malloc(self) -> None:
        """Compares what the dynamic linker bound in this very process with what was preloaded."""
        bindings = (self.folder / f"bindings.{self.process.pid}").read_text()
        for symbol in ("malloc", "calloc", "realloc", "free", "malloc_usable_size"):
            found = re.search(rf"file \S*/redis-server \[0\] to (\S+) \[0\]: normal symbol `{symbol}'", bindings)
            where = found[1] if found else "redis-server itself"
            if Path(where).name != Path(self.preload).name:
                raise DemoError(f"redis-server calls {symbol} of {where}, not of {self.preload}: it must be "
                                "Debian's or Ubuntu's own redis-server, and the library one that overrides malloc")

    def cli(self, *words: str, sent: str | None = None) -> str:
        done = subprocess.run(["redis-cli", "-s", str(self.socket), *words], input=sent, capture_output=True,
                              text=True, check=False)
        return done.stdout.strip()

    def load(self, command: str, value_size: int) -> None:
        """One run of redis-benchmark: random keys, 50 clients, 16 requests in flight each."""
        done = subprocess.run(
            ["redis-benchmark", "-s", str(self.socket), "-t", command.lower(), "-n", str(REQUESTS), "-r", str(KEYS),
             "-d", str(value_size), "-P", "16", "-c", "50", "--csv"], capture_output=True, text=True,
            check=False)
        rows = list(csv.DictReader(done.stdout.splitlines()))
        if done.returncode != 0 or not rows or "p99_latency_ms" not in rows[0]:
            raise DemoError(f"redis-benchmark {command} failed under {self.name} (version 6.2 or later is needed): "
                            f"{done.stdout}{done.stderr}\nredis-server said:\n{self.last_words()}")
        self.runs[command].per_second.append(float(rows[0]["rps"]))
        self.runs[command].p99_ms.append(float(rows[0]["p99_latency_ms"]))

    def delete_half(self) -> None:
        answer = self.cli("--pipe", sent="".join(f"DEL key:{key:012d}\r\n" for key in range(0, KEYS, 2)))
        if f"errors: 0, replies: {KEYS // 2}" not in answer:
            raise DemoError(f"deleting keys failed under {self.name}: {answer}")

    def memory(self, name: str) -> int:
        """Bytes of a /proc/PID/status line: VmRSS now, VmHWM at its peak."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
        if found is None:
            raise DemoError(f"redis-server under {self.name} is gone; it said:\n{self.last_words()}")
        return int(found[1]) * 1024

    def shut_down(self) -> None:
        """A normal exit: that is when temporal-slab writes its statistics."""
        self.cli("SHUTDOWN", "NOSAVE")
        if self.process.wait(timeout=20) != 0:
            raise DemoError(f"redis-server under {self.name} ended with status {self.process.returncode}; it said:\n"
                            f"{self.last_words()}")


@dataclass
class Statistics:
    """The file that TSLAB_STATS_AT_EXIT names: `NAME VALUE` lines, and `class SIZE NAME VALUE ...` lines."""

    process: dict[str, int]
    classes: dict[int, dict[str, int]]

    @classmethod
    def read(cls, path: Path) -> Statistics:
        if not path.exists():
            raise DemoError("libtslab wrote no statistics: it did not serve redis-server, or did not see it exit")
        result = cls({}, {})
        for words in map(str.split, path.read_text().splitlines()):
            if words[0] == "class":
                result.classes[int(words[1])] = dict(zip(words[2::2], map(int, words[3::2]), strict=True))
            else:
                result.process[words[0]] = int(words[1])
        return result


def find_program(*names: str) -> str:
    for name in names:
        if (path := shutil.which(name)) is not None:
            return path
    raise DemoError(f"{names[0]} is not installed; ./dev demo redis installs it")


def progress(start: float, text: str) -> None:
    print(f"[{time.monotonic() - start:4.0f} s] {text}", flush=True)


def run(servers: list[Server]) -> dict[str, dict[str, int]]:
    """The load, the deletion and the wait. Returns the resident bytes of each server at each point."""
    start = time.monotonic()
    for server in servers:
        server.wait_until_ready()
        server.check_whose_malloc()
        progress(start, f"{server.name:13} is up: pid {server.process.pid}, its malloc is that of {server.preload}")

    for number in range(ROUNDS):
        size = VALUE_SIZES[number % len(VALUE_SIZES)]
        for server in servers if number % 2 == 0 else reversed(servers):  # neither is always the first
            for command in server.runs:
                server.load(command, size)
            rates = ", ".join(f"{command} {runs.per_second[-1]:9,.0f}/s" for command, runs in server.runs.items())
            progress(start, f"round {number + 1} of {ROUNDS}, {size:4} bytes, {server.name:13} {rates}, "
                            f"resident {server.memory('VmRSS') / MIB:5.0f} MiB")

    resident: dict[str, dict[str, int]] = {server.name: {} for server in servers}
    for server in servers:
        resident[server.name] = {"peak": server.memory("VmHWM"), "before": server.memory("VmRSS")}
        server.delete_half()
        progress(start, f"{server.name:13} deleted every second key, resident {server.memory('VmRSS') / MIB:5.0f} MiB")
    progress(start, f"{SETTLE_SECONDS} seconds without a request")
    time.sleep(SETTLE_SECONDS)
    for server in servers:
        resident[server.name]["after"] = server.memory("VmRSS")
        server.shut_down()
    progress(start, "both servers shut down")
    return resident


def print_comparison(servers: list[Server], resident: dict[str, dict[str, int]]) -> None:
    def row(label: str, unit: str, values: Iterable[float], digits: int) -> None:
        ours, theirs = values
        ratio = f"{ours / theirs:8.2f}" if theirs > 0 else "       -"
        print(f"{label:34}{unit:>8}{ours:16,.{digits}f}{theirs:14,.{digits}f}{ratio}")

    print(f"\n{'medians of ' + str(ROUNDS) + ' rounds':34}{'':8}{servers[0].name:>16}{servers[1].name:>14}{'ratio':>8}")
    for command in ("SET", "GET"):
        row(f"{command} throughput", "1/s", (statistics.median(s.runs[command].per_second) for s in servers), 0)
    for command in ("SET", "GET"):
        row(f"{command} p99", "ms", (statistics.median(s.runs[command].p99_ms) for s in servers), 3)
    memory = [resident[server.name] for server in servers]
    row("peak resident", "MiB", (m["peak"] / MIB for m in memory), 1)
    row("final resident", "MiB", (m["after"] / MIB for m in memory), 1)
    row("returned by deleting half the keys", "MiB", ((m["before"] - m["after"]) / MIB for m in memory), 1)
    print("\n" + judgement(servers, resident))


def judgement(servers: list[Server], resident: dict[str, dict[str, int]]) -> str:
    """Ours against the other, with the least and the greatest ratio of the rounds; a loss is called one."""
    ours, theirs = servers
    said = []
    for command in ("SET", "GET"):
        for what, higher in (("per_second", True), ("p99_ms", False)):
            pairs = zip(getattr(ours.runs[command], what), getattr(theirs.runs[command], what), strict=True)
            ratios = sorted(a / b for a, b in pairs if b > 0)
            if not ratios:
                continue
            level = ratios[0] <= 1 <= ratios[-1]
            verdict = "level" if level else "better" if (ratios[0] > 1) == higher else "WORSE"
            name = f"{command} {'throughput' if higher else 'p99'}"
            middle = statistics.median(ratios)
            said.append(f"{name} {verdict} ({middle:.2f} times, {ratios[0]:.2f} to {ratios[-1]:.2f})")
    ends = [resident[server.name]["after"] / MIB for server in servers]
    memory = "less" if ends[0] < ends[1] else "MORE"
    return (f"temporal-slab against {theirs.name}, round by round: {'; '.join(said)}. At the end {ours.name} holds "
            f"{memory} memory: {ends[0]:.0f} MiB against {ends[1]:.0f}.")


def print_classes(figures: Statistics) -> None:
    names = ("allocations", "frees", "live_blocks", "live_bytes", "cached_blocks", "slabs")
    busiest = sorted(figures.classes, key=lambda size: figures.classes[size]["allocations"], reverse=True)[:12]
    print(f"\ntemporal-slab's own figures at exit: the {len(busiest)} busiest of {len(figures.classes)} size classes")
    print(f"{'class':>8}" + "".join(f"{name:>15}" for name in names))
    for size in sorted(busiest):
        print(f"{size:8,}" + "".join(f"{figures.classes[size][name]:15,}" for name in names))
    print(f"{'all':>8}" + "".join(f"{figures.process[name]:15,}" for name in names[:5]))
    print(f"returned to the operating system since the start: {figures.process['returned_bytes'] / MIB:,.1f} MiB")


def main() -> int:
    parser = argparse.ArgumentParser(description="redis-server under temporal-slab and under glibc, side by side")
    parser.add_argument("library", type=Path, help="libtslab.so")
    library: Path = parser.parse_args().library
    if not library.exists():
        parser.error(f"{library} does not exist; ./dev build makes it")
    for program in ("redis-cli", "redis-benchmark", "setpriv"):
        find_program(program)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are ended below
    servers: list[Server] = []
    with tempfile.TemporaryDirectory(prefix="tslab-demo-", dir="/tmp") as folder:  # a socket's path must be short
        try:
            for name, preload in (("temporal-slab", str(library.resolve())), ("glibc", "libc.so.6")):
                servers.append(Server(name, preload, Path(folder)))
            resident = run(servers)
            figures = Statistics.read(servers[0].statistics)
            allocations = figures.process["allocations"]
            if allocations < LEAST_ALLOCATIONS:
                raise DemoError(f"libtslab counted {allocations:,} allocations, fewer than {LEAST_ALLOCATIONS:,}: "
                                "it did not serve redis-server")
            print_comparison(servers, resident)
            print_classes(figures)
            print(f"libtslab served redis-server: {allocations:,} allocations by its own count")
        except DemoError as error:
            print(f"demo: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
        finally:
            for server in servers:
                server.process.kill()
                server.process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
