"""A process's figures in a terminal: the most wanted ones stand first, and empty rows are left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

from rich.console import Console
from rich.text import Text

from tslab import process as processes
from tslab.attribution import MEANINGS, Cause, Sample, cause_of, causes, percentile
from tslab.figures import RESIDENT, Document
from tslab.metrics import KEYS
from tslab.reporters.quantities import bytes_text, rate_text, share_text, time_text
from tslab.reporters.screen import Column, fit, shorten, show

# A library that can run looks once a second; an older look has a reason.
_OLD_NS = 3_000_000_000
_STATES = {1: "open", 2: "closing"}


def print_stats(console: Console, found: Document, before: Document | None = None) -> None:
    for line in (*header(found), "", *overview(found, before)):
        console.print(Text(line))
    for table in (_classes, _paths, _labels, _epochs, _locks, _threads):
        table(console, found)
    others = {name: len(rows) for name, rows in found.items() if isinstance(rows, list) and name not in KEYS}
    for name, rows in others.items():
        console.print(Text(f"\n{name}: {rows} rows of a newer library; --json shows them"))


def print_table(
    console: Console, title: str, head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1
) -> None:
    """`left` columns are text. Nothing is printed for no rows. Where the screen is too narrow, the last columns go."""
    cells = list(rows)
    if not cells:
        return
    columns = [
        Column(name, itemgetter(index), rank=max(0, index - max(1, left) + 1), text=index < left, least=24)
        for index, name in enumerate(head)
    ]
    fitted = fit(columns, cells, console.width)
    missing = f" (too narrow for: {', '.join(fitted.dropped)})" if fitted.dropped else ""
    console.print(Text(f"\n{title}", style="italic"), Text(missing, style="dim"), sep="", end="\n")
    show(console, [fitted.head(), *map(fitted.row, cells)])


def count(row: Document, name: str) -> str:
    return f"{row[name]:,}" if name in row else "–"


def size(row: Document, name: str) -> str:
    return bytes_text(row[name]) if name in row else "–"


def duration(value: float | None) -> str:
    return "–" if value is None else time_text(value)


# ---- the head --------------------------------------------------------------------------------------------------------


def header(found: Document) -> list[str]:
    age, state = found.get("age_ns", 0), found.get("state", processes.FILE)
    first = f"process {found['pid']}, {state}" if state != processes.FILE else f"process {found['pid']}, saved figures"
    if found.get("command"):
        first += f": {found['command']}"
    lines = [first, f"figures {time_text(age)} old · {found.get('library', 'library not named')}"]
    if state == processes.GONE:
        lines.append("The process is gone: these are its last figures.")
    elif state != processes.FILE and age > _OLD_NS:
        lines.append(
            f"The figures are old: the process is {state}, and nothing in it runs."
            if state in ("stopped", "traced")
            else "The figures are old: it allocated nothing since, hangs, had no turn, or was replaced by exec."
        )
    return lines


def print_header(console: Console, found: Document) -> None:
    """Each on one line of a terminal: a command can be longer than the screen. A pipe or file gets all of it."""
    for line in header(found):
        console.print(Text(shorten(line, console.width) if console.is_terminal else line), soft_wrap=True)


def overview(found: Document, before: Document | None = None) -> list[str]:
    total, derived = found["process"], found["process"]["derived"]
    lines = [
        f"memory   live {size(total, 'live_bytes')} in {count(total, 'live_blocks')} blocks · "
        f"in use {size(total, 'in_use_bytes')} ({share_text(derived['live_share_of_in_use'])} of it live) · "
        f"resident {size(total, RESIDENT) if total.get(RESIDENT) else '–'}",
        f"         free, still resident {size(total, 'free_dirty_bytes')} · "
        f"cached by threads {size(total, 'cached_bytes')} · reserve {size(total, 'reserve_bytes')} · "
        f"given back since the start {size(total, 'returned_bytes')}",
    ]
    sampled = sum(row.get("samples", 0) for row in found["classes"])
    if sampled:
        lines.append(
            f"         asked for {size(total, 'requested_bytes')} ± {size(total, 'requested_error')} "
            f"of what classes hold, estimated from {sampled:,} samples"
        )
    lines.append(
        f"calls    {count(total, 'allocations')} allocations · {count(total, 'frees')} frees · "
        f"{share_text(derived['slow_share'])} of allocations slow · "
        f"locks contended {share_text(derived['lock_contention_rate'])}"
    )
    lines.append(
        f"epochs   {count(total, 'epochs_open')} open · {count(total, 'epochs_closing')} closing · "
        f"{count(total, 'epochs_opened')} opened · recycled {size(total, 'bytes_recycled')} · "
        f"returned {size(total, 'bytes_returned')}"
    )
    problems = [
        f"{total[name]:,} {words}"
        for name, words in (
            ("misuses", "misuses reported and survived"),
            ("purge_failures", "purges that the kernel refused"),
            ("leaked_at_fork", "threads' lists given up at fork"),
        )
        if total.get(name)
    ]
    if problems:
        lines.append(f"notable  {' · '.join(problems)}")
    if before:
        lines.append(f"now      {changes(before, found)}")
    return lines


def changes(before: Document, after: Document) -> str:
    """Prints the changes between two looks, per second."""
    seconds = (after["timestamp_ns"] - before["timestamp_ns"]) / 1e9
    if seconds <= 0 or before["pid"] != after["pid"]:
        return "no new figures since the last look"

    def grown(name: str) -> float:
        return float(max(0.0, (after["process"].get(name, 0) - before["process"].get(name, 0)) / seconds))

    live = (after["process"].get("live_bytes", 0) - before["process"].get("live_bytes", 0)) / seconds
    slow = grown("slow_allocations") / grown("allocations") if grown("allocations") else None
    return (
        f"{rate_text(grown('allocations'))} allocations · {rate_text(grown('frees'))} frees · "
        f"{share_text(slow)} slow · live {'+' if live >= 0 else ''}{bytes_text(live)}/s · "
        f"given back {bytes_text(grown('returned_bytes'))}/s"
    )


# ---- the tables ------------------------------------------------------------------------------------------------------


def _classes(console: Console, found: Document) -> None:
    def used(row: Document) -> bool:
        return bool(row.get("allocations") or row.get("slabs"))

    print_table(
        console, "size classes in use",
        ["size", "live blocks", "live", "allocations", "frees", "slow", "cached", "slabs", "remote frees", "contended"],
        (
            [
                size(row, "object_size"), count(row, "live_blocks"), size(row, "live_bytes"), count(row, "allocations"),
                count(row, "frees"), share_text(row["derived"]["slow_share"]), count(row, "cached_blocks"),
                count(row, "slabs"), count(row, "remote_frees"), share_text(row["derived"]["lock_contention_rate"]),
            ]
            for row in found["classes"] if used(row)
        ), left=0,
    )  # fmt: skip


def _paths(console: Console, found: Document) -> None:
    slow = [row for row in found["paths"] if row.get("name") != "fast"]
    whole = sum(row.get("wall_ns_sum", 0) for row in slow)
    rows = sorted((row for row in found["paths"] if row.get("entries")), key=lambda row: -row.get("wall_ns_sum", 0))

    def cells(row: Document) -> list[str]:
        derived = row["derived"]
        fast = row.get("name") == "fast"
        return [
            row.get("name", "?"), count(row, "entries") + (" sampled" if fast else ""),
            "–" if fast else share_text(row.get("wall_ns_sum", 0) / whole if whole else None),
            *(duration(derived[name]) for name in ("p50_ns", "p99_ns", "p999_ns")), duration(row.get("wall_ns_max")),
            duration(derived["mean_cpu_ns"]), duration(derived["mean_wait_ns"]), share_text(derived["lock_wait_share"]),
        ]  # fmt: skip

    print_table(
        console, "paths: the ways that calls took (percentiles: at most)",
        ["path", "calls", "slow time", "p50", "p99", "p99.9", "longest", "mean cpu", "mean wait", "for locks"],
        map(cells, rows),
    )  # fmt: skip


def _labels(console: Console, found: Document) -> None:
    print_table(
        console, "labels of epochs",
        ["label", "open", "opened", "live blocks", "live", "held", "allocations", "slow", "recycled", "returned",
         "refused", "contended"],
        (
            [
                row.get("label", "") or "(none)", count(row, "open"), count(row, "opened"), count(row, "live_blocks"),
                size(row, "live_bytes"), size(row, "committed_bytes"), count(row, "allocations"),
                share_text(row["derived"]["slow_share"]), size(row, "bytes_recycled"), size(row, "bytes_returned"),
                count(row, "refused"), share_text(row["derived"]["lock_contention_rate"]),
            ]
            for row in sorted(found["labels"], key=lambda row: -row.get("committed_bytes", 0))
            if row.get("opened", 1)
        ),
    )  # fmt: skip


def _epochs(console: Console, found: Document) -> None:
    print_table(
        console, "epochs: the oldest and the largest",
        ["label", "state", "epoch", "age", "inside", "live blocks", "live", "held", "of it live", "budget"],
        (
            [
                row.get("label", "") or "(none)", _STATES.get(row.get("state", 0), "?"), str(row.get("epoch", "?")),
                duration(row.get("age_ns")), count(row, "threads_inside"), count(row, "live_blocks"),
                size(row, "live_bytes"), size(row, "committed_bytes"), share_text(row["derived"]["live_share"]),
                size(row, "budget_bytes") if row.get("budget_bytes") else "none",
            ]
            for row in sorted(found["epochs"], key=lambda row: -row.get("age_ns", 0))
        ), left=2,
    )  # fmt: skip


def _locks(console: Console, found: Document) -> None:
    print_table(
        console, "locks",
        ["lock", "taken at once", "contended", "rate", "waited", "mean wait", "held"],
        (
            [
                row.get("name", "?"), count(row, "fast"), count(row, "contended"),
                share_text(row["derived"]["contention_rate"]), duration(row.get("wait_ns")),
                duration(row["derived"]["mean_wait_ns"]),
                duration(row["hold_ns"]) if row.get("hold_ns") else "not timed",
            ]
            for row in found["locks"] if row.get("fast") or row.get("contended")
        ),
    )  # fmt: skip


def _threads(console: Console, found: Document) -> None:
    print_table(
        console, "threads",
        ["thread", "allocations", "frees", "slow calls", "in slow paths", "cached", "samples", "mean wall", "mean cpu",
         "mean wait"],
        (
            [
                thread_name(row), count(row, "allocations"), count(row, "frees"),
                f"{row.get('slow_allocations', 0) + row.get('slow_frees', 0):,}",
                duration(row.get("slow_wall_ns_sum")), size(row, "cached_bytes"), count(row, "alloc_samples"),
                *(duration(row["derived"][name]) for name in ("mean_wall_ns", "mean_cpu_ns", "mean_wait_ns")),
            ]
            for row in sorted(found["threads"], key=lambda row: -row.get("allocations", 0))
        ),
    )  # fmt: skip


def thread_name(row: Document) -> str:
    return str(row["thread_id"]) if row["thread_id"] else f"others ({row.get('alive', 0)} alive)"


# ---- samples ---------------------------------------------------------------------------------------------------------


def print_samples(console: Console, samples: list[Sample], found: Document | None) -> None:
    """`found` is the document they are from; samples of a CSV file have none."""
    if found:
        _sampled_threads(console, found)
        _repairs(console, found)
    print_table(
        console, f"{len(samples)} newest samples" if found else f"{len(samples)} samples",
        ["", "samples", "mean", "p50", "p90", "p99", "p99.9", "longest"],
        (
            [
                name, f"{len(values):,}", time_text(sum(values) / len(values)),
                *(time_text(percentile(values, share)) for share in (0.5, 0.9, 0.99, 0.999)), time_text(max(values)),
            ]
            for name, values in (
                ("wall", [sample.wall_ns for sample in samples]),
                ("cpu", [sample.cpu_ns for sample in samples if sample.cpu_ns is not None]),
                ("wait", [sample.wait_ns for sample in samples if sample.wait_ns is not None]),
                ("lock wait", [sample.lock_wait_ns for sample in samples if sample.lock_wait_ns]),
            )
            if values
        ),
    )  # fmt: skip
    _causes(console, samples)
    _by_label(console, samples)


def _causes(console: Console, samples: list[Sample]) -> None:
    found = causes(samples)
    times = {cause: [sample.wall_ns for sample in samples if cause_of(sample) is cause] for cause in found}
    whole = sum(sample.wall_ns for sample in samples)
    print_table(
        console, "what the time was spent on",
        ["cause", "what that is", "samples", "share of samples", "share of time", "p50", "longest"],
        (
            [
                cause.value, MEANINGS[cause], f"{len(values):,}", share_text(len(values) / len(samples)),
                share_text(sum(values) / whole if whole else None), time_text(percentile(values, 0.5)),
                time_text(max(values)),
            ]
            for cause, values in sorted(times.items(), key=lambda item: -sum(item[1]))
        ), left=2,
    )  # fmt: skip


def _by_label(console: Console, samples: list[Sample]) -> None:
    names = sorted({sample.label for sample in samples} - {""})
    groups = [(name, [sample for sample in samples if sample.label == name]) for name in names]
    print_table(
        console, "by the label of the epoch",
        ["label", "samples", "p50", "p99", "longest", "most time in"],
        (
            [
                name, f"{len(own):,}",
                *(time_text(percentile([s.wall_ns for s in own], share)) for share in (0.5, 0.99)),
                time_text(max(s.wall_ns for s in own)), _heaviest(own).value,
            ]
            for name, own in groups
        ),
    )  # fmt: skip


def _heaviest(samples: list[Sample]) -> Cause:
    times: dict[Cause, int] = {}
    for sample in samples:
        times[cause_of(sample)] = times.get(cause_of(sample), 0) + sample.wall_ns
    return max(times, key=lambda cause: times[cause])


def _sampled_threads(console: Console, found: Document) -> None:
    def verdict(row: Document) -> str:
        mean = row["derived"]
        if mean["mean_wait_ns"] is None:
            return "thread time not sampled yet"
        if mean["mean_wait_ns"] > mean["mean_cpu_ns"]:
            return "waiting: scheduler or locks"
        return "working"

    print_table(
        console, "threads, since each began",
        ["thread", "samples", "mean wall", "mean cpu", "mean wait", "longest wall", "longest cpu", "longest wait",
         "mostly"],
        (
            [
                thread_name(row), count(row, "alloc_samples"),
                *(duration(row["derived"][name]) for name in ("mean_wall_ns", "mean_cpu_ns", "mean_wait_ns")),
                *(duration(row.get(f"alloc_{name}_ns_max")) for name in ("wall", "cpu", "wait")), verdict(row),
            ]
            for row in sorted(found["threads"], key=lambda row: -row.get("alloc_samples", 0))
            if row.get("alloc_samples")
        ),
    )  # fmt: skip


def _repairs(console: Console, found: Document) -> None:
    reasons = ("remote", "adopt", "purge", "other")
    print_table(
        console, "repairs: allocations before which something had to be mended",
        ["thread", "repairs", "mean", "longest", *reasons],
        (
            [
                thread_name(row), count(row, "repair_count"), duration(row["derived"]["mean_repair_ns"]),
                duration(row.get("repair_wall_ns_max")), *(count(row, f"repair_reason_{name}") for name in reasons),
            ]
            for row in found["threads"] if row.get("repair_count")
        ),
    )  # fmt: skip
