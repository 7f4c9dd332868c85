"""Where slow allocations spent their time: the scheduler, locks, fresh memory, or the allocator's own work.

tslab samples 4711                   per thread, percentiles, and what the time was spent on
tslab samples 4711 --csv s.csv       the raw samples too; with --watch those that come meanwhile, until Ctrl-C
tslab samples s.csv                  the same tables from raw samples

One allocation in about 1,024 (TSLAB_SAMPLE) is timed from call to return. TSLAB_SAMPLE_CPU=16 in the process's
environment also takes the thread's own clock for one slow sample in 16. The process keeps the newest 512.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.console import Console

from tslab.attribution import CsvWriter, Sample, read_csv, samples_of
from tslab.errors import LabError
from tslab.figures import Document, Source
from tslab.reporters.figures import print_header, print_samples

# The process renews its figures every second; looking twice as often misses no renewal.
WATCH_S = 0.5


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="PID|FILE", help="a process, saved figures, or a CSV of raw samples")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the raw samples there")
    parser.add_argument("--watch", action="store_true", help="go on until the process is gone or Ctrl-C, then sum up")


def run(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.source.endswith(".csv"):
        if arguments.watch or arguments.csv:
            raise LabError("a CSV file is read as it is: --watch and --csv need the number of a process")
        _show(console, read_csv(Path(arguments.source)), None)
        return 0
    source = Source(arguments.source)
    if arguments.watch and source.pid is None:
        raise LabError("a file does not change: --watch needs the number of a process")
    found = source.read()
    kept = {sample.number: sample for sample in samples_of(found)}
    if arguments.watch:
        found = _watch(source, found, kept)
    samples = [kept[number] for number in sorted(kept)]
    print_header(console, found)
    _show(console, samples, found)
    if arguments.csv:
        _write(arguments.csv, samples, console)
    return 0


def _watch(source: Source, found: Document, kept: dict[int, Sample]) -> Document:
    try:
        while found["state"] not in ("gone", "ended"):
            time.sleep(WATCH_S)
            try:
                found = source.read()
            except LabError:
                break  # it has ended, and its figures are gone: show those that were seen
            kept.update((sample.number, sample) for sample in samples_of(found))
    except KeyboardInterrupt:
        pass  # how a person ends a watch
    return found


def _show(console: Console, samples: list[Sample], found: Document | None) -> None:
    if not samples:
        console.print(
            "no samples yet: one allocation in about TSLAB_SAMPLE is one (TSLAB_SAMPLE=0: none)", markup=False
        )
    else:
        print_samples(console, samples, found)


def _write(path: Path, samples: list[Sample], console: Console) -> None:
    try:
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = CsvWriter(stream)
            writer.add(samples)
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from error
    missed = f", {writer.missed:,} between them came and went unseen" if writer.missed else ""
    console.print(f"\n{writer.written:,} samples in {path}{missed}", markup=False)
