"""What `tslab bench` runs: each workload with its options, its headline figures, and its short form.

A case's short form keeps the shape and shrinks the length, so that the whole suite takes minutes; figures of short
and long forms are never mixed in one table, since the options are part of every row's name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tslab.errors import LabError

PEAK = "peak_rss_bytes"


@dataclass(frozen=True)
class Case:
    """`time` and `memory` are the metrics that tables compare, and geometric means take the first of each; `short` is
    None where --quick leaves the case out."""

    workload: str
    options: tuple[str, ...]
    time: tuple[str, ...]
    memory: tuple[str, ...] = (PEAK,)
    short: tuple[str, ...] | None = ()
    count_with: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return " ".join((self.workload, *(option.removeprefix("--") for option in self.options)))


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
    for share in (0, 50, 90):
        memory = (PEAK, "during_rss_bytes", "after_rss_bytes")
        yield Case(
            "remote", (f"--share={share}",), ("ops_per_s",), memory, short=("--ms=300",) if share == 50 else None
        )
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
    for objects in (20, 200):
        for threads in (1, 2, 4):
            options = (f"--objects={objects}", f"--threads={threads}", "--requests=50000")
            short = ("--requests=20000",) if threads != 4 else None
            yield Case("request", options, ("requests_per_s", "request_p99_ns"), short=short)
    for churn in (2, 100):
        yield Case(
            "lifetimes",
            ("--requests=200000", f"--churn={churn}"),
            (),
            (PEAK, "retained_rss_bytes"),
            short=("--requests=20000",) if churn == 2 else None,
        )
    for app in ("redis", "sqlite3", "python", "gcc", "lua", "perl", "nginx"):
        yield Case("apps", (f"--app={app}",), ("cpu_ns",), short=() if app in ("sqlite3", "perl") else None)


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
        if wanted and case.workload not in wanted:
            continue
        if not quick:
            cases.append(case)
        elif case.short is not None:
            options = _overridden(case.options, case.short)
            cases.append(Case(case.workload, options, case.time, case.memory, case.short, case.count_with))
    return cases


def _overridden(options: tuple[str, ...], by: tuple[str, ...]) -> tuple[str, ...]:
    names = {option.partition("=")[0] for option in by}
    return tuple(option for option in options if option.partition("=")[0] not in names) + by
