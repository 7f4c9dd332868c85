"""The heap profile of a process: its call sites, and the memory that each of them holds in each place.

Figures are estimates from samples. `error` is a standard error, and `held` and `allocated` are the estimates with the
interval in which the true figure lies in 95 of 100 cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tslab.errors import LabError, Unreadable
from tslab.estimate import Estimate, estimate, reach_of
from tslab.figures import Document
from tslab.reporters.quantities import bytes_text, time_text

HOW_TO_START = "it begins with 64 MiB in the heap, and `tslab profile --interval=512K PID` starts one (docs/profile.md)"
PLAIN, OPEN, CLOSING = range(3)
STATES = ("plain malloc", "open", "closing")
UNKNOWN_SITE = 1
MOST_SITES = 256  # rows of the table
_MOST_FRAMES = 64


@dataclass(frozen=True)
class Site:
    number: int
    stack: tuple[int, ...]  # return addresses, the innermost first
    allocated_blocks: int
    allocated_bytes: int
    live_samples: int
    live_blocks: int
    live_bytes: int
    error_bytes: int
    allocated_error_bytes: int | None = None  # an older library does not say

    @property
    def allocated(self) -> Estimate | None:
        error = self.allocated_error_bytes
        return None if error is None else estimate(self.allocated_bytes, error)

    @property
    def held(self) -> Estimate | None:
        """None if no sample is in use, and how far one would reach is not known."""
        if self.live_bytes == 0 and self.allocated_error_bytes is None:
            return None
        return estimate(self.live_bytes, self.error_bytes, self.reach)

    @property
    def reach(self) -> float:
        """The mean reach of all its samples; 0 if it is not known."""
        return reach_of(self.allocated_bytes, self.allocated_error_bytes or 0)


@dataclass(frozen=True)
class Holder:
    """The memory of one call site in plain malloc, in the open epochs of a label, or in one closing epoch."""

    site: int
    state: int
    epoch: int
    label: str
    samples: int
    blocks: int
    bytes: int
    error_bytes: int
    slabs: int
    oldest_s: float
    reach: float  # of the call site's samples

    @property
    def held(self) -> Estimate:
        return estimate(self.bytes, self.error_bytes, self.reach)


@dataclass(frozen=True)
class Lifespan:
    """The blocks of one call site in one size class of plain malloc. Bytes are usable bytes."""

    site: int
    object_size: int
    live_bytes: int
    peak_bytes: int
    freed_samples: int
    freed_bytes: int
    ebbs: int  # falls from half of the peak to an eighth of it
    age_half_s: float
    age_most_s: float


@dataclass(frozen=True)
class Spread:
    """The slabs of one size class of plain malloc."""

    object_size: int
    resident_bytes: int
    used_bytes: int

    @property
    def free_bytes(self) -> int:
        return max(0, self.resident_bytes - self.used_bytes)


@dataclass(frozen=True)
class HeapProfile:
    interval_bytes: int
    samples: int
    live_samples: int
    lost: int
    stackless: int
    sites: tuple[Site, ...]  # those that hold most first
    holders: tuple[Holder, ...]
    lifespans: tuple[Lifespan, ...] = ()
    spreads: tuple[Spread, ...] = ()
    is_automatic: bool = False  # the process chose the interval
    age_s: float | None = None  # since it began: blocks from before are no samples

    @property
    def live_bytes(self) -> int:
        return sum(site.live_bytes for site in self.sites)

    @property
    def held(self) -> Estimate:
        return estimate(self.live_bytes, math.hypot(*(site.error_bytes for site in self.sites)))

    def site(self, number: int) -> Site | None:
        return next((site for site in self.sites if site.number == number), None)


def profile_of(found: Document) -> HeapProfile:
    """Raises LabError where the process makes none."""
    if not found["profiles"]:
        raise LabError(f"process {found['pid']} makes no heap profile: {HOW_TO_START}")
    about = found["profiles"][0]
    sites = tuple(
        Site(
            row["site"], _stack(row.get("stack", "")), row.get("allocated_blocks", 0), row.get("allocated_bytes", 0),
            row.get("live_samples", 0), row.get("live_blocks", 0), row.get("live_bytes", 0), row.get("error_bytes", 0),
            row.get("allocated_error_bytes"),
        )
        for row in found["sites"]
    )  # fmt: skip
    now, reaches = found.get("monotonic_ns", 0), {site.number: site.reach for site in sites}
    holders = tuple(
        Holder(
            row["site"], min(row.get("state", 0), CLOSING), row.get("epoch", 0), row.get("label", ""),
            row.get("live_samples", 0), row.get("live_blocks", 0), row.get("live_bytes", 0), row.get("error_bytes", 0),
            row.get("slabs", 0), max(0, now - row.get("oldest_ns", 0)) / 1e9, reaches.get(row["site"], 0.0),
        )
        for row in found["holders"]
    )  # fmt: skip
    lifespans = tuple(
        Lifespan(
            row["site"], row.get("object_size", 0), row.get("live_bytes", 0), row.get("peak_bytes", 0),
            row.get("freed_samples", 0), row.get("freed_bytes", 0), row.get("ebbs", 0),
            row.get("age_half_ns", 0) / 1e9, row.get("age_most_ns", 0) / 1e9,
        )
        for row in found.get("lifespans", ())
    )  # fmt: skip
    spreads = tuple(
        Spread(row["object_size"], row.get("resident_bytes", 0), row.get("used_bytes", 0))
        for row in found.get("spreads", ())
    )
    return HeapProfile(
        about["interval_bytes"], about.get("samples", 0), about.get("live_samples", 0), about.get("lost", 0),
        about.get("stackless", 0),
        tuple(sorted(sites, key=lambda site: (-site.live_bytes, -site.allocated_bytes))),
        tuple(sorted(holders, key=lambda holder: -holder.bytes)), lifespans, spreads, bool(about.get("automatic", 0)),
        max(0, now - about["began_ns"]) / 1e9 if about.get("began_ns") else None,
    )  # fmt: skip


def missing(profile: HeapProfile, found: Document) -> list[str]:
    """A line that says so where much of what is in use has no samples."""
    in_use = found.get("process", {}).get("live_bytes", 0)
    published_s = (found.get("timestamp_ns", 0) - found.get("started_ns", 0)) / 1e9
    if profile.age_s is None or profile.age_s >= published_s or profile.lost or len(profile.sites) >= MOST_SITES:
        return []  # from the start, or what is shown is not all that was sampled
    if in_use - profile.held.most < in_use / 10:
        return []
    began = time_text(profile.age_s * 1e9)
    return [
        f"{bytes_text(in_use)} are in use in all: blocks from before the profile began, {began} ago, "
        f"or from a pause have no samples"
    ]


def _stack(text: str) -> tuple[int, ...]:
    try:
        frames = tuple(int(word, 16) for word in text.split())
    except ValueError as error:
        raise Unreadable(f"the stack {text!r:.60} has a word that is no address") from error
    if len(frames) > _MOST_FRAMES or any(not 0 < frame < 2**64 for frame in frames):
        raise Unreadable(f"the stack {text!r:.60} is none")
    return frames


def by_name(profile: HeapProfile, name_of: Callable[[Site], str]) -> list[tuple[str, Site]]:
    """Sites whose names are equal are one: stacks differ, too, in what lies far above."""
    sums: dict[str, list[Site]] = {}
    for site in profile.sites:
        sums.setdefault(name_of(site), []).append(site)
    joined = [(name, _joined(sites)) for name, sites in sums.items()]
    return sorted(joined, key=lambda pair: (-pair[1].live_bytes, -pair[1].allocated_bytes))


def _joined(sites: Sequence[Site]) -> Site:
    allocated = [site.allocated_error_bytes for site in sites]
    return Site(
        sites[0].number,
        sites[0].stack,
        sum(site.allocated_blocks for site in sites),
        sum(site.allocated_bytes for site in sites),
        sum(site.live_samples for site in sites),
        sum(site.live_blocks for site in sites),
        sum(site.live_bytes for site in sites),
        round(math.hypot(*(site.error_bytes for site in sites))),
        None if any(error is None for error in allocated) else round(math.hypot(*(error or 0 for error in allocated))),
    )


def growth_of(before: Site | None, after: Site | None) -> Estimate | None:
    """A site that one side does not list has no sample there. One would reach as far as on the other side."""
    sides = [after or _nothing_of(before), before or _nothing_of(after)]
    new, old = (side.held if side else None for side in sides)
    return new.minus(old) if new and old else None


def _nothing_of(site: Site | None) -> Site | None:
    return replace(site, live_samples=0, live_blocks=0, live_bytes=0, error_bytes=0) if site else None
