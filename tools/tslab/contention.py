"""The contention tables of the earlier system, made again for this allocator and set beside its published figures.

The workload is the same: every thread allocates and frees 128 bytes, 100,000 pairs. The events are not all the same;
docs/observability.md, "Names from earlier work", says what each name counts here.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tslab import machine
from tslab.arms import Arm
from tslab.errors import LabError
from tslab.project import Project
from tslab.runner import Program, run

SOURCE = (
    "temporal-slab, “Phase 2.2 Contention Metrics: Empirical Results”, 2026-02-08, tables 1 to 4 "
    "(WSL2, Linux 6.6.87, x86_64; its `benchmark_threads`)"
)
THREADS = (1, 2, 4, 8, 16)
SIZE = 128
PAIRS = 100_000
RUNS = 5

Figures = dict[str, int]  # of the class, at a process's end


@dataclass(frozen=True)
class Column:
    """`of` counts; with `per` it is a rate."""

    title: str
    of: str
    per: tuple[str, ...] = ()
    percent: bool = False

    def value(self, figures: Figures) -> float | None:
        """None for a rate of nothing."""
        if not self.per:
            return figures[self.of]
        base = sum(figures[name] for name in self.per)
        return figures[self.of] / base if base else None


@dataclass(frozen=True)
class Published:
    """A table of the document: its figures as they stand there, a row for each number of threads."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


_LOCKS = ("lock_fast_acquire", "lock_contended")
TABLES = (
    Published(
        "Table 1: locks taken for the class",
        (
            Column("at once", "lock_fast_acquire"),
            Column("contended", "lock_contended"),
            Column("rate", "lock_contended", _LOCKS, percent=True),
        ),
        (
            ("12,902", "0", "0.00 %"),
            ("33,229 … 34,393", "2,551 … 4,225", "4.5 … 10.9 %"),
            ("109,389 … 128,227", "15,943 … 17,364", "12.1 … 12.9 %"),
            ("242,332 … 279,296", "66,774 … 69,613", "19.3 … 21.7 %"),
            ("861,877 … 1,415,378", "217,602 … 349,440", "18.3 … 20.2 %"),
        ),
    ),
    Published(
        "Table 2: CAS by malloc",
        (
            Column("attempts", "slab_take_attempts"),
            Column("retries", "slab_take_cas_retries"),
            Column("retries an allocation", "slab_take_cas_retries", ("allocations",)),
        ),
        (
            ("100,000", "0", "0.0000"),
            ("200,000", "529 … 895", "0.0026 … 0.0045"),
            ("400,000", "2,926 … 3,981", "0.0073 … 0.0100"),
            ("800,000", "14,159 … 15,718", "0.0177 … 0.0196"),
            ("1,600,000", "39,873 … 68,875", "0.0249 … 0.0430"),
        ),
    ),
    Published(
        "Table 3: CAS by free",
        (
            Column("attempts", "slab_push_attempts"),
            Column("retries", "slab_push_cas_retries"),
            Column("retries a free", "slab_push_cas_retries", ("frees",)),
        ),
        (
            ("100,000", "0", "0.0000"),
            ("200,000", "0 … 46", "0.0000 … 0.0002"),
            ("400,000", "0", "0.0000"),
            ("800,000", "1 … 5", "0.0000"),
            ("1,600,000", "2 … 9", "0.0000"),
        ),
    ),
    Published(
        "Table 4: taking over a partial slab",
        (
            Column("attempts", "slab_adopt_attempts"),
            Column("failures", "slab_adopt_failures"),
            Column("rate", "slab_adopt_failures", ("slab_adopt_attempts",), percent=True),
        ),
        (
            ("3,225", "3,225", "100.00 %"),
            ("6,838 … 7,653", "6,671 … 6,972", "89.4 … 94.5 %"),
            ("13,917 … 16,767", "13,917 … 14,558", "86.8 … 89.0 %"),
            ("29,723 … 37,349", "29,723 … 30,865", "81.8 … 83.3 %"),
            ("61,900 … 88,655", "61,900 … 71,247", "80.4 … 81.4 %"),
        ),
    ),
)
_NAMES = sorted({name for t in TABLES for c in t.columns for name in (c.of, *c.per)} | {"object_size"})


# ---- measuring -------------------------------------------------------------------------------------------------------


def measure(
    place: Project, runs: int, pairs: int, progress: Callable[[str], None] = lambda what: None
) -> dict[int, list[Figures]]:
    """By number of threads: the figures of each run. Runs of all numbers take turns."""
    if not place.library.exists() or not (place.workloads / "threads").exists():
        how = f"./dev build {place.preset} --all"
        raise LabError(f"{place.build} lacks the library or the workload threads: {how}")
    found: dict[int, list[Figures]] = {threads: [] for threads in THREADS}
    for number in range(runs):
        for threads in THREADS:
            progress(f"run {number + 1} of {runs}, {threads} threads")
            found[threads].append(_once(place, threads, pairs))
    return found


def _once(place: Project, threads: int, pairs: int) -> Figures:
    command = (f"--threads={threads}", f"--pairs={pairs}", f"--size={SIZE}", "--repeats=1", "--rounds=1")
    with tempfile.TemporaryDirectory(prefix="tslab-contention-") as folder:
        file = Path(folder) / "figures.json"
        arm = Arm("tslab", place.library.resolve(), {"TSLAB_STATS_AT_EXIT": str(file)})
        run(Program((str(place.workloads / "threads"), *command), is_workload=True), arm)
        try:
            return figures_of(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise LabError(f"{place.library} wrote no figures at exit ({error.strerror}): build it anew") from error


def figures_of(text: str) -> Figures:
    """The class's row in what the library wrote."""
    try:
        row = next(row for row in json.loads(text)["classes"] if row["object_size"] == SIZE)
        return {name: int(row[name]) for name in _NAMES}
    except (StopIteration, KeyError, TypeError, ValueError) as error:
        raise LabError(
            f"the library's figures lack a class of {SIZE} bytes with {', '.join(_NAMES)}: build library and tools anew"
        ) from error


# ---- Markdown --------------------------------------------------------------------------------------------------------


def markdown(found: dict[int, list[Figures]], pairs: int, root: Path) -> str:
    facts = machine.facts(root)
    runs = len(next(iter(found.values())))
    lines = [
        f"Generated by `tslab contention`: {facts['cpu']}, {facts['cores']} cores, {facts['kernel']}, "
        f"commit {facts['commit']}; `threads --pairs={pairs} --size={SIZE}`, least … most of {runs} runs. More threads "
        f"than cores take turns. A run does its pairs with one thread, with all, and with all timed, each after a "
        f"tenth to warm up, and at last holds 10,000 blocks, from which most of what is counted here comes. "
        f"Published: {SOURCE}.",
    ]
    for table in TABLES:
        head = ["threads", *(c.title for c in table.columns), *(f"{c.title}, published" for c in table.columns)]
        lines += ["", f"**{table.title}**", "", _line(head), "|" + "---:|" * len(head)]
        for (threads, runs_here), published in zip(found.items(), table.rows, strict=True):
            lines.append(_line([str(threads), *(spread(c, runs_here) for c in table.columns), *published]))
    return "\n".join(lines) + "\n"


def spread(column: Column, runs: Iterable[Figures]) -> str:
    """`least … most` of all runs, once where they print the same; a dash for rates of nothing."""
    values = [value for value in map(column.value, runs) if value is not None]
    if not values:
        return "–"
    least, most = (_number(column, value) for value in (min(values), max(values)))
    return least if least == most else f"{least} … {most}"


def _number(column: Column, value: float) -> str:
    if column.percent:
        return f"{100 * value:.2f} %"
    return f"{value:.4f}" if column.per else f"{value:,.0f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
