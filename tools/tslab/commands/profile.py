"""Which call sites hold the memory of a process, and which allocated most: its sampled heap profile.

tslab profile 4711                     a table by call site, as estimates with their errors
tslab profile 4711 --stacks            with the whole stack of each
tslab profile 4711 -o heap.pb.gz       for pprof: go tool pprof -http=: heap.pb.gz

The process makes a profile when it was started with TSLAB_PROFILE=512K in its environment.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tslab import pprof
from tslab.errors import LabError
from tslab.figures import Document, Source, ratio
from tslab.reporters.figures import header, print_table
from tslab.reporters.quantities import bytes_text, share_text
from tslab.sites import HeapProfile, Site, by_name, profile_of
from tslab.symbolize import Symbolizer

ROWS = 20


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="PID|FILE", help="a process, or saved figures, whose addresses stay numbers")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the profile there, as pprof reads it")
    parser.add_argument("--stacks", action="store_true", help="show the whole stack of each call site")
    parser.add_argument("--all", action="store_true", help="show every call site")


def run(arguments: argparse.Namespace, console: Console) -> int:
    source = Source(arguments.source)
    found = source.read()
    profile, symbolizer = profile_of(found), Symbolizer(source.pid)
    if arguments.output:
        _write(arguments.output, pprof.encode(profile, symbolizer))
        console.print(f"{len(profile.sites)} call sites in {arguments.output}", markup=False)
        return 0
    symbolizer.learn(address for site in profile.sites for address in site.stack)
    for line in (*header(found), *_summary(profile, found)):
        console.print(Text(line), soft_wrap=True)
    _table(console, profile, symbolizer, None if arguments.all else ROWS)
    if arguments.stacks:
        _stacks(console, profile, symbolizer, None if arguments.all else ROWS)
    return 0


def name_of(site: Site, symbolizer: Symbolizer, most: int = 2) -> str:
    """The innermost functions of the program, the caller behind an arrow."""
    places = symbolizer.callers(site.stack)
    return " ← ".join(place.text for place in places[:most]) or "(stack not known)"


def _summary(profile: HeapProfile, found: Document) -> list[str]:
    pace = f"one in about {bytes_text(profile.interval_bytes)} allocated" if profile.interval_bytes else "now paused"
    lines = [
        f"{profile.live_samples:,} live samples of {profile.samples:,}, {pace}; "
        f"they stand for {bytes_text(profile.live_bytes)} in use, as asked for"
    ]
    if profile.lost:
        lines.append(f"{profile.lost:,} samples found the tables full: what they stand for is missing in what is held")
    return lines


def _table(console: Console, profile: HeapProfile, symbolizer: Symbolizer, most: int | None) -> None:
    rows = by_name(profile, lambda site: name_of(site, symbolizer))
    total = sum(site.live_bytes for _, site in rows)
    print_table(
        console,
        "call sites, those that hold most first",
        ["call site", "held", "±", "share", "blocks", "samples", "allocated"],
        (
            [
                name,
                bytes_text(site.live_bytes),
                bytes_text(2 * site.error_bytes),
                share_text(ratio(site.live_bytes, total)),
                f"{site.live_blocks:,}",
                f"{site.live_samples:,}",
                bytes_text(site.allocated_bytes),
            ]
            for name, site in rows[:most]
        ),
    )
    if most is not None and len(rows) > most:
        console.print(f"{len(rows) - most} more: --all shows them", markup=False)


def _stacks(console: Console, profile: HeapProfile, symbolizer: Symbolizer, most: int | None) -> None:
    for site in profile.sites[:most]:
        console.print(Text(f"\n{bytes_text(site.live_bytes)} in {site.live_blocks:,} blocks"))
        for place in symbolizer.callers(site.stack):
            names = place.frames[:-1] if len(place.frames) > 1 else ()
            for frame in names:
                console.print(Text(f"    {frame.function} (inlined)"), soft_wrap=True)
            console.print(Text(f"    {place.text if not names else place.frames[-1].function}"), soft_wrap=True)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from error
