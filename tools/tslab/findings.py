"""The rules of `tslab doctor`: they name a problem in plain words, with its figures and a remedy.

Each rule looks at one `Case` (two looks or more, or one) and yields its findings. A rule has a threshold and, where the
threshold alone would speak of things that cost nothing, a least amount. The thresholds are in one table below;
docs/observability.md lists them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial

from tslab.culprits import grown_sites, holding_sites
from tslab.figures import RESIDENT, Document, bucket_percentile
from tslab.looks import Case, Look
from tslab.reporters.quantities import bytes_text, rate_text, share_text, short_time, time_text
from tslab.sites import OPEN, Site
from tslab.trend import Growth

MiB = 1 << 20
CLOSING = 2  # the state of an epoch

# Notice, warning, critical: shares.
LOCK_BANDS = (0.05, 0.20, 0.50)
CAS_BANDS = (0.01, 0.05, 0.20)
SLOW_BANDS = (0.05, 0.10, 0.20)
# Threads waiting for a lock, on average: a lock that is taken millions of times is held up without a high share.
WAITING_BANDS = (0.10, 0.50, 2.0)
# A share of few, cheap events costs nothing. A rule needs at least this many a second, and this share of one processor.
CONTENDED_LEAST_PER_S = 100
SLOW_LEAST_CALLS = 10_000
SLOW_LEAST_TIME = 0.02
P50_MOST_NS = 200
P50_LEAST_TIME = 0.05  # of one processor, spent in allocations of that length
P99_MOST_NS = 10_000
LATENCY_LEAST_SAMPLES = 200
CLOSING_AGE_NS = 300 * 10**9
CLOSING_LEAST_BYTES = MiB
CLOSING_MOST_EPOCHS = 10
HELD_LEAST_S = 4.0  # how long a closing epoch with a thread inside is watched before it is said
DEPTH_MOST = 16  # scopes a thread is inside of on average; a thread's limit is 64
LABEL_LEAST_OPENED = 8
LABEL_MOST_ENDED = 0.10  # of those opened
GROWTH_LEAST_BYTES = 64 << 10
GROWTH_SURE_S = 60.0  # a shorter watch gives a notice only
RESIDENT_GROWTH = 0.10
RESIDENT_LEAST_BYTES = 8 * MiB
WASTE_MOST = 0.50
CLASS_WASTE_LEAST_BYTES = 4 * MiB
UNUSED_LEAST_BYTES = 16 * MiB
REMOTE_MOST = 0.50
REMOTE_LEAST_PER_S = 100_000
STARVED_MOST = 0.50
STARVED_LEAST_DEMAND = 0.20  # of one processor
THROTTLED_MOST = 0.10
LIMIT_NEAR = 0.90
UNBOUNDED_SHARE = 0.25
DIVERTED_MOST = 0.01
DIVERTED_LEAST = 100


class Severity(IntEnum):
    NOTICE = 1
    WARNING = 2
    CRITICAL = 3


@dataclass(frozen=True)
class Finding:
    rule: str
    severity: Severity
    says: str
    advice: str
    figures: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> Document:
        return {
            "rule": self.rule, "severity": self.severity.name.lower(), "says": self.says, "advice": self.advice,
            "figures": self.figures,
        }  # fmt: skip


Rule = Callable[[Case], Iterator[Finding]]


def findings(looks: Sequence[Look], name_of: Callable[[Site], str] | None = None) -> list[Finding]:
    """The worst first. With `name_of`, some say the call sites that a heap profile knows."""
    case = Case(looks, name_of)
    return sorted((finding for rule in RULES for finding in rule(case)), key=lambda finding: -finding.severity)


def band(value: float, bands: tuple[float, float, float]) -> Severity | None:
    passed = sum(value >= limit for limit in bands)
    return Severity(passed) if passed else None


# ---- memory that grows -----------------------------------------------------------------------------------------------


def growing(case: Case) -> Iterator[Finding]:
    """A leak in an epoch, or in the process."""
    in_epochs = 0.0
    for row in case.found["epochs"]:
        grows = case.growth(partial(_live_of, row))
        if grows is None or grows.last - grows.first < max(GROWTH_LEAST_BYTES, 0.1 * grows.first):
            continue
        in_epochs += grows.slope
        bound = "" if row.get("budget_bytes") else " It has no budget."
        yield Finding(
            "epoch-grows", _sure(grows),
            f"Epoch {row['epoch']} ({_label(row)}), open for {short_time(row.get('age_ns', 0))}, only grows: "
            f"{_leak_text(grows)}; it holds {bytes_text(row.get('live_bytes', 0))} live.{bound}"
            f"{holding_sites(case, OPEN, row.get('label', ''))}",
            "Free what the epoch no longer needs, close the epoch and open another one from time to time, or give it a "
            f"budget. {_longer(grows)}",
            {"epoch": row["epoch"], **_growth_figures(grows), "live_bytes": row.get("live_bytes", 0)},
        )  # fmt: skip
    grows = case.growth(lambda document: document["process"].get("live_bytes"))
    if grows is None or grows.last - grows.first < GROWTH_LEAST_BYTES or in_epochs > 0.7 * grows.slope:
        return
    classes = _grown_most(case)
    yield Finding(
        "leak", _sure(grows),
        f"Live memory only grows: {_leak_text(grows)}.{classes}{grown_sites(case)}",
        f"If it is not a cache that fills, it is a leak: `tslab diff` of two saved looks says where. {_longer(grows)}",
        _growth_figures(grows),
    )  # fmt: skip


def resident_grows(case: Case) -> Iterator[Finding]:
    if len(case.looks) < 2:
        return
    sizes = [look.document["process"].get(RESIDENT, 0) for look in case.looks]
    lives = [look.document["process"].get("live_bytes", 0) for look in case.looks]
    half = len(sizes) // 2
    first, last, more_live = sizes[0], sizes[-1], lives[-1] - lives[0]
    grown = last - first
    goes_on = max(sizes[:half]) < min(sizes[half:])
    if first and goes_on and grown > max(RESIDENT_GROWTH * first, RESIDENT_LEAST_BYTES) and more_live < grown / 2:
        yield Finding(
            "resident-grows", Severity.WARNING,
            f"Resident memory grew by {bytes_text(grown)} ({share_text(grown / first)}) {case.span}, while live memory "
            f"changed by {bytes_text(more_live)}.",
            "Look at the classes and epochs with a low share of live memory (`tslab stats --all`), and at memory that "
            "the program maps itself.",
            {"grown_bytes": grown, "resident_bytes": last, "live_grown_bytes": more_live},
        )  # fmt: skip


def _live_of(row: Document, document: Document) -> float | None:
    """Returns the live bytes of the row's epoch; None if the table lacks it, or has another life of it."""
    found = _epoch_of(row, document)
    return float(found.get("live_bytes", 0)) if found and found.get("era") == row.get("era") else None


def _epoch_of(row: Document, document: Document) -> Document | None:
    return next((other for other in document["epochs"] if other["epoch"] == row["epoch"]), None)


def _sure(grows: Growth) -> Severity:
    return Severity.WARNING if grows.seconds >= GROWTH_SURE_S else Severity.NOTICE


def _longer(grows: Growth) -> str:
    return "" if grows.seconds >= GROWTH_SURE_S else "A longer watch is surer: `tslab doctor PID --for 600`."


def _leak_text(grows: Growth) -> str:
    an_hour = 3600 / MiB
    return (
        f"{grows.slope * an_hour:,.1f} MiB an hour (95 % interval {grows.low * an_hour:,.1f} to "
        f"{grows.high * an_hour:,.1f}), seen for {grows.seconds:.0f} s"
    )


def _growth_figures(grows: Growth) -> dict[str, float]:
    an_hour = 3600 / MiB
    return {
        "mib_per_hour": grows.slope * an_hour, "mib_per_hour_low": grows.low * an_hour,
        "mib_per_hour_high": grows.high * an_hour, "watched_s": grows.seconds,
    }  # fmt: skip


def _grown_most(case: Case) -> str:
    if case.between is None:
        return ""
    rows = [
        (case.between.change("live_bytes", "classes", size), f"{bytes_text(float(str(size)))} blocks")
        for size in case.between.keys("classes")
    ]
    rows.append((case.between.change("large_live_bytes"), "blocks above 32 KiB"))
    most, name = max(rows, default=(0, ""))
    return f" Most of it is in {name}: {bytes_text(most)} more." if most > 0 else ""


# ---- memory that is held for nothing ---------------------------------------------------------------------------------


def unused(case: Case) -> Iterator[Finding]:
    """A burst that was never returned, and the classes that hold it."""
    first, last = _idle_bytes(case.looks[0].document), _idle_bytes(case.found)
    if last < CLASS_WASTE_LEAST_BYTES or len(case.looks) < 2:  # one look does not tell what stays from what comes back
        return
    for size, held, wasted in _wasteful(case):
        yield Finding(
            "class-waste", Severity.WARNING if wasted >= 32 * MiB else Severity.NOTICE,
            f"Blocks of {bytes_text(size)}: {bytes_text(held)} of slabs hold {bytes_text(held - wasted)} live: "
            f"{share_text(wasted / held)} serves nothing.",
            "The blocks that stayed keep whole slabs: allocate what lives long in an epoch of its own, apart from "
            "what is freed soon.",
            {"object_size": size, "slab_bytes": held, "wasted_bytes": wasted},
        )  # fmt: skip
    held = last + case.total.get("live_bytes", 0)
    always = case.throughout(lambda document: _idle_bytes(document) > WASTE_MOST * _held_bytes(document))
    if last >= UNUSED_LEAST_BYTES and last >= 0.9 * first and always:
        yield Finding(
            "burst-not-returned", Severity.WARNING,
            f"{bytes_text(held)} are held for {bytes_text(held - last)} of live blocks: {share_text(last / held)} "
            f"is left from an earlier peak and was not returned.",
            "Blocks that stayed lie between those that were freed. Allocate the burst in an epoch and close it: its "
            "memory goes back as a whole; `tslab stats PID --all` shows which classes and epochs hold it.",
            {"held_bytes": held, "live_bytes": held - last, "unused_bytes": last},
        )  # fmt: skip


def _held_bytes(document: Document) -> int:
    total = document["process"]
    in_use: int = total.get("in_use_bytes", 0) + total.get("free_dirty_bytes", 0)
    resident: int = total.get(RESIDENT, 0)
    return min(in_use, resident) if resident else in_use


def _idle_bytes(document: Document) -> int:
    total: dict[str, int] = document["process"]
    return max(0, _held_bytes(document) - total.get("live_bytes", 0) - total.get("reserve_bytes", 0))


def slab_bytes(row: Document) -> int:
    """Returns the bytes of a class's slabs: 64 KiB each, 256 KiB for blocks above 8 KiB."""
    return int(row.get("slabs", 0) * (64 << 10 if row["object_size"] <= 8 << 10 else 256 << 10))


def _wasteful(case: Case) -> Iterator[tuple[int, int, int]]:
    before = {row["object_size"]: row for row in case.looks[0].document["classes"]}
    for row in case.found["classes"]:
        held, wasted = _waste(row)
        _, was = _waste(before.get(row["object_size"], row))
        if held and min(wasted, was) >= CLASS_WASTE_LEAST_BYTES and wasted >= WASTE_MOST * held:
            yield row["object_size"], held, wasted


def _waste(row: Document) -> tuple[int, int]:
    held = slab_bytes(row)
    return held, max(0, held - row.get("live_bytes", 0))


# ---- epochs ----------------------------------------------------------------------------------------------------------


def closing(case: Case) -> Iterator[Finding]:
    rows = [row for row in case.found["epochs"] if row.get("state") == CLOSING]
    stuck = []
    for row in rows:
        long = case.watched_s >= HELD_LEAST_S or row.get("age_ns", 0) > CLOSING_AGE_NS
        if long and case.throughout(partial(_closed_and_entered, row)):
            stuck.append(row)
    if stuck:
        row = max(stuck, key=lambda row: row.get("committed_bytes", 0))
        yield Finding(
            "epoch-never-left", Severity.WARNING,
            f"{_number(len(stuck), 'closed epoch')} cannot end, because a thread has not left: the largest is "
            f"{row['epoch']} ({_label(row)}), {_number(row['threads_inside'], 'thread')} inside, "
            f"{bytes_text(row.get('committed_bytes', 0))} held, opened {short_time(row.get('age_ns', 0))} ago.",
            "Call tslab_epoch_leave on every way out of the scope, errors and exceptions included.",
            {"epochs": len(stuck), "epoch": row["epoch"], "threads_inside": row["threads_inside"]},
        )  # fmt: skip
    old = [
        row for row in rows if row not in stuck and row.get("age_ns", 0) > CLOSING_AGE_NS
        and row.get("committed_bytes", 0) >= CLOSING_LEAST_BYTES
    ]  # fmt: skip
    if old:
        row = max(old, key=lambda row: row.get("committed_bytes", 0))
        yield Finding(
            "epoch-drains", Severity.WARNING,
            f"{_number(len(old), 'epoch')} older than {CLOSING_AGE_NS // 10**9} s still closing: the largest is "
            f"{row['epoch']} ({_label(row)}), {row.get('live_blocks', 0):,} blocks hold "
            f"{bytes_text(row.get('committed_bytes', 0))}.{holding_sites(case, CLOSING, row.get('label', ''))}",
            "Blocks that outlived the close keep their memory: free them, or allocate what lives longer in another "
            "epoch. TSLAB_ON_DESTROY=check names them.",
            {"epochs": len(old), "epoch": row["epoch"], "committed_bytes": row.get("committed_bytes", 0)},
        )  # fmt: skip
    count = case.total.get("epochs_closing", 0)
    if case.throughout(lambda document: document["process"].get("epochs_closing", 0) > CLOSING_MOST_EPOCHS):
        yield Finding(
            "epochs-closing", Severity.NOTICE,
            f"{count:,} epochs are closed and wait for their last block, child or thread.",
            "Look at their labels (`tslab stats PID --all`): something allocated inside lives longer than its epoch.",
            {"epochs_closing": count},
        )  # fmt: skip


def _closed_and_entered(row: Document, document: Document) -> bool:
    found = _epoch_of(row, document)
    return bool(found and found.get("state") == CLOSING and found.get("threads_inside"))


def labels(case: Case) -> Iterator[Finding]:
    """A forgotten close: epochs of one label are opened, and none of them ends."""
    for row in case.found["labels"] if case.between else ():
        key = row["label"]
        opened, ended = case.grown("opened", "labels", key), case.grown("ended", "labels", key)
        counts = [value for _, value in case.series(partial(_open_of, key))]
        only_grows = all(b >= a for a, b in itertools.pairwise(counts))
        if opened >= LABEL_LEAST_OPENED and ended <= LABEL_MOST_ENDED * opened and only_grows:
            yield Finding(
                "close-forgotten", Severity.WARNING,
                f"Epochs of {_label(row)} only grow: {opened:,} opened and {ended:,} ended {case.span}, "
                f"{row.get('open', 0):,} are open and hold {bytes_text(row.get('committed_bytes', 0))}.",
                "Close each of them when what it stands for is over: tslab_epoch_close, or TSLAB_EPOCH_AUTO_CLOSE for "
                "those that one thread enters and leaves.",
                {"opened": opened, "ended": ended, "open": row.get("open", 0)},
            )  # fmt: skip


def _open_of(label: str, document: Document) -> float | None:
    return next((float(row.get("open", 0)) for row in document["labels"] if row["label"] == label), None)


def scopes(case: Case) -> Iterator[Finding]:
    def depth(document: Document) -> float:
        inside = sum(row.get("threads_inside", 0) for row in document["epochs"])
        return float(inside / max(1, document["process"].get("threads", 0)))

    if case.throughout(lambda document: depth(document) >= DEPTH_MOST):
        inside = max(case.found["epochs"], key=lambda row: row.get("threads_inside", 0))
        yield Finding(
            "scopes-deep", Severity.WARNING,
            f"A thread is inside {depth(case.found):,.0f} epochs at once on average; after 64 it enters no more. One "
            f"of them is {_label(inside)}.",
            "A thread that enters and never leaves goes deeper each time: pair each tslab_epoch_enter with a leave.",
            {"scopes_per_thread": depth(case.found)},
        )  # fmt: skip


def diverted(case: Case) -> Iterator[Finding]:
    for row in case.found["labels"]:
        count = case.grown("diverted", "labels", row["label"])
        calls = case.grown("allocations", "labels", row["label"]) + count
        if count >= DIVERTED_LEAST and count > DIVERTED_MOST * calls:
            yield Finding(
                "diverted", Severity.WARNING,
                f"{count:,} mallocs in scopes of {_label(row)} went to epoch 0 {case.span}, because their epoch was "
                f"closed already ({share_text(count / calls)}).",
                "A thread goes on inside a closed epoch: leave first, close last.",
                {"diverted": count, "allocations": calls},
            )  # fmt: skip


def _label(row: Document) -> str:
    return f'"{row["label"]}"' if row.get("label") else "no label"


def _number(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")


# ---- limits and failures ---------------------------------------------------------------------------------------------


def limits(case: Case) -> Iterator[Finding]:
    for row in case.found["epochs"]:
        budget, charged = row.get("budget_bytes", 0), row.get("charged_bytes", 0)
        if budget and case.throughout(partial(_near_its_budget, row)):
            yield _near(f"epoch {row['epoch']} ({_label(row)})", "its budget", charged, budget)
    process = case.found["process"]
    hard, held = process.get("limit_hard", 0), process.get("limit_held", 0)
    if hard and case.throughout(_near_its_limit):
        yield _near("The library", "TSLAB_MEMORY_LIMIT or tslab_memory_limit", held, hard)
    for limit in case.system.limits if case.system else ():
        if limit.used >= LIMIT_NEAR * limit.most:
            yield _near("The process", limit.name, limit.used, limit.most)


def _near_its_budget(row: Document, document: Document) -> bool:
    found = _epoch_of(row, document)
    return bool(found and found.get("charged_bytes", 0) >= LIMIT_NEAR * row["budget_bytes"])


def _near_its_limit(document: Document) -> bool:
    process = document["process"]
    return bool(process.get("limit_held", 0) >= LIMIT_NEAR * process.get("limit_hard", 0))


def _near(who: str, limit: str, used: int, most: int) -> Finding:
    return Finding(
        "limit-near", Severity.CRITICAL,
        f"{who[0].upper()}{who[1:]} has used {bytes_text(used)} of the {bytes_text(most)} that {limit} allows "
        f"({share_text(used / most)}).",
        "Raise the limit or give memory back: what comes next fails, or ends the process.",
        {"used_bytes": used, "limit_bytes": most},
    )  # fmt: skip


def unbounded(case: Case) -> Iterator[Finding]:
    if case.system is None:
        return
    bounded = {row["epoch"] for row in case.found["epochs"] if row.get("budget_bytes")}
    for row in case.found["epochs"]:
        held = row.get("committed_bytes", 0)
        if held >= UNBOUNDED_SHARE * case.system.memory and not {row["epoch"], row.get("parent", 0)} & bounded:
            yield Finding(
                "epoch-unbounded", Severity.WARNING,
                f"Epoch {row['epoch']} ({_label(row)}) has no budget and holds {bytes_text(held)}: "
                f"{share_text(held / case.system.memory)} of the {bytes_text(case.system.memory)} that the process may "
                f"have.",
                "Give it a budget (tslab_epoch_open_with), so that one tenant or request cannot take all of it.",
                {"epoch": row["epoch"], "committed_bytes": held, "memory_bytes": case.system.memory},
            )  # fmt: skip


def failures(case: Case) -> Iterator[Finding]:
    for row in case.found["labels"]:
        refused = case.grown("refused", "labels", row["label"])
        if refused:
            yield Finding(
                "allocation-failures", Severity.CRITICAL,
                f"{_number(refused, 'allocation')} in epochs of {_label(row)} failed {case.span}: the budget is spent.",
                "Raise the budget, or free or close earlier.",
                {"refused": refused},
            )  # fmt: skip
    failed = case.total.get("purge_failures", 0)
    if failed:
        yield Finding(
            "purge-failures", Severity.WARNING,
            f"The kernel refused {failed:,} of {case.total.get('purge_calls', 0):,} calls that give memory back.",
            "Look for mlock or mlockall, a seccomp filter that forbids madvise, or memory that cannot be split "
            "(vm.max_map_count): what was freed stays resident.",
            {"purge_failures": failed, "purge_calls": case.total.get("purge_calls", 0)},
        )  # fmt: skip
    misuses = case.total.get("misuses", 0)
    if misuses:
        yield Finding(
            "misuses", Severity.CRITICAL,
            f"{_number(misuses, 'misuse')} of malloc or free survived, because TSLAB_ON_MISUSE=report is set.",
            "Run it without TSLAB_ON_MISUSE=report: it stops at the first one, and the message names the pointer.",
            {"misuses": misuses},
        )  # fmt: skip
    failed_calls = case.total.get("scope_misuses", 0)
    if failed_calls:
        yield Finding(
            "scope-misuses", Severity.WARNING,
            f"{_number(failed_calls, 'call')} on scopes or epochs failed, and what follows them allocates elsewhere.",
            "Run it with TSLAB_ON_SCOPE=report: each call site is named once, with the epoch's label and the reason.",
            {"scope_misuses": failed_calls},
        )  # fmt: skip


# ---- time ------------------------------------------------------------------------------------------------------------


def locks(case: Case) -> Iterator[Finding]:
    for row in case.found["locks"]:
        name = row["name"]
        contended, waited = case.grown("contended", "locks", name), case.grown("wait_ns", "locks", name)
        taken = contended + case.grown("fast", "locks", name)
        share, waiting = contended / taken if taken else 0.0, waited / 1e9 / case.seconds
        often = band(share, LOCK_BANDS) if contended >= CONTENDED_LEAST_PER_S * case.seconds else None
        long = band(waiting, WAITING_BANDS) if contended >= case.seconds else None
        if often or long:
            yield Finding(
                "lock-contention", max(often or Severity.NOTICE, long or Severity.NOTICE),
                f"Lock {name}: {share_text(share)} of {taken:,} takings {case.span} found it held, and {waiting:,.2f} "
                f"threads waited for it on average ({time_text(waited)} in all).",
                _LOCK_ADVICE.get(name, "Threads wait for each other: fewer threads or fewer such calls help."),
                {"contended": contended, "taken": taken, "rate": share, "wait_ns": waited, "threads_waiting": waiting},
            )  # fmt: skip


_LOCK_ADVICE = {
    "pages": "Threads take and return memory in large pieces at the same time: keep buffers above 32 KiB instead of "
    "freeing and allocating them each time.",
    "epoch": "Threads open, close or enter epochs at the same time: open fewer, or enter one of each thread's own.",
    "heap": "Threads free each other's blocks at the same time: free where it was allocated, or pass blocks back.",
}


def retries(case: Case) -> Iterator[Finding]:
    for name, calls, what in (
        ("slab_take_cas_retries", "allocations", "malloc"),
        ("slab_push_cas_retries", "frees", "free"),
    ):
        for row in case.found["classes"]:
            size = row["object_size"]
            failed, done = case.grown(name, "classes", size), case.grown(calls, "classes", size)
            share = failed / done if done else 0.0
            severity = band(share, CAS_BANDS)
            if severity and failed >= CONTENDED_LEAST_PER_S * case.seconds:
                yield Finding(
                    "cas-retries", severity,
                    f"Blocks of {bytes_text(size)}: {what} retried {share:.3f} times a call {case.span} "
                    f"({failed:,} retries in {done:,} calls).",
                    "Threads free blocks of the same slabs at the same time: free where it was allocated.",
                    {"object_size": size, "retries": failed, "calls": done, "rate": share},
                )  # fmt: skip


def slow(case: Case) -> Iterator[Finding]:
    calls, count = case.grown("allocations"), case.grown("slow_allocations")
    if calls < SLOW_LEAST_CALLS:
        return
    spent = {
        row["name"]: case.grown("wall_ns_sum", "paths", row["name"])
        for row in case.found["paths"]
        if row["name"] != "fast" and not row["name"].startswith("free")
    }
    time_share = sum(spent.values()) / 1e9 / case.seconds
    severity = band(count / calls, SLOW_BANDS)
    if severity and time_share >= SLOW_LEAST_TIME:
        worst = max(spent, key=lambda name: spent[name])
        yield Finding(
            "slow-path", severity,
            f"{share_text(count / calls)} of {calls:,} allocations {case.span} took a slow path, "
            f"{share_text(time_share)} of one processor's time; most of it in `{worst}`.",
            "`tslab samples PID` says what that time was spent on. Keep large blocks that come and go; prefault what "
            "grows.",
            {"slow": count, "allocations": calls, "share": count / calls, "time_share": time_share},
        )  # fmt: skip


def latency(case: Case) -> Iterator[Finding]:
    row = _latency(case, meanwhile=True)
    if sum(bucket["count"] for bucket in row["buckets"]) == 0:
        row = _latency(case, meanwhile=False)
    p50, p99 = bucket_percentile(row, 0.5), bucket_percentile(row, 0.99)
    costs = (p50 or 0) / 1e9 * case.grown("allocations") / case.seconds >= P50_LEAST_TIME
    for rule, value, most, which in (
        ("p99-high", p99, P99_MOST_NS, "One allocation in 100 takes"),
        ("p50-high", p50 if costs else None, P50_MOST_NS, "Half of the allocations take"),
    ):
        # A bucket's bound is up to 41 % too much: only a lower bound above the threshold counts.
        if value is not None and value / math.sqrt(2) >= most:
            yield Finding(
                rule, Severity.WARNING,
                f"{which} {time_text(value / math.sqrt(2))} or more (above {time_text(most)}).",
                "`tslab samples PID` tells the scheduler, locks, page faults and the allocator's own work apart.",
                {"at_most_ns": value, "threshold_ns": most},
            )  # fmt: skip


def _latency(case: Case, meanwhile: bool) -> Document:
    """All allocations by their time: the fast path's samples stand for all of its calls; the slow ones are counted."""
    before = {row["name"]: row for row in case.looks[0].document["paths"]} if meanwhile and case.between else {}
    buckets: list[Document] = []
    total = case.grown("allocations") if meanwhile else case.total.get("allocations", 0)
    slow_calls = case.grown("slow_allocations") if meanwhile else case.total.get("slow_allocations", 0)
    for row in case.found["paths"]:
        if row["name"].startswith("free"):
            continue
        old = before.get(row["name"], {}).get("buckets") or [{"count": 0}] * len(row.get("buckets", []))
        counts = [max(0, new["count"] - was["count"]) for new, was in zip(row.get("buckets", []), old, strict=False)]
        weight = 1.0
        if row["name"] == "fast":
            if sum(counts) < LATENCY_LEAST_SAMPLES:
                return {"buckets": []}
            weight = max(0, total - slow_calls) / sum(counts)
        for index, (count, bucket) in enumerate(zip(counts, row["buckets"], strict=False)):
            if index == len(buckets):
                buckets.append({"le_ns": bucket["le_ns"], "count": 0.0})
            buckets[index]["count"] += weight * count
    return {"buckets": buckets, "wall_ns_max": 0}


def remote(case: Case) -> Iterator[Finding]:
    frees = case.grown("frees")
    others = sum(case.grown("remote_frees", "classes", row["object_size"]) for row in case.found["classes"])
    if frees and others >= REMOTE_MOST * frees and others >= REMOTE_LEAST_PER_S * case.seconds:
        yield Finding(
            "remote-frees", Severity.NOTICE,
            f"{share_text(others / frees)} of {frees:,} frees {case.span} were of another thread's blocks: "
            f"{rate_text(others / case.seconds)}.",
            "Blocks travel between threads, and each of them costs a cache miss or two more: pass buffers back to the "
            "thread that allocates them, or free in larger pieces.",
            {"remote_frees": others, "frees": frees},
        )  # fmt: skip


def starved(case: Case) -> Iterator[Finding]:
    span = case.system_span()
    if span is None:
        return
    first, last, seconds = span
    cpu, waited = (last.cpu_ns - first.cpu_ns) / 1e9, (last.waited_ns - first.waited_ns) / 1e9
    throttled = (last.throttled_ns - first.throttled_ns) / 1e9
    wanted = cpu + waited
    if wanted >= STARVED_LEAST_DEMAND * seconds and waited >= STARVED_MOST * wanted:
        yield Finding(
            "cpu-starved", Severity.WARNING,
            f"Its threads waited for a processor {share_text(waited / wanted)} of the time that they wanted one "
            f"({waited:.1f} s of {wanted:.1f} s within {seconds:.0f} s).",
            "The machine or its share of it is too small: long allocations are the scheduler's, not the allocator's.",
            {"cpu_s": cpu, "waited_s": waited, "watched_s": seconds},
        )  # fmt: skip
    if throttled >= THROTTLED_MOST * seconds:
        yield Finding(
            "cpu-throttled", Severity.WARNING,
            f"Its control group's processor quota held it back for {throttled:.1f} s of {seconds:.0f} s.",
            "Raise the quota (cpu.max), or run fewer threads.",
            {"throttled_s": throttled, "watched_s": seconds},
        )  # fmt: skip


RULES: tuple[Rule, ...] = (
    failures, limits, growing, resident_grows, unused, unbounded, closing, labels, scopes, diverted, locks, retries,
    slow, latency, remote, starved,
)  # fmt: skip
