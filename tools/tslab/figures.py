"""The figures of a process as one document, the JSON of `tslab stats --json`, from any source.

Every reader (text, JSON, summary, difference, samples) works on this document. Its rows are the segment's own, under
the library's own names. The reader puts shares, rates and percentiles, which it computes, into objects named `derived`.
"""

from __future__ import annotations

import json
import math
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tslab import process as processes
from tslab import unpublished
from tslab.errors import LabError, Unreadable
from tslab.estimate import estimate, reach_of
from tslab.metrics import KEYS, PROCESS, known_fields, section
from tslab.process import Process
from tslab.segment import (
    HISTOGRAM,
    MAGIC,
    PROFILE_REQUEST_AT,
    TEXT,
    WORD,
    Fetch,
    Layout,
    NothingYet,
    Snapshot,
    exactly,
    of_bytes,
    of_descriptor,
    printable,
    read_earlier,
    read_layout,
    read_snapshot,
    saved,
    with_value,
)

SCHEMA_VERSION = 1
# 0 says that nobody asked the system, as in a segment that its process alone has written.
RESIDENT = "resident_bytes"
Document = dict[str, Any]
T = TypeVar("T")

_MOST_JSON = 64 << 20
_NEW_NS = 10**9  # a process with work publishes more often
_TRIES_WHILE_MADE = 20
_TRIES_FOR_EARLIER = 4


class Source:
    """A source of figures: a process or a file. It can be read again and again."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pid = _pid(text)
        if self.pid is None and not _exists(text):
            raise LabError(f"'{text:.100}' is neither the number of a process nor a file")

    def read(self) -> Document:
        return self._read()[0]

    def read_and_save(self, path: Path) -> Document:
        document, raw = self._read()
        try:
            path.write_bytes(raw)
        except OSError as error:
            raise LabError(f"cannot write {path}: {error.strerror}") from error
        return document

    def layout(self) -> Layout:
        """Returns the source's description of its fields, which a JSON file lacks."""
        if self.pid is not None:
            pid = self.pid
            return _once_made(pid, lambda: _layout_of(pid))
        raw = _file(Path(self.text))
        return _named(self.text, lambda: read_layout(of_bytes(raw), len(raw)))

    def _read(self) -> tuple[Document, bytes]:
        if self.pid is not None:
            return read_process(self.pid)
        raw = _file(Path(self.text))
        if raw.lstrip()[:1] == b"{":
            return _of_json(self.text, raw), raw
        if not raw.startswith(MAGIC):
            raise Unreadable(f"{self.text} is neither a saved segment nor the JSON of tslab stats")
        layout, snapshot = _named(self.text, lambda: _both(of_bytes(raw), len(raw)))
        return document(layout, snapshot, None), saved(of_bytes(raw), layout, snapshot)


def read_process(pid: int) -> tuple[Document, bytes]:
    return _once_made(pid, lambda: _read_once(pid))


def _once_made(pid: int, read: Callable[[], T]) -> T:
    """Reads again while the process is just making its segment."""
    left = _TRIES_WHILE_MADE
    while True:
        left -= 1
        try:
            return read()
        except NothingYet as error:
            if left == 0 or processes.look(pid) is None:
                raise NothingYet(f"{error}: look again in a second") from error
        time.sleep(0.01)


def _layout_of(pid: int) -> Layout:
    with _segment_of(pid) as (fetch, facts, _, path):
        return _named(path, lambda: read_layout(fetch, facts.st_size))


def _read_once(pid: int) -> tuple[Document, bytes]:
    with _segment_of(pid) as (fetch, facts, found, path):
        layout, snapshot = _named(path, lambda: _both(fetch, facts.st_size))
        if found:
            _refuse_another_s(found, layout, snapshot, path)
            _refuse_that_before(found, snapshot, path, facts.st_ino)
        if found:  # the library publishes what it knows without a call; a saved copy has what we ask for it
            snapshot = with_value(layout, snapshot, PROCESS, RESIDENT, processes.resident_bytes(pid))
        return document(layout, snapshot, found, pid), saved(fetch, layout, snapshot)


def _refuse_another_s(process: Process, layout: Layout, snapshot: Snapshot, path: str) -> None:
    other = processes.why_not_its(process, layout.pid, layout.pid_namespace, snapshot.monotonic_ns)
    if other and layout.pid != process.inner_pid:
        raise Unreadable(f"{path} {other}")
    if other:
        raise Unreadable(f"{path} {other}; {unpublished.why(process, path)}")


def _refuse_that_before(process: Process, snapshot: Snapshot, path: str, inode: int) -> None:
    """A process that publishes is not asked for its memory map each time: that may be long."""
    is_new = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - snapshot.monotonic_ns < _NEW_NS
    if not is_new and processes.has_executed_another(process, inode):
        raise Unreadable(
            f"{path} was left by the program that process {process.pid} ran before it executed this one; "
            f"{unpublished.why(process, path)}"
        )


def read_pair(pid: int) -> tuple[Document, Document | None]:
    """The figures of a process, and those that it published last but one: a rate without a wait.

    The earlier ones are None where there are none, and where the process is just writing over them.
    """
    for attempt in range(_TRIES_FOR_EARLIER):
        if attempt:
            time.sleep(0.005)
        found, _ = read_process(pid)
        with _segment_of(pid) as (fetch, facts, _, path):
            size = facts.st_size
            layout = _named(path, lambda fetch=fetch, size=size: read_layout(fetch, size))  # type: ignore[misc]
            earlier = read_earlier(fetch, layout, found["snapshot"])
        if earlier or found["snapshot"] < 2:
            break
    return found, document(layout, earlier, None, pid) if earlier else None


def _both(fetch: Fetch, size: int) -> tuple[Layout, Snapshot]:
    layout = read_layout(fetch, size)
    return layout, read_snapshot(fetch, layout)


def _named(where: str, read: Callable[[], T]) -> T:
    """Adds to an error of the format the place, and what to do."""
    try:
        return read()
    except NothingYet as error:
        raise NothingYet(f"{where}: {error}") from error
    except Unreadable as error:
        raise Unreadable(
            f"{where} is damaged or was made by something else, and none of it is believed: {error}. "
            f"Look again; if it stays so, start the process again"
        ) from error


def request_profile(pid: int, interval_bytes: int) -> None:
    """Asks a living process to sample its heap at another interval, from when it next publishes.

    0 pauses, and PROFILE_AUTO lets the process choose.
    """
    with _opened(pid, os.O_RDWR) as (descriptor, process, path):
        fetch, facts = of_descriptor(descriptor), os.fstat(descriptor)
        if process is None or process.state in processes.ENDED:
            raise LabError(f"process {pid} has ended")
        layout, snapshot = _named(path, lambda: _both(fetch, facts.st_size))
        _refuse_another_s(process, layout, snapshot, path)
        _refuse_that_before(process, snapshot, path, facts.st_ino)
        if not layout.takes_requests:
            raise LabError(f"the library of process {pid} ({layout.library}) takes no interval from outside: {path}")
        (last,) = WORD.unpack(exactly(fetch, PROFILE_REQUEST_AT, WORD.size))
        count = ((last >> 32) + 1) % 2**32
        os.pwrite(descriptor, WORD.pack(count << 32 | interval_bytes), PROFILE_REQUEST_AT)


@contextmanager
def _segment_of(pid: int) -> Iterator[tuple[Fetch, os.stat_result, Process | None, str]]:
    with _opened(pid, os.O_RDONLY) as (descriptor, found, path):
        yield of_descriptor(descriptor), os.fstat(descriptor), found, path


@contextmanager
def _opened(pid: int, mode: int) -> Iterator[tuple[int, Process | None, str]]:
    found = processes.look(pid)
    path = processes.segment_path(found) if found else f"{processes.DIRECTORY}/tslab.{pid}"
    owners = found.users if found else frozenset()
    try:
        descriptor = processes.open_segment(path, owners, mode)
    except OSError as error:
        if found:
            raise Unreadable(unpublished.why(found, path)) from error
        raise Unreadable(f"there is no process {pid}, and none of that number left figures behind ({path})") from error
    try:
        yield descriptor, found, path
    finally:
        os.close(descriptor)


def _pid(text: str) -> int | None:
    if not (text.isascii() and text.isdigit()):
        return None
    if not 0 < int(text[:20]) < 2**22 or len(text) > 7:
        raise LabError(f"'{text}' is no process number: they go from 1 to {2**22 - 1}")
    return int(text)


def _exists(text: str) -> bool:
    try:
        return text != "" and Path(text).exists()
    except OSError:  # a name too long
        return False


def _file(path: Path) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise Unreadable(f"{path} is no regular file")
        with path.open("rb") as stream:
            facts = os.fstat(stream.fileno())
            if facts.st_size > _MOST_JSON:
                raise Unreadable(f"{path} has {facts.st_size} bytes: too much for figures of a process")
            return stream.read(_MOST_JSON)
    except OSError as error:
        raise Unreadable(f"cannot read {path}: {error.strerror}") from error


def _of_json(name: str, raw: bytes) -> Document:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{name} is no JSON that can be read: {error}") from error
    if not isinstance(found, dict) or "schema_version" not in found or not isinstance(found.get(PROCESS), dict):
        raise Unreadable(f"{name} is JSON, but not of tslab stats: schema_version and process are missing")
    if found["schema_version"] != SCHEMA_VERSION:
        raise Unreadable(
            f"{name} is of schema version {found['schema_version']!r:.20}, this tslab reads {SCHEMA_VERSION}"
        )
    _check_shape(name, found)
    # As of a saved segment: the age of figures in a file is counted to now.
    age = max(0, time.time_ns() - found["timestamp_ns"])
    found = {**_printable(found), "state": processes.FILE, "age_ns": age}
    derive(found)
    return found


def _check_shape(name: str, found: Document) -> None:
    """Known names have what their kind says; unknown ones may hold anything, and are only passed on."""
    for key, number in found.items():
        if key in ("pid", "timestamp_ns", "monotonic_ns", "age_ns") and not _is_count(number):
            raise Unreadable(f"{name}: {key} is {number!r:.40}, which is no count")
    for key in ("pid", "timestamp_ns"):
        if key not in found:
            raise Unreadable(f"{name}: {key} is missing")
    for name_of_section, key in KEYS.items():
        rows = found.setdefault(name_of_section, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) and key in row for row in rows):
            raise Unreadable(f"{name}: {name_of_section} is not a list of rows with a {key}")
    for section_name in (PROCESS, *KEYS):
        known = known_fields().get(section_name, {})
        rows = [found[PROCESS]] if section_name == PROCESS else found[section_name]
        for row in rows:
            for field, value in row.items():
                if field in known and not _is_of(known[field].kind, value):
                    raise Unreadable(
                        f"{name}: {field} in {section_name} is {value!r:.40}, which is no {known[field].kind}"
                    )


def _is_of(kind: str, value: object) -> bool:
    if kind == TEXT:
        return isinstance(value, str)
    if kind != HISTOGRAM:
        return _is_count(value)
    return isinstance(value, list) and all(
        isinstance(bucket, dict)
        and _is_count(bucket.get("count"))
        and (bucket.get("le_ns", "") is None or _is_count(bucket.get("le_ns")))
        for bucket in value
    )


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return {name: _printable(item) for name, item in value.items()} if isinstance(value, dict) else value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64


# ---- the document ----------------------------------------------------------------------------------------------------


def document(layout: Layout, snapshot: Snapshot, process: Process | None, pid: int = 0) -> Document:
    """`pid` is the number by which we know the process; 0 for a saved file."""
    if process:
        age = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - snapshot.monotonic_ns
    else:
        age = time.time_ns() - snapshot.realtime_ns
    result: Document = {
        "schema_version": SCHEMA_VERSION,
        "pid": pid or layout.pid,
        "timestamp_ns": snapshot.realtime_ns,
        "age_ns": max(0, age),
        "library": layout.library,
        "command": process.command if process else "",
        "state": process.state if process else processes.GONE if pid else processes.FILE,
        "started_ns": layout.started_realtime_ns,
        "monotonic_ns": snapshot.monotonic_ns,
        "gather_ns": snapshot.gather_ns,
        "snapshot": snapshot.number,
        PROCESS: {},
        **{name: [] for name in KEYS},
    }
    check_layout(layout, result)
    for table in layout.tables:
        rows = snapshot.rows[table.name]
        if table.name != PROCESS:
            result[section(table.name)] = rows
        elif rows:
            result[PROCESS] = rows[0]
    derive(result)
    return result


def check_layout(layout: Layout, known: Document) -> None:
    """A field with a known name must have the known form. Unknown fields are passed on as they are."""
    for table in layout.tables:
        name = section(table.name)
        if name != table.name and name not in KEYS and name in known:
            raise Unreadable(f"a table is named {table.name}, and its rows would take the place of {name}")
        fields = {field.name: field for field in table.fields}
        for other in known_fields().get(name, {}).values():
            kind = fields[other.name].kind if other.name in fields else other.kind
            if kind != other.kind and {kind, other.kind} & {TEXT, HISTOGRAM}:
                raise Unreadable(f"{other.name} of table {table.name} is a {kind}, not a {other.kind}")
        if name in KEYS and KEYS[name] not in fields:
            raise Unreadable(f"table {table.name} has no field {KEYS[name]}")


def derive(found: Document) -> None:
    """Adds the values that follow from the figures. A share of nothing is null, never 0."""
    total = found[PROCESS]
    allocations = total.get("allocations", 0)
    total["derived"] = {
        "slow_share": ratio(total.get("slow_allocations"), allocations),
        "requested_relative_error": ratio(total.get("requested_error"), total.get("requested_bytes")),
        "live_share_of_in_use": ratio(total.get("live_bytes"), total.get("in_use_bytes")),
        "lock_contention_rate": ratio(
            sum(row.get("contended", 0) for row in found["locks"]),
            sum(row.get("contended", 0) + row.get("fast", 0) for row in found["locks"]),
        ),
    }
    for row in found["classes"]:
        row["derived"] = {
            "slow_share": ratio(row.get("allocations", 0) - row.get("from_list", 0), row.get("allocations")),
            **_contention(row),
            "bitmap_alloc_retry_rate": ratio(row.get("slab_take_cas_retries"), row.get("slab_take_attempts")),
            "bitmap_free_retry_rate": ratio(row.get("slab_push_cas_retries"), row.get("slab_push_attempts")),
            "current_partial_failure_rate": ratio(row.get("slab_adopt_failures"), row.get("slab_adopt_attempts")),
            **_requested(row),
        }
    for row in found["paths"]:
        row["derived"] = {
            "mean_ns": ratio(row.get("wall_ns_sum"), row.get("entries")),
            "p50_ns": bucket_percentile(row, 0.5),
            "p99_ns": bucket_percentile(row, 0.99),
            "p999_ns": bucket_percentile(row, 0.999),
            "mean_cpu_ns": ratio(row.get("cpu_ns_sum"), row.get("cpu_samples")),
            "mean_wait_ns": ratio(row.get("wait_ns_sum"), row.get("cpu_samples")),
            "lock_wait_share": ratio(row.get("lock_wait_ns_sum"), row.get("wall_ns_sum")),
        }
    for row in found["threads"]:
        row["derived"] = {
            "mean_wall_ns": ratio(row.get("alloc_wall_ns_sum"), row.get("alloc_samples")),
            "mean_cpu_ns": ratio(row.get("alloc_cpu_ns_sum"), row.get("alloc_cpu_samples")),
            "mean_wait_ns": ratio(row.get("alloc_wait_ns_sum"), row.get("alloc_cpu_samples")),
            "mean_repair_ns": ratio(row.get("repair_wall_ns_sum"), row.get("repair_count")),
        }
    for row in found["labels"]:
        row["derived"] = {
            **_contention(row),
            "slow_share": ratio(row.get("slow_allocations"), row.get("allocations")),
            "mean_wall_ns": ratio(row.get("sampled_wall_ns_sum"), row.get("samples")),
            "mean_cpu_ns": ratio(row.get("cpu_ns_sum"), row.get("cpu_samples")),
            "mean_wait_ns": ratio(row.get("wait_ns_sum"), row.get("cpu_samples")),
        }
    for row in found["epochs"]:
        row["derived"] = {"live_share": ratio(row.get("live_bytes"), row.get("committed_bytes"))}
    reaches: dict[int, float] = {}
    for row in found["sites"]:
        allocated, error = row.get("allocated_bytes"), row.get("allocated_error_bytes")
        if allocated is not None and error is not None:
            reaches[row["site"]] = reach_of(allocated, error)
        reach = reaches.get(row["site"])
        row["derived"] = _ends("live", row, reach) | _ends("allocated", row, reach, "allocated_error_bytes")
    for row in found["holders"]:
        row["derived"] = _ends("live", row, reaches.get(row["site"]))
    for row in found["locks"]:
        taken = row.get("fast", 0) + row.get("contended", 0)
        row["derived"] = {
            "contention_rate": ratio(row.get("contended"), taken),
            "mean_wait_ns": ratio(row.get("wait_ns"), row.get("contended")),
        }


def _ends(name: str, row: Document, reach: float | None, error_name: str = "error_bytes") -> Document:
    """The interval in which the true figure lies in 95 of 100 cases."""
    value, error = row.get(f"{name}_bytes"), row.get(error_name)
    if value is None or error is None or (value == 0 and reach is None):
        return {}
    found = estimate(value, error, reach or 0.0)
    return {f"{name}_least_bytes": round(found.least), f"{name}_most_bytes": round(found.most)}


def ratio(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None


def _contention(row: Document) -> Document:
    contended = row.get("lock_contended")
    taken = None if contended is None else contended + row.get("lock_fast_acquire", 0)
    return {"lock_contention_rate": ratio(contended, taken)}


def _requested(row: Document) -> Document:
    """Returns the mean of the requested bytes and its standard error, from the samples of the class."""
    n, total, squares = (
        row.get(f"{name}", 0) for name in ("samples", "sampled_requested_bytes", "sampled_requested_squares")
    )
    mean = ratio(total, n)
    error = None
    if mean is not None and n > 1:
        error = math.sqrt(max(0.0, squares / n - mean * mean) / (n - 1))
    return {"mean_requested_bytes": mean, "mean_requested_error": error}


def bucket_percentile(row: Document, share: float) -> int | None:
    """Returns the time that `share` of the entries did not exceed: the bucket's bound, or the longest entry if that is
    less."""
    buckets = row.get("buckets") or []
    wanted = share * sum(bucket["count"] for bucket in buckets)
    longest = row.get("wall_ns_max", 0)
    seen = 0
    for bucket in buckets:
        seen += bucket["count"]
        if bucket["count"] and seen >= wanted:
            upper = bucket["le_ns"]
            if upper is None:
                return int(longest)
            return int(min(upper, longest)) if longest else int(upper)
    return None
