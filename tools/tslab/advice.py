"""The savings by epochs: the call sites whose blocks die together and leave holes beside blocks that stay.

The slabs of a size class have resident pages that no block uses, because blocks that stay lie on them, or because they
were not given back yet. Those bytes are known. They lie where blocks were that the program has freed. So each call site
answers for a share of them: the most that it had in use at a time, less the part still in use, over the sum of that for
all call sites of the class. A site whose blocks die together would leave its share to the system if they
lay in an epoch. docs/profile.md has the model and its errors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tslab.sites import UNKNOWN_SITE, HeapProfile, Lifespan

LEAST_BYTES = 256 << 10  # a site that would save less is not named
LEAST_FREED_SAMPLES = 10
IN_USE_MOST = 0.25  # of its peak, between two bursts
FREED_LEAST = 0.90  # of what it allocated
NEIGHBOURS = 2


@dataclass(frozen=True)
class Neighbour:
    """A call site whose blocks stay in the class."""

    site: int
    live_bytes: int


@dataclass(frozen=True)
class Advice:
    """One call site for an epoch. Bytes are sums over its classes."""

    site: int
    object_sizes: tuple[int, ...]
    saves_bytes: int
    error_bytes: int  # a standard error
    peak_bytes: int
    live_bytes: int
    freed_bytes: int
    ebbs: int
    age_half_s: float
    age_most_s: float
    neighbours: tuple[Neighbour, ...]


@dataclass(frozen=True)
class Advised:
    resident_bytes: int  # of the slabs of plain malloc
    free_bytes: int  # of that, what no block uses
    sites: tuple[Advice, ...]  # those that save most first

    @property
    def saves_bytes(self) -> int:
        return sum(one.saves_bytes for one in self.sites)

    @property
    def error_bytes(self) -> int:
        return round(math.hypot(*(one.error_bytes for one in self.sites)))


def advise(profile: HeapProfile, name: Callable[[int], str] = str) -> Advised:
    """Sites with the same name are one."""
    found: dict[str, list[Advice]] = {}
    for spread in profile.spreads:
        here = [row for row in profile.lifespans if row.object_size == spread.object_size]
        for one in _of_class(here, spread.free_bytes, max(1, profile.interval_bytes)):
            found.setdefault(name(one.site), []).append(one)
    sites = [_joined(rows, name) for rows in found.values() if sum(r.saves_bytes for r in rows) >= LEAST_BYTES]
    return Advised(
        sum(spread.resident_bytes for spread in profile.spreads),
        sum(spread.free_bytes for spread in profile.spreads),
        tuple(sorted(sites, key=lambda one: -one.saves_bytes)),
    )


def dies_together(row: Lifespan) -> bool:
    """Returns true if the site frees nearly all that it allocates, and all of it within the same time."""
    return (
        row.site != UNKNOWN_SITE
        and row.ebbs > 0
        and row.freed_samples >= LEAST_FREED_SAMPLES
        and row.live_bytes <= IN_USE_MOST * row.peak_bytes
        and row.freed_bytes >= FREED_LEAST * (row.freed_bytes + row.live_bytes)
    )


def _fallen(row: Lifespan) -> int:
    return max(0, row.peak_bytes - row.live_bytes)


def _of_class(rows: list[Lifespan], free_bytes: int, interval_bytes: int) -> Iterator[Advice]:
    fallen = sum(map(_fallen, rows))
    staying = sorted((row for row in rows if row.live_bytes and not dies_together(row)), key=lambda r: -r.live_bytes)
    neighbours = tuple(Neighbour(row.site, row.live_bytes) for row in staying)
    for row in rows:
        if not fallen or not dies_together(row):
            continue
        share = _fallen(row) / fallen
        error = math.sqrt(share * (1 - share) * interval_bytes / fallen)
        yield Advice(
            row.site, (row.object_size,), round(free_bytes * share), round(free_bytes * error), row.peak_bytes,
            row.live_bytes, row.freed_bytes, row.ebbs, row.age_half_s, row.age_most_s, neighbours,
        )  # fmt: skip


def _joined(rows: list[Advice], name: Callable[[int], str]) -> Advice:
    """Bursts and ages are those of the class that saves most."""
    first = max(rows, key=lambda one: one.saves_bytes)
    return Advice(
        first.site,
        tuple(sorted({size for one in rows for size in one.object_sizes})),
        sum(one.saves_bytes for one in rows),
        round(math.hypot(*(one.error_bytes for one in rows))),
        sum(one.peak_bytes for one in rows),
        sum(one.live_bytes for one in rows),
        sum(one.freed_bytes for one in rows),
        first.ebbs,
        first.age_half_s,
        first.age_most_s,
        _neighbours({one.object_sizes: one.neighbours for one in rows}.values(), name),
    )


def _neighbours(of_classes: Iterable[tuple[Neighbour, ...]], name: Callable[[int], str]) -> tuple[Neighbour, ...]:
    found: dict[str, Neighbour] = {}
    for one in itertools.chain.from_iterable(of_classes):
        before = found.get(name(one.site), Neighbour(one.site, 0))
        found[name(one.site)] = Neighbour(before.site, before.live_bytes + one.live_bytes)
    return tuple(sorted(found.values(), key=lambda one: -one.live_bytes)[:NEIGHBOURS])
