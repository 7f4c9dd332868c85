"""The cases of `tslab bench`: each workload with its options, its headline figures, and its short form.

A case's short form keeps the shape and shrinks the length, so that the whole suite takes minutes; figures of short
and long forms are never mixed in one table, since the options are part of every row's name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tslab import scale
from tslab.errors import LabError

PEAK = "peak_rss_bytes"
RUN_LIMIT_S = 180
SWEEP_LIMIT_S = 30


@dataclass(frozen=True)
class Case:
    """`time` and `memory` are the metrics that tables compare, and geometric means take the first of each; `short` is
    None where --quick leaves the case out.

    `routes` are options of single allocators, as ("tslab", "--mode=reset"): those do the same work by other means, an
    epoch or a heap of their own, beside the plain malloc of the others. Such a case is in no geometric mean. With
    `alone` the allocators without a route have nothing to run.

    With `sweep` the case is one count of several that a chart draws together; it is in no geometric mean either. A run
    ends after `limit_s` seconds. A `long` case takes part only in a run that names its workload. A `title` stands for
    the options in its name."""

    workload: str
    options: tuple[str, ...]
    time: tuple[str, ...]
    memory: tuple[str, ...] = (PEAK,)
    short: tuple[str, ...] | None = ()
    count_with: tuple[str, ...] = ()
    routes: tuple[tuple[str, str], ...] = ()
    alone: bool = False
    sweep: bool = False
    limit_s: int = RUN_LIMIT_S
    long: bool = False
    title: str = ""

    @property
    def in_means(self) -> bool:
        return not self.routes and not self.sweep

    @property
    def name(self) -> str:
        if self.title:
            return f"{self.workload} {self.title}"
        routes = (f"{allocator}:{option.removeprefix('--')}" for allocator, option in self.routes)
        return " ".join((self.workload, *(option.removeprefix("--") for option in self.options), *routes))

    def options_of(self, allocator: str) -> tuple[str, ...] | None:
        """None where there is nothing to run."""
        own = tuple(option for name, option in self.routes if name == allocator)
        return None if self.alone and not own else (*self.options, *own)

    def comparable(self, variant: str) -> str:
        """The variant without what the routes set, so that the rows of all allocators stand in one line."""
        routed = {option.removeprefix("--").partition("=")[0] for _, option in self.routes}
        return ",".join(part for part in variant.split(",") if part.partition("=")[0] not in routed)


def _cases() -> Iterable[Case]:
    turns = "--iterations=4000000"
    few = ("--iterations=200000",)
    short: tuple[str, ...] | None
    options: tuple[str, ...]
    for slots in (400, 8192, 100000):
        for draws in ("same", "independent"):
            short = (turns,) if (slots, draws) in ((400, "same"), (100000, "independent")) else None
            options = (f"--slots={slots}", f"--draws={draws}")
            yield Case("random-mixed", options, ("ops_per_s",), short=short, count_with=few)
    # A clean heap flatters whoever keeps the worst order.
    yield Case(
        "random-mixed", ("--slots=8192", "--draws=independent", "--litter=200000"), ("ops_per_s",), short=(turns,)
    )

    tails = ("pair_p50_ns", "pair_p99.9_ns")
    yield Case("latency", ("--mode=bulk", "--objects=1000000", "--cycles=1"), tails)
    yield Case("latency", ("--objects=100000", "--cycles=100"), tails, short=("--cycles=20",))
    yield Case("latency", ("--objects=100000", "--cycles=10"), tails)
    yield Case("latency", ("--objects=1000000", "--cycles=100"), tails, short=None)

    for mode in ("fixed", "mixed"):
        for threads in (1, 2, 4, 8, 16):
            short = ("--rounds=3", "--repeats=3") if mode == "fixed" else None
            yield Case("threads", (f"--mode={mode}", f"--threads={threads}", "--rounds=5"), ("ops_per_s",), short=short)

    yield Case("simple", (), ("wall_mean_ns",))
    yield Case("contention-sampling", (), ("ops_per_s",))
    yield Case("zombie-repair", (), ("ops_per_s",))
    memory = (PEAK, "during_rss_bytes", "after_rss_bytes")
    for share in (0, 50, 90):
        yield Case(
            "remote", (f"--share={share}",), ("ops_per_s",), memory, short=("--ms=300",) if share == 50 else None
        )
    for side in (2, 8):
        options = (f"--producers={side}", f"--consumers={side}")
        short = ("--batches=800",) if side == 2 else None
        yield Case("pipeline", options, ("frees_per_s",), memory, short=short)
    yield Case("handover", (), ("pairs_per_s",), (PEAK, "after_rss_bytes"), short=("--generations=50",))
    for frees in ("in", "reverse", "pre", "post", "random"):
        short = ("--turns=5",) if frees == "post" else None
        yield Case("trees", (f"--frees={frees}",), ("node_mean_ns",), short=short)
    yield Case("trees", ("--built=random", "--most=128", "--frees=in", "--turns=10"), ("node_mean_ns",), short=None)
    for first in ("oldest", "newest"):
        short = ("--pairs=4000000",) if first == "oldest" else None
        yield Case("bursts", (f"--first={first}",), ("pair_mean_ns",), short=short)
    for name in ("python", "gcc", "sqlite3", "perl", "redis", "git", "jq"):  # bench/traces.py records them
        short = () if name in {"sqlite3", "git"} else None
        heap = ("heap_peak_bytes", "heap_end_bytes")
        yield Case("replay", (f"--trace={name}",), ("cpu_per_op_ns",), heap, short=short)
    for table in range(10):
        short = ("--births=200000",) if table == 5 else None
        yield Case("fleet", (f"--table={table}",), ("cpu_per_op_ns",), ("resident_bytes",), short=short)
    yield Case("churn", (), ("replacement_mean_ns",), (PEAK, "last_rss_bytes"), short=("--cycles=100",))
    for which in ("random", "newest", "oldest"):
        short = ("--mib=128", "--idle_ms=1000") if which == "random" else None
        yield Case(
            "burst",
            (f"--which={which}",),
            ("malloc_mean_ns", "free_mean_ns"),
            (PEAK, "after_idle_rss_bytes"),
            short=short,
        )
    yield Case("fragmentation", (), (), short=("--mib=8",))
    yield Case("holes", (), (), (PEAK, "after_bytes"), short=("--idle_ms=2000",))
    hours = ("request_p99.9_ns", "worst_hour_p999_ns")
    yield Case("day", ("--seconds=24",), hours, short=("--seconds=5",))
    yield Case("day", ("--seconds=900",), hours, short=None, limit_s=900 + RUN_LIMIT_S, long=True)
    for objects in (20, 200):
        for threads in (1, 2, 4):
            options = (f"--objects={objects}", f"--threads={threads}", "--requests=50000")
            short = ("--requests=20000",) if threads != 4 else None
            figures = ("requests_per_s", "request_p99_ns")
            yield Case("request", options, figures, short=short)
            if threads == 4:
                continue
            for mode in ("frees", "destroy", "reset", "batch"):
                in_short = short if mode in ("frees", "reset") and threads == 1 else None
                yield Case("request", options, figures, short=in_short, routes=(("tslab", f"--mode={mode}"),))
            heaps = tuple((name, "--mode=mi-heap") for name in ("mimalloc3", "mimalloc2"))
            yield Case("request", options, figures, short=None, routes=(("tslab", "--mode=destroy"), *heaps))
    retained = (PEAK, "retained_rss_bytes")
    lifetimes: tuple[tuple[str, ...], ...] = (
        ("--requests=200000", "--churn=2"),
        ("--requests=200000", "--churn=100"),
        # Blocks that outlive their batch and die later; and the control: blocks that never die show as their own size.
        ("--requests=20000", "--batch=100", "--pinned=0.25", "--life=20"),
        ("--requests=40000", "--batch=4", "--objects=20", "--sessions=400", "--churn=0", "--pinned=1"),
    )
    for options in lifetimes:
        short = ("--requests=20000",) if "--churn=2" in options else None
        yield Case("lifetimes", options, (), retained, short=short)
        for routing in ("isolated", "mixed"):
            routes = (("tslab", f"--routing={routing}"),)
            yield Case("lifetimes", options, (), retained, short=short, routes=routes)
    operations = tuple(
        f"{name}_ns"
        for name in ("open_close", "open_close_labelled", "open_close_10", "destroy_10", "reset_10", "enter_leave",
                     "enter_leave_10", "explicit_pair", "alternate_whole", "drained_close", "step_longest")
    )  # fmt: skip
    held = tuple(f"{name}_rss_bytes" for name in ("idle_epochs", "idle_epoch", "entered_epoch", "used_epoch"))
    whose = (("tslab", "--of=epoch"), ("mimalloc3", "--of=mi-heap"))
    for beside in (0, 1):
        options = (f"--beside={beside}", "--idle=10000")
        yield Case("epochs", options, operations, held, short=("--repeats=101",), routes=whose, alone=True)
    # mimalloc has no keys for this many heaps.
    yield Case("epochs", ("--idle=100000",), (), held, short=None, routes=whose[:1], alone=True)
    yield from _sweeps()
    for app in ("redis", "sqlite3", "python", "gcc", "lua", "perl", "nginx"):
        yield Case("apps", (f"--app={app}",), ("cpu_ns",), short=() if app in ("sqlite3", "perl") else None)


def _sweeps() -> Iterable[Case]:
    """Each kind of bench/cliffs with each of its counts."""
    for kind in scale.KINDS:
        for count in kind.counts:
            yield Case(
                scale.WORKLOAD,
                kind.case_options(count),
                tuple(cost.metric for cost in kind.time),
                tuple(cost.metric for cost in kind.memory),
                short=() if kind.name == "turns" else None,
                routes=kind.routes,
                alone=kind.alone,
                sweep=True,
                limit_s=SWEEP_LIMIT_S,
            )


CASES = tuple(_cases())


def choose(quick: bool, names: Iterable[str] = ()) -> list[Case]:
    """The cases of the full or the short suite, or of the named workloads only."""
    wanted = list(names)
    known = {case.workload for case in CASES}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise LabError(f"no workload '{unknown[0]}'; there are {', '.join(sorted(known))}")
    cases = []
    for case in CASES:
        if (wanted and case.workload not in wanted) or (case.long and not wanted):
            continue
        if not quick:
            cases.append(case)
        elif case.short is not None:
            options = _overridden(case.options, case.short)
            cases.append(replace(case, options=options))
    return cases


def _overridden(options: tuple[str, ...], by: tuple[str, ...]) -> tuple[str, ...]:
    names = {option.partition("=")[0] for option in by}
    return tuple(option for option in options if option.partition("=")[0] not in names) + by
