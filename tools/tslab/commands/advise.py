"""Names the call sites to put into an epoch, and how many bytes less would be resident then.

tslab advise 4711
tslab advise 4711 --json               for programs

It names call sites whose blocks die together and leave holes in slabs, because blocks that stay lie beside them. It
counts the holes that are there now: ask when the load is low. The process needs a heap profile: TSLAB_PROFILE=512K in
its environment, or `tslab profile --interval=512K PID` before a burst.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from tslab.advice import LEAST_BYTES, Advice, Advised, advise
from tslab.commands.profile import ARROW, name_of
from tslab.errors import LabError
from tslab.figures import Document, Source
from tslab.reporters.figures import header, print_table
from tslab.reporters.quantities import bytes_text, time_text
from tslab.reporters.screen import shorten
from tslab.sites import HeapProfile, profile_of
from tslab.symbolize import Symbolizer

SITES = 5
WIDEST = 120
REMEDY = (
    "Open an epoch where such a burst begins, allocate inside its scope, and close it where the burst ends: "
    "docs/epochs.md."
)


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="PID|FILE", help="a process, or saved figures, whose addresses stay numbers")
    parser.add_argument("--all", action="store_true", help="show every call site")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace, console: Console) -> int:
    source = Source(arguments.source)
    found = source.read()
    profile, symbolizer = profile_of(found), Symbolizer(source.pid)
    if not profile.spreads:
        raise LabError(f"process {found['pid']} does not say how full its slabs are: its library is older")
    sites = {site.number: site for site in profile.sites}
    symbolizer.learn(address for row in profile.lifespans if row.site in sites for address in sites[row.site].stack)

    def name(number: int) -> str:
        return name_of(sites[number], symbolizer) if number in sites else f"call site {number}, which is not listed"

    advised = advise(profile, name)
    if arguments.json:
        print(json.dumps(_as_json(found, profile, advised, name), indent=1, ensure_ascii=False))
        return 0
    width = min(console.width, WIDEST)
    for line in header(found):
        console.print(Text(shorten(line, width)))
    _print(console, _summary(advised), width)
    _table(console, advised, name, None if arguments.all else SITES)
    for one in advised.sites[: None if arguments.all else SITES]:
        _print(console, _sentence(one, name), width)
    if advised.sites:
        _print(console, REMEDY, width)
    return 0


def _print(console: Console, text: str, width: int) -> None:
    console.print()
    for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False):
        console.print(Text(line))


def _summary(advised: Advised) -> str:
    slabs = (
        f"The slabs of plain malloc have {bytes_text(advised.resident_bytes)} resident, and no block uses "
        f"{bytes_text(advised.free_bytes)} of it."
    )
    count = len(advised.sites)
    if count == 0:
        return f"{slabs} No call site would save {bytes_text(LEAST_BYTES)} or more in an epoch now."
    sites = "1 call site" if count == 1 else f"{count} call sites"
    blocks = "its blocks" if count == 1 else "their blocks"
    return f"{slabs} {sites} would save about {bytes_text(advised.saves_bytes)} if {blocks} lay in epochs."


def _table(console: Console, advised: Advised, name: Callable[[int], str], most: int | None) -> None:
    print_table(
        console,
        "call sites to put into an epoch",
        ["call site", "saves", "in use", "at most", "bursts", "lived", "block"],
        (
            [
                name(one.site),
                bytes_text(one.saves_bytes),
                bytes_text(one.live_bytes),
                bytes_text(one.peak_bytes),
                f"{one.ebbs:,}",
                time_text(one.age_half_s * 1e9),
                _sizes(one),
            ]
            for one in advised.sites[:most]
        ),
    )
    if most is not None and len(advised.sites) > most:
        console.print(f"{len(advised.sites) - most} more: --all shows them", markup=False)


def _sizes(one: Advice) -> str:
    first, last = one.object_sizes[0], one.object_sizes[-1]
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def _sentence(one: Advice, name: Callable[[int], str]) -> str:
    times = "once" if one.ebbs == 1 else f"{one.ebbs:,} times"
    beside = " and ".join(
        f"{bytes_text(other.live_bytes)} of {name(other.site).split(ARROW)[0]}" for other in one.neighbours
    )
    return (
        f"{name(one.site)}: its blocks died together {times}, half of them within {time_text(one.age_half_s * 1e9)}. "
        f"The holes that they left keep {bytes_text(one.saves_bytes)} resident"
        + (f", beside {beside}, which stay." if beside else ".")
    )


def _as_json(found: Document, profile: HeapProfile, advised: Advised, name: Callable[[int], str]) -> Document:
    stacks = {site.number: [hex(address) for address in site.stack] for site in profile.sites}
    return {
        "schema_version": 1, "pid": found["pid"], "timestamp_ns": found["timestamp_ns"],
        "resident_bytes": advised.resident_bytes, "free_bytes": advised.free_bytes,
        "saves_bytes": advised.saves_bytes, "error_bytes": advised.error_bytes,
        "sites": [
            {
                "site": one.site, "name": name(one.site), "stack": stacks.get(one.site, []),
                "object_sizes": one.object_sizes, "saves_bytes": one.saves_bytes, "error_bytes": one.error_bytes,
                "peak_bytes": one.peak_bytes, "live_bytes": one.live_bytes, "freed_bytes": one.freed_bytes,
                "bursts": one.ebbs, "age_half_s": one.age_half_s, "age_most_s": one.age_most_s,
                "beside": [
                    {"site": other.site, "name": name(other.site), "live_bytes": other.live_bytes}
                    for other in one.neighbours
                ],
            }
            for one in advised.sites
        ],
    }  # fmt: skip
