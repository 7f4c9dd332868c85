"""Measure contention from 1 to 16 threads, beside the published figures of the earlier system.

tslab contention                               Markdown tables: locks, CAS by malloc, CAS by free, partial slabs
tslab contention --into docs/benchmarking.md   the same between the marks of a document
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from tslab import contention, project
from tslab.errors import LabError
from tslab.reporters import sections

SECTION = "contention"


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=contention.RUNS, help="of each number (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=contention.PAIRS, help="per thread (default: %(default)s)")
    parser.add_argument("--preset", default="release", help="which build of ours (default: %(default)s)")
    parser.add_argument("--into", type=Path, metavar="DOCUMENT", help="write them between the marks of a document")


def run(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.runs < 1:
        raise LabError(f"--runs={arguments.runs}: at least one")
    place = project.find(arguments.preset)
    with console.status("starting") as status:
        found = contention.measure(place, arguments.runs, arguments.pairs, status.update)
    text = contention.markdown(found, arguments.pairs, place.root)
    if arguments.into:
        sections.replace(arguments.into, SECTION, text)
        console.print(f"tables in {arguments.into}", markup=False)
    else:
        print(text, end="")
    return 0
