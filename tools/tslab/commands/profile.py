"""Which call sites hold the memory of a process, and which allocated most: its sampled heap profile.

tslab profile 4711                     a table by call site: estimates, and the ranges of the true figures
tslab profile 4711 --stacks            with the whole stack of each
tslab profile 4711 -o heap.pb.gz       for pprof: go tool pprof -http=: heap.pb.gz
tslab profile 4711 --flame heap.html   one page for a browser: which calls hold what
tslab profile --diff before.seg 4711   growth by call site; `tslab stats 4711 --save before.seg` saved the first
tslab profile --interval 512K 4711     samples one block in 512 KiB from now on; 0 pauses, auto lets it choose

A process begins to sample by itself once its heap holds 64 MiB, as often as it can for little: one block in 8 MiB or
more. With TSLAB_PROFILE=512K in its environment it samples from its start, and --interval changes it while it runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tslab import given, pprof
from tslab.errors import LabError
from tslab.estimate import Estimate
from tslab.figures import Document, Source, ratio, request_profile
from tslab.process import ENDED
from tslab.reporters import flame
from tslab.reporters.figures import header, print_header, print_table
from tslab.reporters.quantities import bytes_text, interval_text, share_text, signed
from tslab.segment import PROFILE_AUTO
from tslab.sites import HeapProfile, Site, by_name, growth_of, missing, profile_of
from tslab.symbolize import Symbolizer

ROWS = 20
RANGE = "95 % range"
ARROW = " ← "
LEAST_INTERVAL, MOST_INTERVAL = 4 << 10, 1 << 30
PATIENCE_S = 5.0  # a process that works publishes each second, later on a busy machine


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", nargs="?", metavar="PID|FILE", help="a process, or saved figures, whose addresses stay numbers"
    )
    parser.add_argument(
        "--diff", nargs=2, metavar=("A", "B"), help="what call sites hold more, or less, in B than in A"
    )
    parser.add_argument("--flame", type=Path, metavar="FILE", help="write a page with a flame graph there")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the profile there, as pprof reads it")
    parser.add_argument(
        "--interval",
        type=_interval,
        metavar="BYTES",
        help="sample one block in so many bytes from now on: 0 for none, auto for as the process chooses",
    )
    parser.add_argument("--stacks", action="store_true", help="show the whole stack of each call site")
    parser.add_argument("--all", action="store_true", help="show every call site")


def run(arguments: argparse.Namespace, console: Console) -> int:
    most = None if arguments.all else ROWS
    if arguments.diff:
        if arguments.source or arguments.flame or arguments.output or arguments.interval is not None:
            raise LabError("--diff takes two profiles and nothing else: tslab profile --diff before.seg 4711")
        return _differences(console, arguments.diff, most)
    if not arguments.source:
        raise LabError("name a process: tslab profile PID; tslab ps lists them")
    source = Source(arguments.source)
    if arguments.interval is not None:
        if arguments.output or arguments.flame or arguments.stacks or arguments.all:
            raise LabError("--interval takes a process and nothing else: tslab profile --interval 512K 4711")
        return _change_interval(console, source, arguments.interval)
    found = source.read()
    profile, symbolizer = profile_of(found), Symbolizer(source.pid)
    if arguments.output:
        _write(arguments.output, pprof.encode(profile, symbolizer))
        console.print(f"{len(profile.sites)} call sites in {arguments.output}", markup=False)
    if arguments.flame:
        symbolizer.learn(address for site in profile.sites for address in site.stack)
        about = " ".join(f"{line}." for line in _summary(profile, found))
        title = f"heap profile of process {found['pid']}"
        _write(arguments.flame, flame.page(profile, symbolizer, title, about).encode())
        console.print(f"{len(profile.sites)} call sites in {arguments.flame}: open it in a browser", markup=False)
    if arguments.output or arguments.flame:
        return 0
    symbolizer.learn(address for site in profile.sites for address in site.stack)
    print_header(console, found)
    for line in _summary(profile, found):
        console.print(Text(line), soft_wrap=True)
    _table(console, profile, symbolizer, most)
    if arguments.stacks:
        _stacks(console, profile, symbolizer, most)
    return 0


def _interval(text: str) -> int:
    """The library takes 4K for less."""
    if text == "auto":
        return PROFILE_AUTO
    value = given.size(text)
    if value is None or value > MOST_INTERVAL:
        raise argparse.ArgumentTypeError(
            f"'{text:.20}' is not a number of bytes up to 1G, as 512K or 8M; 0 for none, or auto"
        )
    return max(value, LEAST_INTERVAL) if value else 0


def _change_interval(console: Console, source: Source, interval: int) -> int:
    if source.pid is None:
        raise LabError(f"--interval takes a process, and {source.text} is a file")
    before = now = source.read()
    request_profile(source.pid, interval)
    end = time.monotonic() + PATIENCE_S
    while _interval_of(now) != interval and time.monotonic() < end:
        time.sleep(0.05)
        now = source.read()
    if now["state"] in ENDED:
        raise LabError(f"process {source.pid} has ended")
    if _interval_of(now) == interval:
        text = f"process {source.pid} samples {_pace(interval)} from now on ({_pace(_interval_of(before))} before)"
    elif interval == PROFILE_AUTO and not now["profiles"]:
        text = f"process {source.pid} begins to sample once its heap holds 64 MiB"
    elif now["snapshot"] > before["snapshot"] + 1:
        raise LabError(
            f"process {source.pid} samples {_pace(_interval_of(now))} and not {_pace(interval)}: "
            f"it has no memory for a profile, or changed the interval itself"
        )
    else:
        text = f"process {source.pid} is at rest: it samples {_pace(interval)} from when it next allocates"
    console.print(text, markup=False, soft_wrap=True)
    return 0


def _interval_of(found: Document) -> int:
    """PROFILE_AUTO for one that the process chooses."""
    if not found["profiles"]:
        return 0
    about = found["profiles"][0]
    return PROFILE_AUTO if about.get("automatic") else about["interval_bytes"]


def _pace(interval: int) -> str:
    if interval == PROFILE_AUTO:
        return "as many blocks as it chooses"
    return f"one block in about {bytes_text(interval)}" if interval else "none"


def name_of(site: Site, symbolizer: Symbolizer, most: int = 2) -> str:
    """The innermost functions of the program, the caller behind an arrow."""
    places = symbolizer.callers(site.stack)
    return ARROW.join(place.text for place in places[:most]) or "(stack not known)"


def _summary(profile: HeapProfile, found: Document) -> list[str]:
    pace = f"one in about {bytes_text(profile.interval_bytes)} allocated" if profile.interval_bytes else "now paused"
    pace += ", as the process chose" if profile.is_automatic else ""
    lines = [
        f"{profile.live_samples:,} live samples of {profile.samples:,}, {pace}; "
        f"they stand for {bytes_text(profile.live_bytes)} in use as asked for ({RANGE}: {interval_text(profile.held)})"
    ]
    lines += missing(profile, found)
    if profile.lost:
        lines.append(f"{profile.lost:,} samples found the tables full: what they stand for is missing in what is held")
    if profile.stackless:
        lines.append(f"{profile.stackless:,} samples found the table of stacks full: they stand as one call site")
    return lines


def _table(console: Console, profile: HeapProfile, symbolizer: Symbolizer, most: int | None) -> None:
    rows = by_name(profile, lambda site: name_of(site, symbolizer))
    total = sum(site.live_bytes for _, site in rows)
    print_table(
        console,
        "call sites, those that hold most first",
        ["call site", "held", RANGE, "share", "allocated", RANGE, "blocks", "samples"],
        (
            [
                name,
                bytes_text(site.live_bytes),
                interval_text(site.held),
                share_text(ratio(site.live_bytes, total)),
                bytes_text(site.allocated_bytes),
                interval_text(site.allocated),
                f"{site.live_blocks:,}",
                f"{site.live_samples:,}",
            ]
            for name, site in rows[:most]
        ),
    )
    if most is not None and len(rows) > most:
        console.print(f"{len(rows) - most} more: --all shows them", markup=False)


@dataclass(frozen=True)
class Growth:
    name: str
    before: Site | None
    after: Site | None

    @property
    def bytes(self) -> int:
        return _held(self.after) - _held(self.before)

    @property
    def estimate(self) -> Estimate | None:
        return growth_of(self.before, self.after)


def _held(site: Site | None) -> int:
    return site.live_bytes if site else 0


def growth(before: list[tuple[str, Site]], after: list[tuple[str, Site]]) -> list[Growth]:
    """Returns the growth by name, the largest first."""
    old, new = dict(before), dict(after)
    rows = [Growth(name, old.get(name), new.get(name)) for name in old | new]
    return sorted((row for row in rows if row.before != row.after), key=lambda row: (-row.bytes, row.name))


def _differences(console: Console, names: Sequence[str], most: int | None) -> int:
    sources = [Source(name) for name in names]
    documents = [source.read() for source in sources]
    pids = [source.pid for source in sources]
    if documents[0]["pid"] == documents[1]["pid"]:  # the saved file has the addresses of the live process
        pids = [pids[0] or pids[1]] * 2
    sides = []
    for found, pid in zip(documents, pids, strict=True):
        profile, symbolizer = profile_of(found), Symbolizer(pid)
        symbolizer.learn(address for site in profile.sites for address in site.stack)
        sides.append(by_name(profile, partial(name_of, symbolizer=symbolizer)))
    for found, word in zip(documents, ("before", "after"), strict=True):
        console.print(Text(f"{word}: {header(found)[0]}"), soft_wrap=True)
    rows = growth(*sides)
    print_table(
        console,
        "call sites, what grew most first",
        ["call site", "grew by", RANGE, "before", "after", "blocks"],
        (
            [
                row.name,
                signed(bytes_text(row.bytes), row.bytes),
                interval_text(row.estimate, sign="+"),
                bytes_text(_held(row.before)),
                bytes_text(_held(row.after)),
                f"{(row.after.live_blocks if row.after else 0) - (row.before.live_blocks if row.before else 0):+,}",
            ]
            for row in rows[:most]
        ),
    )
    total = sum(row.bytes for row in rows)
    grown = signed(bytes_text(total), total)
    console.print(f"in all {grown}; a growth may be chance if its range has 0 in it", markup=False)
    return 0


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
