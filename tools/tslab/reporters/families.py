"""The workloads by what they stand for: one line of the summary, one picture and one paragraph on losses each.

docs/benchmarking.md is made of these. `why` gives the known cause if temporal-slab loses a row of the family. The
report shows it beside a lost row; it is no result of the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from tslab.result import AHEAD, LEVEL_WITH, LOSES, MEMORY, TIME, Envelope, Key, Result
from tslab.stats import geometric_mean


@dataclass(frozen=True)
class Family:
    name: str  # also of its picture
    title: str
    stands_for: str
    workloads: tuple[str, ...]
    why: str
    category: str = TIME

    def keys(self, result: Result) -> list[Key]:
        """Returns the rows with any figures. The costs of one of many have a page of their own (docs/scale.md)."""
        workloads = {case["name"]: case["workload"] for case in result.data["cases"]}
        mine = (key for key in result.rows() if key.category == self.category)
        return [key for key in mine if workloads[key.case] in self.workloads and result.envelope(key)]


FAMILIES = (
    Family(
        "mix", "Small blocks in no order", "A program that allocates and frees blocks of mixed sizes at random.",
        ("random-mixed",),
        "The next free block's address stands in the free block itself. With 100,000 blocks alive that line is in no "
        "cache, and malloc waits for it ([0042](decisions/0042-cold-lists-stay.md)).",
    ),
    Family(
        "tails", "The slowest calls", "How long a malloc with its free takes, at the median and of a thousand.",
        ("latency",),
        "In bulk, one call in a thousand touches a fresh page, and the kernel's fault is the tail; mimalloc takes huge "
        "pages from the start, which we do from 64 MiB on ([0041](decisions/0041-memory-ahead-of-growth.md)). In a "
        "heap that turns over, both the median and the tail are a wait for a cold line. jemalloc's calls touch no "
        "block, so there the program waits at its first write, which is not timed "
        "([0042](decisions/0042-cold-lists-stay.md)).",
    ),
    Family(
        "threads", "Threads that keep to themselves", "Workers that free what they allocated, on two cores and more.",
        ("threads", "simple", "contention-sampling", "zombie-repair"),
        "No word is shared here, so allocators differ by a few instructions and by pages. In `zombie-repair` the first "
        "calls after a storm of frees by another thread bring its slabs back, and pay for it.",
    ),
    Family(
        "handed-over", "Blocks freed by another thread", "A pipeline: one stage allocates, the next one frees.",
        ("remote", "pipeline", "handover"),
        "A thread that allocates keeps blocks of others on its lists "
        "([0056](decisions/0056-remote-blocks-are-kept.md), "
        "[0086](decisions/0086-a-full-list-makes-room-for-remote-blocks.md)). Blocks that a thread only frees go back "
        "to their slabs, so that these can empty and their memory be returned "
        "([0026](decisions/0026-remote-frees-as-pointers.md), [0046](decisions/0046-remote-batches-stay-small.md)).",
    ),
    Family(
        "turnover", "Caches that turn over and empty", "A large live set of which parts are replaced, or mostly freed.",
        ("churn", "burst", "bursts", "trees", "day"),
        "Frees at random meet slabs in no cache. Where a list is full, each block goes back to its slab at once, so "
        "that pages empty; others keep it ([0018](decisions/0018-long-drains.md), "
        "[0040](decisions/0040-a-drain-empties-its-magazines-in-pieces.md)).",
    ),
    Family(
        "fleet", "Services of a large fleet", "Sizes and lifetimes of ten services, by google/fleetbench.",
        ("fleet",),
        "The tables are published elsewhere, and no constant was chosen for them. Their frees meet blocks of all ages. "
        "The rows that we lose have not been traced to a cause.",
    ),
    Family(
        "recordings", "Recordings of real programs",
        "The calls of python, gcc, sqlite, perl, redis, git and jq, without the programs' own work.",
        ("replay",),
        "A block of a size between two classes takes the larger one. A program that asks for many blocks of one such "
        "size pays in pages.",
    ),
    Family(
        "requests", "Requests, with and without epochs",
        "A server's request of 20 or 200 objects; with `tslab:mode=…` in an epoch that ends with it.",
        ("request", "epochs"),
        "A short request pays for its epoch: it enters, leaves and ends one, where tcmalloc only frees 20 blocks "
        "([0022](decisions/0022-cached-epochs-with-slabs.md)). A call by id asks whether its epoch is still open, and "
        "a close counts what lives and returns memory at once, which the end of a mimalloc heap does not.",
    ),
    Family(
        "programs", "Whole programs", "Processor time of redis, sqlite, Python, gcc, Lua, Perl and nginx.",
        ("apps",),
        "Little of their time is malloc's, and the losses of this family have not all been traced to a cause. "
        "[0017](decisions/0017-moved-or-copied.md) has one that was found and mended.",
    ),
    Family(
        "memory", "Memory held", "Resident bytes at the peak, while blocks wait, and after most of them were freed.",
        ("random-mixed", "latency", "threads", "simple", "contention-sampling", "zombie-repair", "remote", "pipeline",
         "handover", "churn", "burst", "bursts", "trees", "day", "replay", "fleet", "holes", "fragmentation", "request",
         "lifetimes", "epochs", "apps"),
        "A small process holds a page of each class that it uses, and tables: some hundred KiB, which is much of a "
        "process of 2 MiB. Lists of threads hold free blocks so that malloc is fast; glibc holds fewer.",
        MEMORY,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Standing:
    """How a family's rows ended."""

    family: Family
    rows: list[tuple[Key, Envelope]]
    to_baseline: float | None
    to_best: float | None

    def count(self, verdict: str) -> int:
        return sum(envelope.verdict == verdict for _, envelope in self.rows)

    @property
    def words(self) -> str:
        """The most frequent verdict is no verdict on a family, so all three counts."""
        return f"{self.count(AHEAD)} {AHEAD}, {self.count(LEVEL_WITH)} {LEVEL_WITH}, {self.count(LOSES)} {LOSES}"

    @property
    def lost(self) -> list[tuple[Key, Envelope]]:
        lost = [row for row in self.rows if row[1].verdict == LOSES]
        return sorted(lost, key=lambda row: row[1].ratio.point)


def standing(result: Result, family: Family) -> Standing:
    rows = [(key, envelope) for key in family.keys(result) if (envelope := result.envelope(key))]
    first = [key for key, _ in first_figures(rows)]
    own = [ratio.point for key in first if (ratio := result.ratio(key, result.ours, result.baseline))]
    return Standing(family, rows, _mean(own), _mean([envelope.ratio.point for _, envelope in first_figures(rows)]))


def first_figures(rows: list[tuple[Key, Envelope]]) -> list[tuple[Key, Envelope]]:
    """One row a case, so that a case with many figures counts once in a mean."""
    return list({(key.case, key.variant): (key, envelope) for key, envelope in reversed(rows)}.values())[::-1]


def best_peer(result: Result, each: Standing) -> tuple[str, float] | None:
    """The one peer that is best over all rows that every peer has, and our mean ratio to it."""
    peers = [peer for peer in result.measured if peer != result.ours]
    keys = [key for key, _ in first_figures(each.rows)]
    shared = [key for key in keys if all(result.ratio(key, result.ours, peer) for peer in peers)]
    found = []
    for peer in peers:
        ratios = [ratio.point for key in shared if (ratio := result.ratio(key, result.ours, peer))]
        if mean := _mean(ratios):
            found.append((peer, mean))
    return min(found, key=lambda pair: pair[1], default=None)


def _mean(ratios: list[float]) -> float | None:
    usable = [ratio for ratio in ratios if 0 < ratio < float("inf")]
    return geometric_mean(usable) if usable else None
