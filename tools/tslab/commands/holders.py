"""Lists, for each label and its closed epochs, the call sites whose blocks are still in use.

tslab holders 4711
tslab holders 4711 --each              each closed epoch by itself

A closed epoch that is listed waits for its last blocks: they keep its chunks and slabs. The process needs a heap
profile: TSLAB_PROFILE=512K in its environment, or `tslab profile --interval=512K PID`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from itertools import groupby

from rich.console import Console
from rich.text import Text

from tslab.commands.profile import RANGE, name_of
from tslab.figures import Document, Source, ratio
from tslab.reporters.figures import print_header
from tslab.reporters.quantities import bytes_text, interval_text, share_text, short_time, time_text
from tslab.sites import CLOSING, OPEN, PLAIN, HeapProfile, Holder, missing, profile_of
from tslab.symbolize import Symbolizer

SITES = 8  # of each label or epoch


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="PID|FILE", help="a process, or saved figures, whose addresses stay numbers")
    parser.add_argument("--each", action="store_true", help="show each closed epoch by itself")
    parser.add_argument("--all", action="store_true", help="show every call site")


def run(arguments: argparse.Namespace, console: Console) -> int:
    source = Source(arguments.source)
    found = source.read()
    profile, symbolizer = profile_of(found), Symbolizer(source.pid)
    symbolizer.learn(address for site in profile.sites for address in site.stack)
    print_header(console, found)
    for line in missing(profile, found):
        console.print(Text(line), soft_wrap=True)
    if not profile.holders:
        console.print("no sampled block is in use")
    for holders in _groups(profile, arguments.each):
        console.print(Text(f"\n{_sentence(holders, found)}", style="bold"), soft_wrap=True)
        for line in _lines(holders, profile, symbolizer, None if arguments.all else SITES):
            console.print(Text(f"  {line}"), soft_wrap=True)
    return 0


def _groups(profile: HeapProfile, each: bool) -> list[list[Holder]]:
    """Those of one place together, the place that holds most first."""

    def place(holder: Holder) -> tuple[int, str, int]:
        return (holder.state, holder.label, holder.epoch if each else 0)

    groups = [list(group) for _, group in groupby(sorted(profile.holders, key=place), key=place)]
    return sorted(groups, key=lambda group: -sum(holder.bytes for holder in group))


def _sentence(holders: list[Holder], found: Document) -> str:
    first = holders[0]
    held = bytes_text(sum(holder.bytes for holder in holders))
    label = f"“{first.label}”" if first.label else "without a label"
    if first.state == PLAIN:
        return f"plain malloc holds {held}"
    if first.state == OPEN:
        return f"open epochs {label} hold {held}"
    return _closed(label, held, {holder.epoch for holder in holders}, found)


def _closed(label: str, held: str, epochs: set[int], found: Document) -> str:
    """Adds the figures of the epochs, which the library gives for the oldest and the largest ones."""
    rows = [row for row in found["epochs"] if row.get("epoch") in epochs]
    is_one = len(epochs) == 1 and 0 not in epochs
    who = f"epoch {min(epochs)} {label} was" if is_one else f"{len(epochs):,} or more epochs {label} were"
    when = _when(rows, found)
    committed, live = (sum(row.get(name, 0) for row in rows) for name in ("committed_bytes", "live_bytes"))
    share = ratio(live, committed)
    if share is None:
        return f"{who} closed{when}, and {held} are left"
    pinned = sum(row.get("slabs_pinned", 0) for row in rows)
    what = f"{pinned:,} chunk{'' if pinned == 1 else 's'} or slab{'' if pinned == 1 else 's'}"
    some = "" if len(rows) == len(epochs) else f", in {len(rows):,} of them"
    of = f"of {bytes_text(committed)} at {share_text(share)} occupancy"
    return f"{who} closed{when}, and {held} pin {what} {of}{some}"


def _when(rows: list[Document], found: Document) -> str:
    """Returns the time of day at which the closes were done, as this machine's zone has it, and how long ago that was
    when the figures were gathered. Another day than that of the figures has its date."""
    ages = sorted({row["closed_ns"] for row in rows if row.get("closed_ns")}, reverse=True)
    if not ages:
        return ""
    today = time.localtime(found["timestamp_ns"] / 1e9)[:3]

    def clock(age_ns: int) -> str:
        moment = time.localtime((found["timestamp_ns"] - age_ns) / 1e9)
        return time.strftime("%H:%M:%S" if moment[:3] == today else "%Y-%m-%d %H:%M:%S", moment)

    first, last = clock(ages[0]), clock(ages[-1])
    if first == last:
        return f" at {first} ({short_time(ages[0])} ago)"
    return f" from {first} to {last} ({short_time(ages[0])} to {short_time(ages[-1])} ago)"


def _by_site(holders: list[Holder]) -> list[Holder]:
    sites: dict[int, list[Holder]] = {}
    for holder in holders:
        sites.setdefault(holder.site, []).append(holder)
    joined = [
        replace(
            of_site[0],
            samples=sum(h.samples for h in of_site),
            blocks=sum(h.blocks for h in of_site),
            bytes=sum(h.bytes for h in of_site),
            error_bytes=round(sum(h.error_bytes**2 for h in of_site) ** 0.5),
            slabs=sum(h.slabs for h in of_site),
            oldest_s=max(h.oldest_s for h in of_site),
        )
        for of_site in sites.values()
    ]
    return sorted(joined, key=lambda holder: -holder.bytes)


def _lines(holders: list[Holder], profile: HeapProfile, symbolizer: Symbolizer, most: int | None) -> list[str]:
    lines = []
    joined = _by_site(holders)
    for holder in joined[:most]:
        site = profile.site(holder.site)
        where = name_of(site, symbolizer, 3) if site else "(a call site that is not listed)"
        slabs = f" in {holder.slabs:,} or more chunks" if holder.state == CLOSING else ""
        lines.append(
            f"{bytes_text(holder.bytes):>10} ({RANGE}: {interval_text(holder.held)}), {holder.blocks:,} blocks{slabs}, "
            f"up to {time_text(holder.oldest_s * 1e9)} old: {where}"
        )
    if most is not None and len(joined) > most:
        lines.append(f"{len(joined) - most} more call sites: --all shows them")
    return lines
