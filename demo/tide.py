#!/usr/bin/env python3
"""The demo: a server's memory at high tide and at low, under several allocators, as a chart, a page and plain words.

    ./dev demo        or        python3 demo/tide.py build/release/libtslab.so build/release/demo/tide

tide.c is the server: it makes the same allocations in the same order under every allocator. Timed rounds come first,
every second one in reverse order, so that a noisy machine disturbs all alike. A last round is watched: its processes
fall to low tide one after the other and stay there, and the figures of ours are read from outside while it runs.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from tslab.errors import LabError  # noqa: E402 (the command of this very tree)
from tslab.figures import Source  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
import picture  # noqa: E402

MIB = 1 << 20
ROUNDS = 3
ROUNDS_WITHIN_S = 25  # no round begins later, so that a loaded machine does not make the demo long
LOW_SECONDS = 12  # jemalloc returns memory over ten
SCALE = 50
PUBLISHED_WITHIN_S = 5.0
OURS, EPOCHS = "temporal-slab", "with epochs"
PEERS = {"jemalloc": ("jemalloc",), "mimalloc": ("mimalloc3", "mimalloc2")}  # our name: theirs in .peers, best first


class DemoError(Exception):
    """The demo cannot show what it promises; the message says why."""


@dataclass(frozen=True)
class Arm:
    """One way to run the server. Without a library it has the C library's own malloc."""

    name: str
    version: str
    library: str | None = None
    mode: str = "malloc"


@dataclass
class Run:
    """The output of one process. A point is bytes resident and bytes live."""

    load: list[int] = field(default_factory=list)
    high_tide: list[tuple[int, int]] = field(default_factory=list)
    low_tide: list[tuple[int, int]] = field(default_factory=list)
    turns_per_s: float = 0
    p99_ns: float = 0

    @property
    def points(self) -> list[tuple[int, int]]:
        return self.high_tide + self.low_tide


@dataclass
class Result:
    """All that was measured. The text and the picture are made from this alone, and it is kept as JSON."""

    arms: dict[str, str]  # name: version
    missing: dict[str, str]  # name: reason
    turns_per_s: dict[str, list[float]]
    p99_ns: dict[str, list[float]]
    watched: dict[str, Run]
    labels: dict[str, list[dict[str, Any]]]  # moment: rows
    low_seconds: float

    @classmethod
    def read(cls, path: Path) -> Result:
        try:
            raw = json.loads(path.read_text())
            raw["watched"] = {name: Run(**run) for name, run in raw["watched"].items()}
            return cls(**raw)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DemoError(f"{path} is no result of this demo: {error}") from error

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self)) + "\n")


# ---- running ----


class Server:
    """A process of tide.c. setpriv: it must not outlive the demo, however that ends."""

    def __init__(self, program: Path, arm: Arm, *options: str) -> None:
        preload = [f"LD_PRELOAD={arm.library}"] if arm.library else []
        self.arm = arm
        self.run = Run()
        self.served = False
        # A small environment of our own, so that no setting of another allocator steers one of them.
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "env", "-i", *preload, str(program), arm.mode, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, last: str) -> None:
        """Reads on to the line that begins with `last`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, *values = line.split()
            self._take(word, values)
            if word == last:
                return
        raise DemoError(f"the server ended early under {self.arm.name}: {self._last_words()}")

    def _take(self, word: str, values: list[str]) -> None:
        if word == "tick":
            self.run.load.append(int(values[0]))
            self.run.high_tide.append((int(values[1]), int(values[2])))
        elif word == "low":
            self.run.low_tide.append((int(values[1]), int(values[2])))
        elif word == "done":
            self.run.turns_per_s, self.run.p99_ns = float(values[0]), float(values[2])
        elif word == "served":
            self._check(values[0], int(values[1]))

    def _check(self, where: str, allocations: int) -> None:
        """Refuses a run that another malloc served than the one it is called after."""
        wanted = self.arm.library or "libc.so"
        counted = allocations > 0 or self.arm.name not in (OURS, EPOCHS)
        if not counted or (where != wanted and wanted not in Path(where).name):
            raise DemoError(f"the run of {self.arm.name} was served by {where}")
        self.served = True

    def _last_words(self) -> str:
        assert self.process.stderr is not None
        self.process.kill()
        return self.process.stderr.read().strip() or f"status {self.process.wait()}"

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def labels(self, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """The labels' rows as the library published them, read from outside; it publishes about once a second."""
        end = time.monotonic() + PUBLISHED_WITHIN_S
        rows: list[dict[str, Any]] = []
        while time.monotonic() < end:
            try:
                rows = Source(str(self.process.pid)).read()["labels"]
            except LabError as error:
                reason = str(error)
            else:
                reason = ""
                if enough(rows):
                    break
            time.sleep(0.1)
        if not rows:
            raise DemoError(f"the figures of the running server cannot be read: {reason}")
        return [{name: row[name] for name in ("label", "open", "live_bytes", "committed_bytes")} for row in rows]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def allocators(library: Path, peers: Path) -> tuple[list[Arm], dict[str, str]]:
    """Every arm that can run here, and why the others cannot."""
    try:
        made = {peer["name"]: peer for peer in json.loads(peers.read_text())}
    except FileNotFoundError:
        made = {}
    arms = [Arm("glibc", "the C library's own malloc")]
    missing = {}
    for name, origins in PEERS.items():
        there = [made[origin] for origin in origins if origin in made]
        good = next((peer for peer in there if peer["path"] and Path(peer["path"]).exists()), None)
        if good:
            arms.append(Arm(name, good["version"], str(Path(good["path"]).resolve())))
        else:
            missing[name] = there[0]["reason"] if there and there[0]["reason"] else "not made; ./dev peers makes it"
    ours = str(library.resolve())
    return [*arms, Arm(OURS, "preloaded", ours), Arm(EPOCHS, "and an epoch a request", ours, "epochs")], missing


def time_rounds(program: Path, arms: Sequence[Arm], rounds: int, options: Sequence[str], result: Result) -> None:
    began = time.monotonic()
    for number in range(rounds):
        if number > 0 and time.monotonic() - began > ROUNDS_WITHIN_S:
            print(f"this machine is busy: {number} of {rounds} rounds must do", flush=True)
            break
        for arm in arms if number % 2 == 0 else reversed(arms):
            server = Server(program, arm, *options)
            try:
                server.until("served")
            finally:
                server.close()
            result.turns_per_s[arm.name].append(server.run.turns_per_s)
            result.p99_ns[arm.name].append(server.run.p99_ns)
        done = ", ".join(f"{name} {values[-1] / 1e3:,.0f}k" for name, values in result.turns_per_s.items())
        print(f"round {number + 1} of {rounds}, turns/s: {done}", flush=True)


def watch(program: Path, arms: Sequence[Arm], options: Sequence[str], result: Result) -> None:
    with ExitStack() as open_ones:
        servers = []
        for arm in arms:
            server = Server(program, arm, *options, "--ask", "--low", f"{result.low_seconds:.0f}")
            open_ones.callback(server.close)
            servers.append(server)
            server.until("high")
            if arm.name == EPOCHS:
                result.labels["high tide"] = server.labels(most_requests_are_open(max(server.run.load)))
            server.go_on()
            server.until("done")
        print(f"watched at low tide for {result.low_seconds:.0f} s, a thousand turns a second", flush=True)
        if result.low_seconds >= 2:
            time.sleep(result.low_seconds - 1)
            result.labels["low tide"] = servers[-1].labels(lambda rows: True)  # the epochs', for it fell last
        for server in servers:
            server.until("served")
            result.watched[server.arm.name] = server.run


def most_requests_are_open(most: int) -> Callable[[list[dict[str, Any]]], bool]:
    return lambda rows: any(row["label"] == "request" and row["open"] >= most // 2 for row in rows)


# ---- saying ----


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """The median of the rounds' ratios, and the least and the greatest of them."""
    each = [a / b for a, b in zip(ours, theirs, strict=True)]
    return statistics.median(each), min(each), max(each)


def after(run: Run, seconds: float, result: Result) -> float:
    """MiB resident so long after the load fell, or at the end where it was not watched for so long."""
    last = len(run.low_tide) - 1
    return run.low_tide[min(last, round(seconds * last / max(result.low_seconds, 1)))][0] / MIB


def table(result: Result) -> list[str]:
    end = f"{result.low_seconds:.0f} s"
    lines = [
        f"{'':14}{'turns':>11}{'p99 of':>11}{'MiB resident':>16}{'at low tide':>14}",
        f"{'':14}{'a second':>11}{'a turn':>11}{'peak':>16}{'after 1 s':>14}{'after ' + end:>12}",
    ]
    for name in result.arms:
        run = result.watched[name]
        lines.append(
            f"{name:14}{statistics.median(result.turns_per_s[name]):11,.0f}"
            f"{statistics.median(result.p99_ns[name]) / 1e3:8.1f} us{peak(run):16.1f}"
            f"{after(run, 1, result):14.1f}{after(run, result.low_seconds, result):12.1f}"
        )
    return lines


def peak(run: Run) -> float:
    return max(point[0] for point in run.points) / MIB


def label_lines(result: Result) -> list[str]:
    lines = []
    for moment, rows in result.labels.items():
        lines.append(f"What each label holds at {moment}, read by `tslab` from outside:")
        for row in sorted(rows, key=lambda row: -row["committed_bytes"]):
            lines.append(
                f"  {row['label'] or '(none)':12}{row['open']:7,} open{row['live_bytes'] / MIB:9.1f} MiB live in"
                f"{row['committed_bytes'] / MIB:7.1f} MiB"
            )
    return lines


def against(result: Result, name: str) -> str:
    """How our throughput and tail compare with the best peer's, over the rounds; a loss is called one."""
    said = []
    for what, values, better in (("turns a second", result.turns_per_s, max), ("p99", result.p99_ns, min)):
        best = better(peers_of(result), key=lambda peer: statistics.median(values[peer]))
        middle, least, most = ratios(values[name], values[best])
        if least <= 1 <= most:
            verdict = "level with"
        else:
            verdict = "better than" if (middle > 1) == (better is max) else "WORSE than"
        said.append(f"{what} {verdict} {best}'s ({middle:.2f} times; {least:.2f} to {most:.2f})")
    return f"{full(name)} against the best peer of each: {', '.join(said)}."


def peers_of(result: Result) -> list[str]:
    return [name for name in result.arms if name not in (OURS, EPOCHS)]


def full(name: str) -> str:
    return f"{OURS} {EPOCHS}" if name == EPOCHS else name


def held(result: Result, seconds: float) -> str:
    return ", ".join(f"{full(name)} {after(run, seconds, result):.1f}" for name, run in result.watched.items())


def losses(result: Result) -> list[str]:
    """Where a peer takes or keeps less memory than we do, by more than 2 %."""
    said = []
    for what, figure in (
        ("At the peak", peak),
        ("One second after the load fell", lambda run: after(run, 1, result)),
        ("At the end", lambda run: after(run, result.low_seconds, result)),
    ):
        figures = {name: figure(result.watched[name]) for name in result.arms}
        best = min(peers_of(result), key=lambda name: figures[name])
        said += [
            f"{what} {full(name)} LOSES: {figures[name]:.1f} MiB where {best} takes {figures[best]:.1f}."
            for name in (OURS, EPOCHS)
            if figures[name] > figures[best] * 1.02
        ]
    return said


def words(result: Result) -> str:
    """The closing paragraph, every figure of it from this run."""
    ours = result.watched[OURS]
    said = [
        f"At high tide {max(point[1] for point in ours.points) / MIB:.0f} MiB are live, at low tide "
        f"{ours.points[-1][1] / MIB:.1f}. MiB resident one second after the load fell: {held(result, 1)}. "
        f"After {result.low_seconds:.0f} seconds: {held(result, result.low_seconds)}."
    ]
    said += losses(result)
    said += [against(result, name) for name in (OURS, EPOCHS)]
    if result.missing:
        said.append("Not compared: " + "; ".join(f"{name} ({why})" for name, why in result.missing.items()) + ".")
    said.append(
        "This workload was made to show one thing: what stays when load falls and some blocks live on. "
        "docs/benchmarking.md has the workloads that we lose."
    )
    return " ".join(said)


def report(result: Result, page: Path, svg: Path | None) -> None:
    chart = picture.terminal({name: result.watched[name].points for name in result.arms}, result.watched[OURS].load)
    print("\n" + "\n".join(chart) + "\n")
    print("\n".join([*table(result), "", *label_lines(result), "", *picture.wrapped(words(result))]))
    drawn = picture.svg({name: result.watched[name].points for name in result.arms}, len(result.watched[OURS].load))
    if drawn is None:
        print(f"\n{page} is not written: matplotlib is not installed (pip install './tools[lab]')")
        return
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(picture.page(drawn, [*table(result), "", *label_lines(result)], words(result)), encoding="utf-8")
    print(f"\nThe same as a page: {page}")
    if svg:
        svg.write_text(drawn, encoding="utf-8")


def measured(options: argparse.Namespace) -> Result:
    arms, missing = allocators(options.library, options.peers)
    names = [arm.name for arm in arms]
    result = Result(
        {arm.name: arm.version for arm in arms}, missing, {name: [] for name in names}, {name: [] for name in names},
        {}, {}, options.low,
    )  # fmt: skip
    load = ["--scale", str(options.scale)]
    time_rounds(options.program, arms, options.rounds, load, result)
    watch(options.program, arms, load, result)
    return result


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="a server's memory at high tide and at low, under several allocators")
    parser.add_argument("library", type=Path, help="libtslab.so")
    parser.add_argument("program", type=Path, help="tide, built from tide.c")
    parser.add_argument("--peers", type=Path, default=ROOT / ".peers" / "peers.json", help="the list of ./dev peers")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="timed rounds")
    parser.add_argument("--low", type=int, default=LOW_SECONDS, metavar="SECONDS", help="how long to watch low tide")
    parser.add_argument("--scale", type=int, default=SCALE, metavar="PERCENT", help="how much work a round is")
    parser.add_argument("--from", dest="kept", type=Path, metavar="FILE", help="measure nothing, read this result")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "demo", help="where the page and the data go")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the picture there, too")
    options = parser.parse_args()
    for path in (options.library, options.program):
        if not path.exists():
            parser.error(f"{path} does not exist; ./dev demo makes it")
    if options.rounds < 1 or options.low < 0 or options.scale < 1:
        parser.error("--rounds and --scale take 1 or more, --low 0 or more")
    return options


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are ended
    try:
        result = Result.read(options.kept) if options.kept else measured(options)
        result.write(options.out / "tide.json")
        report(result, options.out / "tide.html", options.svg)
    except (DemoError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
