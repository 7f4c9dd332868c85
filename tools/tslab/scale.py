"""The cost of one thing when there are many: the kinds of bench/cliffs, and the rule that calls a cost flat.

A kind is run with 1, 10 and 100 times its least count. Its cost is flat if one thing costs at most 1.3 times as much
with 100 times as many; else it bends. Costs that are too small to be told from nothing count as that small.
"""

from __future__ import annotations

from dataclasses import dataclass

WORKLOAD = "cliffs"
FACTORS = (1, 10, 100)
FLAT_WITHIN = 1.3
# A lower cost cannot be told from 0: a tick of the clock, a few pages over many things, a tick of the scheduler.
RESOLVED = {"_ns": 1.0, "_bytes": 16.0, "_pct": 0.1}
EPOCHS, THREADS, MEMORY = "epochs", "threads", "memory"


@dataclass(frozen=True)
class Cost:
    metric: str
    words: str

    @property
    def is_memory(self) -> bool:
        return self.metric.endswith("_bytes")

    def resolved(self, value: float) -> float:
        least = next((least for unit, least in RESOLVED.items() if self.metric.endswith(unit)), 0.0)
        return max(value, least)


@dataclass(frozen=True)
class Kind:
    """`things` says of what there are many. With `in_epochs` temporal-slab does the work in epochs, the others by plain
    malloc; with `alone` nobody else can do it. The first cost that is no memory is the one that charts of time show."""

    name: str
    group: str
    things: str
    least: int
    costs: tuple[Cost, ...]
    in_epochs: bool = False
    in_heaps: bool = False
    alone: bool = False

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(self.least * factor for factor in FACTORS)

    @property
    def time(self) -> tuple[Cost, ...]:
        return tuple(cost for cost in self.costs if not cost.is_memory)

    @property
    def memory(self) -> tuple[Cost, ...]:
        return tuple(cost for cost in self.costs if cost.is_memory)

    @property
    def routes(self) -> tuple[tuple[str, str], ...]:
        """As a case of the suite has them."""
        ours = (("tslab", "--of=epoch"),) if self.in_epochs else ()
        return ours + tuple((name, "--of=mi-heap") for name in ("mimalloc3", "mimalloc2") if self.in_heaps)

    def case_options(self, count: int) -> tuple[str, ...]:
        return (f"--kind={self.name}", f"--count={count}")


def _costs(**words: str) -> tuple[Cost, ...]:
    return tuple(Cost(metric, text) for metric, text in words.items())


WAITS = {"wait_longest_ns": "longest wait of another thread", "wait_mean_ns": "mean wait of another thread"}
REST_CPU = {"rest_cpu_pct": "processor time at rest, in all"}

KINDS = (
    Kind(
        "turns", EPOCHS, "open epochs that one thread goes round", 8,
        _costs(
            turn_ns="enter, malloc, free, leave",
            enter_leave_ns="enter, leave",
            turn_rss_bytes="resident, with one block",
        ),
        in_epochs=True,
    ),
    Kind(
        "tenants", EPOCHS, "open epochs with 20 blocks that one replaces", 100,
        _costs(replace_ns="free and malloc", tenant_rss_bytes="resident, with 20 blocks of 2.1 KB together"),
        in_epochs=True,
    ),
    Kind(
        "calls", EPOCHS, "open epochs that calls by id go round", 1,
        _costs(call_pair_ns="malloc by id, free"),
        in_epochs=True, in_heaps=True,
    ),
    Kind(
        "idle", EPOCHS, "open epochs that nobody entered", 1000,
        _costs(open_ns="open", close_ns="close", epoch_rss_bytes="resident"),
        in_epochs=True, alone=True,
    ),
    Kind(
        "used", EPOCHS, "open epochs with one block", 1000,
        _costs(open_ns="open, enter, malloc, leave", close_ns="close", epoch_rss_bytes="resident"),
        in_epochs=True, alone=True,
    ),
    Kind(
        "longpoll", EPOCHS, "epochs that stay open among short ones", 10,
        _costs(batch_ns="a batch of 2,000 blocks", **REST_CPU),
        in_epochs=True,
    ),
    Kind(
        "labels", EPOCHS, "labels", 1000,
        _costs(epoch_ns="an epoch, open to close", label_rss_bytes="resident"),
        in_epochs=True, alone=True,
    ),
    Kind(
        "children", EPOCHS, "children of one epoch", 1000,
        _costs(open_ns="open", close_ns="close, with the parent", child_rss_bytes="resident"),
        in_epochs=True, alone=True,
    ),
    Kind(
        "handles", EPOCHS, "handles of one epoch", 10000,
        _costs(
            get_ns="get", alloc_ns="alloc", free_ns="free", handle_rss_bytes="resident, with 64 bytes"
        ),
        in_epochs=True, alone=True,
    ),
    Kind(
        "tide", EPOCHS, "requests in flight at once", 20,
        _costs(
            block_ns="a block, with its share of the ends",
            high_rss_bytes="resident at high tide",
            low_over_live_bytes="resident but not live, low tide",
            idle_over_live_bytes="the same after 1.5 s at rest",
        ),
        in_epochs=True,
    ),
    Kind(
        "threads", THREADS, "threads with one block each", 10,
        _costs(birth_ns="birth, first malloc", end_ns="end", thread_rss_bytes="resident, with the stack"),
    ),
    Kind(
        "rest", THREADS, "threads at rest that used 200 sizes", 10,
        _costs(**REST_CPU, thread_rss_bytes="resident, with the stack"),
    ),
    Kind(
        "dead", THREADS, "dead threads that lived at once", 100,
        _costs(
            malloc_ns="malloc of 8,000 bytes, later",
            malloc_longest_ns="the longest of these",
            fork_ns="fork",
            **REST_CPU,
            dead_rss_bytes="resident",
        ),
    ),
    Kind(
        "requests", THREADS, "threads that serve requests of 20 blocks", 1,
        _costs(request_ns="a request, in time of one core", request_cpu_ns="a request, in processor time"),
        in_epochs=True,
    ),
    Kind(
        "beside-destroy", THREADS, "threads with small requests", 1,
        _costs(request_ns="1,000 blocks of another, destroyed"),
        in_epochs=True,
    ),
    Kind(
        "beside-frees", THREADS, "threads with small requests", 1,
        _costs(request_ns="1,000 blocks of another, freed"),
        in_epochs=True,
    ),
    Kind(
        "blocks", MEMORY, "live blocks of 16 to 143 bytes", 10000,
        _costs(pair_ns="the oldest replaced", block_rss_bytes="resident"),
    ),
    Kind(
        "live", MEMORY, "MiB of live blocks of 16 to 527 bytes", 10,
        _costs(fill_ns="a block", fork_ns="fork", **REST_CPU, live_rss_bytes="resident"),
    ),
    Kind("grow", MEMORY, "buffers that grow to 2 MiB in turn", 1, _costs(realloc_ns="realloc by an eighth")),
    Kind("runs", MEMORY, "free runs of each of two ages", 100, _costs(**WAITS)),
    Kind(
        "fit", MEMORY, "free runs that are too short", 10,
        _costs(malloc_ns="malloc of 2.4 MiB", malloc_longest_ns="the longest of 500"),
    ),
    Kind(
        "sparse", MEMORY, "GiB of addresses, a page in use in each 64 MiB", 10,
        _costs(
            sparse_malloc_ns="malloc of 64 MiB",
            sparse_free_ns="its free",
            sparse_trim_ns="malloc_trim of a GiB",
            sparse_rss_bytes="resident",
        ),
    ),
    Kind(
        "destroy", MEMORY, "MiB that one epoch ends with", 10,
        _costs(**WAITS, end_mib_ns="end of a MiB"),
        in_epochs=True,
    ),
)  # fmt: skip


def verdict(ratio: float) -> str:
    return "flat" if ratio <= FLAT_WITHIN else "bends"
