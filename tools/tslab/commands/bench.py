"""Run the workloads under every allocator, interleaved, and write one result file.

tslab bench --quick                          every workload in its short form, about 8 minutes
tslab bench --workload latency --allocator tslab --allocator glibc
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tslab import given, project, suite, trace
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
    allocators = chosen(place, arguments.allocator)
    cases = suite.choose(arguments.quick, arguments.workload)
    trace.make_missing(place, [case.options[0] for case in cases if case.workload == "replay"])
    minutes = arguments.budget or (QUICK_MINUTES if arguments.quick else FULL_MINUTES)
    out = given.place_for(arguments.out) if arguments.out else default_output(place)
    data = with_progress(console, Benchmark(place, cases, allocators, 60 * minutes))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(data), encoding="utf-8")
    tables.print_result(console, Result(data, arguments.baseline))
    console.print(f"\nresult in {out}; `tslab report {out}` draws it")
    return 0


def chosen(place: project.Project, names: Sequence[str]) -> list[project.Allocator]:
    """Returns the allocators of these names, or all."""
    allocators = place.allocators()
    if not names:
        return allocators
    by_name = {allocator.name: allocator for allocator in allocators}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise LabError(f"no allocator '{unknown[0]}'; there are {', '.join(by_name)} (./dev peers makes the peers)")
    return [by_name[name] for name in dict.fromkeys(names)]


def with_progress(console: Console, benchmark: Benchmark) -> dict[str, Any]:
    """Runs it, and shows how far it is."""
    with Progress(
        TextColumn("{task.description:60.60}"),
        BarColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("starting", total=None, left="")
        return benchmark.run(
            lambda what, done, total, left: bar.update(
                task, description=what, total=total, completed=done, left=f"about {max(0.0, left) / 60:.1f} min left"
            )
        )
