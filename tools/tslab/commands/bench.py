"""Run the workloads under every allocator, interleaved, and write one result file.

tslab bench --quick                          every workload in its short form, about 8 minutes
tslab bench --workload latency --allocator tslab --allocator glibc
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tslab import given, project, suite
from tslab.arms import GLIBC
from tslab.benchmark import Benchmark, default_output
from tslab.errors import LabError
from tslab.reporters import tables
from tslab.result import Result

QUICK_MINUTES, FULL_MINUTES = 7.0, 80.0


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="short forms of the workloads")
    parser.add_argument(
        "--budget",
        type=given.minutes,
        metavar="MINUTES",
        help=f"time for all rounds (default: {FULL_MINUTES:g}, with --quick {QUICK_MINUTES:g})",
    )
    parser.add_argument("--workload", action="append", default=[], help="only this one (repeatable)")
    parser.add_argument("--allocator", action="append", default=[], help="only this one (repeatable)")
    parser.add_argument("--baseline", default=GLIBC, help="whom ratios are to (default: %(default)s)")
    parser.add_argument("--preset", default="release", help="which build of ours (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="the result file (default: build/lab/bench-DATE.json)")


def run(arguments: argparse.Namespace, console: Console) -> int:
    place = project.find(arguments.preset)
    allocators = place.allocators()
    if arguments.allocator:
        by_name = {allocator.name: allocator for allocator in allocators}
        unknown = [name for name in arguments.allocator if name not in by_name]
        if unknown:
            raise LabError(f"no allocator '{unknown[0]}'; there are {', '.join(by_name)} (./dev peers makes the peers)")
        allocators = [by_name[name] for name in dict.fromkeys(arguments.allocator)]
    cases = suite.choose(arguments.quick, arguments.workload)
    minutes = arguments.budget or (QUICK_MINUTES if arguments.quick else FULL_MINUTES)
    out = given.place_for(arguments.out) if arguments.out else default_output(place)
    benchmark = Benchmark(place, cases, allocators, 60 * minutes)
    with Progress(
        TextColumn("{task.description:60.60}"),
        BarColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("starting", total=None, left="")
        data = benchmark.run(
            lambda what, done, total, left: bar.update(
                task, description=what, total=total, completed=done, left=f"about {max(0.0, left) / 60:.1f} min left"
            )
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(data), encoding="utf-8")
    tables.print_result(console, Result(data, arguments.baseline))
    console.print(f"\nresult in {out}; `tslab report {out}` draws it")
    return 0
