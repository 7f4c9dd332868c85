"""The figures of every process as Prometheus metrics: one table of names, and the families made from it.

Names follow the temporal-slab papers where the event exists (docs/prometheus.md lists them), so that their PromQL works
as it is written. `pid` and `program` name a process. An epoch's id is never a label: epochs are summed by label and
state. A program may name any number of labels, so those that hold least are summed under `(other)`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from tslab.scrape import Reading, Scraper
from tslab.segment import Row

NAMESPACE = "temporal_slab"
MOST_LABELS = 32
OTHER = "(other)"
STATES = {1: "ACTIVE", 2: "CLOSING"}
PROCESS_LABELS = ("pid", "program")
# Histograms keep each power of 16 from 64 ns to 67 ms of the library's finer bounds: each bound is a series.
BOUNDS_NS = frozenset(1 << n for n in range(6, 27, 4))


def _of(name: str) -> Callable[[Row], float]:
    return lambda row: row.get(name, 0)


def _ns(name: str) -> Callable[[Row], float]:
    return lambda row: row.get(name, 0) / 1e9


@dataclass(frozen=True)
class Figure:
    """One family: its name without the namespace, its help, and its value for a row."""

    name: str
    help: str
    value: Callable[[Row], float]

    @property
    def counter(self) -> bool:
        return self.name.endswith("_total")


TOTALS = (
    Figure("live_bytes", "usable bytes of blocks in use", _of("live_bytes")),
    Figure("live_blocks", "blocks in use", _of("live_blocks")),
    Figure("in_use_bytes", "memory of slabs, chunks, large blocks, tables and the reserve", _of("in_use_bytes")),
    Figure("retained_bytes", "memory that the allocator holds beyond live blocks: free in slabs, cached, not yet given "
           "back", lambda r: max(0, r.get("in_use_bytes", 0) + r.get("free_dirty_bytes", 0) - r.get("live_bytes", 0))),
    Figure("free_dirty_bytes", "free memory not yet given back", _of("free_dirty_bytes")),
    Figure("cached_bytes", "free blocks in lists of threads", _of("cached_bytes")),
    Figure("reserve_bytes", "memory kept ready for the next epochs", _of("reserve_bytes")),
    Figure("committed_bytes", "memory made writable since the start", _of("committed_bytes")),
    Figure("threads", "threads that have allocated, and live", _of("threads")),
    Figure("allocations_total", "blocks handed out", _of("allocations")),
    Figure("frees_total", "blocks taken back", _of("frees")),
    Figure("slow_path_hits_total", "allocations that the fast path did not serve", _of("slow_allocations")),
    Figure("new_slab_count_total", "slabs made", _of("slabs_born")),
    Figure("slabs_retired_total", "slabs given up when they were empty", _of("slabs_retired")),
    Figure("madvise_calls_total", "system calls that gave memory back", _of("purge_calls")),
    Figure("madvise_bytes_total", "bytes given back to the operating system", _of("returned_bytes")),
    Figure("madvise_failures_total", "calls to give memory back that the kernel refused", _of("purge_failures")),
    Figure("misuses_total", "misuses of malloc reported and survived", _of("misuses")),
    Figure("scope_misuses_total", "failed calls on scopes and epochs", _of("scope_misuses")),
    Figure("epochs_open", "epochs open now, epoch 0 not counted", _of("epochs_open")),
    Figure("closing_epoch_count", "epochs closed that wait for a block, child or thread", _of("epochs_closing")),
    Figure("epochs_opened_total", "epochs opened", _of("epochs_opened")),
    Figure("epochs_ended_total", "epochs ended", _of("epochs_ended")),
    Figure("epoch_recycled_bytes_total", "kept ready for the next epoch, by ends of epochs", _of("bytes_recycled")),
    Figure("epoch_madvise_bytes_total", "given back to the operating system, by ends of epochs", _of("bytes_returned")),
)  # fmt: skip
CLASSES = (
    Figure("class_lock_acquisitions_total", "locks taken for a class",
           lambda r: r.get("lock_fast_acquire", 0) + r.get("lock_contended", 0)),
    Figure("class_lock_fast_acquire_total", "locks taken for a class at the first try", _of("lock_fast_acquire")),
    Figure("class_lock_contended_total", "locks taken for a class not at the first try", _of("lock_contended")),
    Figure("class_bitmap_alloc_attempts_total", "takings of a slab's free blocks", _of("slab_take_attempts")),
    Figure("class_bitmap_alloc_cas_retries_total", "CAS that failed there", _of("slab_take_cas_retries")),
    Figure("class_bitmap_free_attempts_total", "pushes of freed blocks to slabs of other threads",
           _of("slab_push_attempts")),
    Figure("class_bitmap_free_cas_retries_total", "CAS that failed there", _of("slab_push_cas_retries")),
    Figure("class_current_partial_cas_attempts_total", "tries to take over a slab that a dead thread left",
           _of("slab_adopt_attempts")),
    Figure("class_current_partial_cas_failures_total", "tries that found another thread at it, or nothing left",
           _of("slab_adopt_failures")),
    Figure("class_slow_path_hits_total", "allocations of a class that the fast path did not serve",
           lambda r: max(0, r.get("allocations", 0) - r.get("from_list", 0))),
    Figure("class_cache_size", "free blocks in lists of threads", _of("cached_blocks")),
    Figure("class_empty_slab_recycled_total", "empty slabs kept ready for the next epoch", _of("slabs_recycled")),
)  # fmt: skip
# Only by class: their sums are figures of the process.
EACH_CLASS = (
    Figure("class_live_bytes", "bytes of blocks in use", _of("live_bytes")),
    Figure("class_slabs", "slabs held", _of("slabs")),
    Figure("class_allocations_total", "blocks handed out", _of("allocations")),
    Figure("class_frees_total", "blocks taken back", _of("frees")),
)
LABELS = (
    Figure("label_live_bytes", "bytes of blocks in use in epochs of a label", _of("live_bytes")),
    Figure("label_committed_bytes", "memory that epochs of a label hold", _of("committed_bytes")),
    Figure("label_open_epochs", "epochs open or closing", _of("open")),
    Figure("label_opened_total", "epochs opened", _of("opened")),
    Figure("label_ended_total", "epochs ended", _of("ended")),
    Figure("label_allocations_total", "blocks handed out", _of("allocations")),
    Figure("label_recycled_bytes_total", "kept ready for the next epoch, by ends", _of("bytes_recycled")),
    Figure("label_madvise_bytes_total", "given back to the operating system, by ends", _of("bytes_returned")),
    Figure("label_refused_total", "allocations that failed for a budget", _of("refused")),
    Figure("label_exempt_scopes_total", "scopes of epoch 0 inside scopes of a label", _of("exempt_scopes")),
    Figure("label_exempt_bytes_total", "allocated in those", _of("exempt_bytes")),
    Figure("slow_epoch_closed_total", "allocations that went to epoch 0 because theirs was closing", _of("diverted")),
    Figure("class_lock_fast_acquire_by_label_total", "locks taken at the first try", _of("lock_fast_acquire")),
    Figure("class_lock_contended_by_label_total", "locks taken not at the first try", _of("lock_contended")),
    Figure("class_bitmap_alloc_cas_retries_by_label_total", "CAS that failed when a slab's free blocks were taken",
           _of("slab_take_cas_retries")),
    Figure("class_bitmap_free_cas_retries_by_label_total", "CAS that failed when freed blocks were pushed",
           _of("slab_push_cas_retries")),
)  # fmt: skip
# By label and state, of the 64 oldest and largest epochs. The age is the oldest one's, the rest are sums.
EPOCHS = (
    Figure("epoch_age_seconds", "age of the oldest epoch of the label in this state", _ns("age_ns")),
    Figure("epoch_rss_bytes", "memory that these epochs hold", _of("committed_bytes")),
    Figure("epoch_live_bytes", "bytes of blocks in use in them", _of("live_bytes")),
    Figure("epoch_refcount", "threads inside", _of("threads_inside")),
    Figure("epoch_reclaimable_slabs", "their slabs without a live block",
           lambda r: max(0, r.get("slabs", 0) - r.get("slabs_pinned", 0))),
    Figure("epochs", "how many they are", _of("count")),
)  # fmt: skip
LOCKS = (
    Figure("lock_acquisitions_total", "locks taken", lambda r: r.get("fast", 0) + r.get("contended", 0)),
    Figure("lock_fast_acquire_total", "locks taken at the first try", _of("fast")),
    Figure("lock_contended_total", "locks taken not at the first try", _of("contended")),
    Figure("lock_wait_time_seconds_total", "time waited for them", _ns("wait_ns")),
    Figure("lock_hold_time_seconds_total", "time held, while TSLAB_LOCK_TIMES=1", _ns("hold_ns")),
)
PATHS = (
    Figure("path_lock_wait_seconds_total", "waiting for locks in calls of this path", _ns("lock_wait_ns_sum")),
    Figure("path_longest_seconds", "the longest call of this path since the start", _ns("wall_ns_max")),
)
PATH_SECONDS = "path_seconds"


_Rows = Callable[[Reading], Iterable[tuple[tuple[str, ...], Row]]]


class Collector:
    """The collector that prometheus-client calls at each scrape."""

    def __init__(self, look: Callable[[], list[Reading]], scraper: Scraper, namespace: str, classes: bool) -> None:
        self._look, self._scraper, self._namespace, self._classes = look, scraper, namespace, classes

    def collect(self) -> Iterator[Metric]:
        readings = [(str(r.pid), r.program, r) for r in self._look()]
        yield from self._families(TOTALS, (), (((pid, program), r.total) for pid, program, r in readings))
        yield from self._own_gauges(readings)
        yield from self._class_families(readings)
        groups: tuple[tuple[tuple[Figure, ...], tuple[str, ...], _Rows], ...] = (
            ((*LABELS,), ("label",), _labels),
            ((*EPOCHS,), ("label", "state"), _epochs),
            ((*LOCKS,), ("lock",), _locks),
            ((*PATHS,), ("path",), _paths),
        )
        for figures, names, rows in groups:
            keyed = [((pid, program, *key), row) for pid, program, r in readings for key, row in rows(r)]
            yield from self._families(figures, names, keyed)
        yield self._histogram(readings)
        yield from self._about_itself(len(readings))

    def _families(
        self, figures: Iterable[Figure], names: tuple[str, ...], keyed: Iterable[tuple[tuple[str, ...], Row]]
    ) -> Iterator[Metric]:
        rows = list(keyed)
        for figure in figures:
            kind = CounterMetricFamily if figure.counter else GaugeMetricFamily
            family = kind(f"{self._namespace}_{figure.name}", figure.help, labels=(*PROCESS_LABELS, *names))
            for key, row in rows:
                family.add_metric(key, figure.value(row))
            yield family

    def _own_gauges(self, readings: list[tuple[str, str, Reading]]) -> Iterator[Metric]:
        resident = GaugeMetricFamily(f"{self._namespace}_rss_bytes", "resident memory", labels=PROCESS_LABELS)
        age = GaugeMetricFamily(f"{self._namespace}_figures_age_seconds", "how old they are", labels=PROCESS_LABELS)
        for pid, program, reading in readings:
            resident.add_metric((pid, program), reading.resident_bytes)
            age.add_metric((pid, program), reading.age_s)
        yield from (resident, age)

    def _class_families(self, readings: list[tuple[str, str, Reading]]) -> Iterator[Metric]:
        if not self._classes:
            sums = [((pid, program), _sum(r.rows.get("class", []))) for pid, program, r in readings]
            yield from self._families(CLASSES, (), sums)
            return
        keyed = [((pid, program, *key), row) for pid, program, r in readings for key, row in _classes(r)]
        yield from self._families((*CLASSES, *EACH_CLASS), ("class", "object_size"), keyed)

    def _histogram(self, readings: list[tuple[str, str, Reading]]) -> Metric:
        family = HistogramMetricFamily(
            f"{self._namespace}_{PATH_SECONDS}", "calls by the path that they took; of fast calls the samples",
            labels=(*PROCESS_LABELS, "path"),
        )  # fmt: skip
        for pid, program, reading in readings:
            for names, row in _paths(reading):
                buckets = _buckets(row.get("buckets", ()), reading.bounds)
                family.add_metric((pid, program, *names), buckets, row.get("wall_ns_sum", 0) / 1e9)
        return family

    def _about_itself(self, processes: int) -> Iterator[Metric]:
        prefix = f"{self._namespace}_exporter"
        yield GaugeMetricFamily(f"{prefix}_processes", "processes read by this scrape", value=processes)
        yield CounterMetricFamily(f"{prefix}_refused_total", "segments not believed", value=self._scraper.refused)
        yield GaugeMetricFamily(
            f"{prefix}_read_cpu_seconds", "processor time of the last look", value=self._scraper.cpu_seconds
        )


def _sum(rows: Iterable[Row]) -> Row:
    """Of the rows of one table, which have the same fields in the same order."""
    every = list(rows)
    columns = zip(*(row.values() for row in every), strict=True)
    return {name: sum(column) for name, column in zip(every[0] if every else (), columns, strict=False)
            if isinstance(column[0], int)}  # fmt: skip


def _grouped(rows: Iterable[tuple[tuple[str, ...], Row]]) -> dict[tuple[str, ...], Row]:
    """A segment may say a name twice, which Prometheus would not take: such rows are added up."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for key, row in rows:
        groups.setdefault(key, []).append(row)
    return {key: own[0] if len(own) == 1 else _sum(own) for key, own in groups.items()}


def _labels(reading: Reading) -> Iterable[tuple[tuple[str, ...], Row]]:
    kept = kept_labels(reading)
    return _grouped(((r["label"] if r["label"] in kept else OTHER,), r) for r in reading.rows.get("label", [])).items()


def kept_labels(reading: Reading) -> frozenset[str]:
    """The labels that have series of their own: those that hold most, and among equals those opened most."""
    rows = sorted(reading.rows.get("label", []), key=lambda r: (r.get("committed_bytes", 0), r.get("opened", 0)))
    return frozenset(row["label"] for row in rows[-MOST_LABELS:])


def _epochs(reading: Reading) -> Iterable[tuple[tuple[str, ...], Row]]:
    kept = kept_labels(reading)
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in reading.rows.get("epoch", []):
        label = row.get("label", "")
        state = STATES.get(row.get("state", 0), "UNKNOWN")
        groups.setdefault((label if label in kept else OTHER, state), []).append(row)
    for key, rows in groups.items():
        yield key, {**_sum(rows), "age_ns": max(row.get("age_ns", 0) for row in rows), "count": len(rows)}


def _locks(reading: Reading) -> Iterable[tuple[tuple[str, ...], Row]]:
    """Returns the locks that were taken; the others would be series of zeros."""
    rows = (row for row in reading.rows.get("lock", []) if row.get("fast", 0) or row.get("contended", 0))
    return _grouped(((row["name"],), row) for row in rows).items()


def _paths(reading: Reading) -> Iterable[tuple[tuple[str, ...], Row]]:
    seen: dict[tuple[str, ...], Row] = {}
    for row in reading.rows.get("path", []):
        if row.get("entries", 0):
            seen.setdefault((row["name"],), row)
    return seen.items()


def _classes(reading: Reading) -> Iterable[tuple[tuple[str, ...], Row]]:
    """Classes that have served something, by their place in the table and their size."""
    for place, row in enumerate(reading.rows.get("class", [])):
        if row.get("allocations", 0):
            yield (str(place), str(row["object_size"])), row


def _buckets(counts: tuple[int, ...], bounds: tuple[int, ...]) -> list[tuple[str, float]]:
    seen = list(itertools.accumulate(counts))
    found: list[tuple[str, float]] = [(name, seen[place]) for name, place in _kept_bounds(bounds)]
    found.append(("+Inf", seen[-1] if seen else 0))
    return found


@lru_cache(maxsize=32)
def _kept_bounds(bounds: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
    return tuple((repr(upper / 1e9), place) for place, upper in enumerate(bounds) if upper in BOUNDS_NS)
