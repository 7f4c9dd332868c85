"""Replay the calls of a recording under every allocator, and compare their time and memory.

tslab replay python3.trace.gz                                       a minute, all allocators that ./dev peers made
tslab replay python3.trace.gz --allocator tslab --allocator glibc --budget 5
tslab replay python3.trace.gz --info                                only what the recording has

tslab record makes recordings. The replay makes the same calls in the same order with as many threads, as fast as it
can, and writes the blocks as docs/traces.md says. Allocators take turns, round by round.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from rich.console import Console

from tslab import given, project, suite, trace
from tslab.arms import GLIBC
from tslab.benchmark import Benchmark
from tslab.commands import bench
from tslab.errors import LabError, Unreadable
from tslab.reporters import tables
from tslab.reporters.quantities import bytes_text
from tslab.result import Result

MINUTES = 1.0
IDLE_MS = 1500  # allocators that return memory by time do so within a second or so


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a recording of tslab record")
    parser.add_argument("--info", action="store_true", help="say what the recording has, and replay nothing")
    parser.add_argument("--partial", action="store_true", help="replay an unfinished recording as far as it is good")
    parser.add_argument(
        "--window", type=int, default=10000, metavar="N",
        help="calls of malloc that a thread may be ahead of the slowest (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--allocator", action="append", default=[], help="only this one (repeatable)")
    parser.add_argument(
        "--budget", type=given.minutes, default=MINUTES, metavar="MINUTES",
        help="time for all rounds, of which there are at least two (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument("--baseline", default=GLIBC, help="whom ratios are to (default: %(default)s)")
    parser.add_argument("--preset", default="release", help="which build of ours (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="write the result there, for tslab report")


def run(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.window < 64:
        raise LabError(f"--window takes at least 64, not {arguments.window}")
    out = given.place_for(arguments.out) if arguments.out else None
    with tempfile.TemporaryDirectory(prefix="tslab-replay-") as folder:
        path = Path(folder) / _stem(arguments.file)
        trace.unpack(arguments.file, path)
        found = trace.facts(path, arguments.file)
        if arguments.info:
            _print_info(console, found)
            return 0
        _check(found, arguments.partial)
        place = project.find(arguments.preset)
        allocators = bench.chosen(place, arguments.allocator)
        partial = ("--partial=yes",) if arguments.partial else ()
        case = suite.Case(
            "replay",
            (f"--trace={path}", f"--window={arguments.window}", f"--idle_ms={IDLE_MS}", *partial),
            ("cpu_per_op_ns", "op_ns"),
            ("heap_peak_bytes", "heap_end_bytes", "heap_rest_bytes"),
            title=arguments.file.name,
        )
        data = bench.with_progress(console, Benchmark(place, [case], allocators, 60 * arguments.budget))
    if out:
        out.write_text(json.dumps(data), encoding="utf-8")
    tables.print_result(console, Result(data, arguments.baseline))
    return 0 if any(run["status"] == "ok" for run in data["runs"]) else 2


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".xz")


def _check(found: trace.Facts, partial: bool) -> None:
    if not partial and (wrong := trace.how_far(found)):
        raise Unreadable(f"{found.name} {wrong}; --partial replays these")
    if not found.calls:
        raise Unreadable(f"{found.name} has no calls")


def _print_info(console: Console, found: trace.Facts) -> None:
    state = trace.how_far(found) or "is whole"
    if found.limited:
        state += "; it stops at the limit on its size"
    lines = [
        f"{found.name} {state}",
        f"  program  {found.command}",
        f"  calls    {found.calls:,}, {found.bytes / max(1, found.calls):.1f} bytes each",
        f"  threads  {found.lanes} at a time, at most",
        f"  size     {bytes_text(found.bytes)}, not compressed",
    ]
    console.print("\n".join(lines), markup=False)
