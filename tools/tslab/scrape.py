"""One look at every process under the library, made cheap enough to repeat for ever.

A scrape reads six tables of each process, not its samples and threads, and checks a layout once for all processes whose
library describes its segment by the same bytes. From one look to the next it keeps the headers and layouts of the
processes that it read. A segment may come from any process: one that fails a check is refused and counted, and the
others are still read.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from tslab import process as processes
from tslab import served
from tslab.columns import Columns
from tslab.errors import Unreadable
from tslab.figures import check_layout
from tslab.metrics import PROCESS
from tslab.process import Process
from tslab.segment import HEADER, MOST_BYTES, Fetch, NothingYet, Row, of_descriptor, read_layout

TABLES = frozenset({PROCESS, "class", "path", "label", "epoch", "lock"})
_MOST_LAYOUTS = 32
# A writer needs microseconds a second; a segment that changes under five looks is not one of the library's.
_ATTEMPTS = 5
# The words of a header that differ between processes of one library: pid, namespace, start and the latest snapshot.
_PID_AT, _LATEST_AT = 24, HEADER.size - 128 - 8
# The identity of a segment that was checked, and how to read it.
_Known = tuple[tuple[Any, ...], bytes, Columns]


@dataclass(frozen=True)
class Reading:
    """The figures of one process; `rows` by the table's name in the segment."""

    pid: int
    program: str
    library: str
    resident_bytes: int
    age_s: float
    rows: dict[str, list[Row]]
    bounds: tuple[int, ...]  # of the histograms' buckets, which the rows have as tuples of counts

    @property
    def total(self) -> Row:
        return self.rows[PROCESS][0]


class Scraper:
    """Keeps the layouts that were checked and the number of segments that were refused."""

    def __init__(self) -> None:
        self.refused = 0
        self.last_refusal = ""
        self.cpu_seconds = 0.0
        self._layouts: dict[bytes, Columns] = {}
        self._known: dict[int, _Known] = {}
        self._read_now: dict[int, _Known] = {}

    def look(self) -> list[Reading]:
        """Reads every process that the caller may read. Processes that end meanwhile are left out."""
        begin = time.thread_time()
        found = []
        for pid in served.published():
            try:
                reading = self._read(pid)
            except NothingYet:
                continue
            except Unreadable as error:
                self.refused += 1
                self.last_refusal = f"process {pid}: {error}"
                continue
            except OSError:  # it ended, or its segment was removed, between two calls
                continue
            if reading:
                found.append(reading)
        self._known, self._read_now = self._read_now, {}
        self._layouts = {key: columns for _, key, columns in self._known.values()}
        self.cpu_seconds = time.thread_time() - begin
        return found

    def _read(self, pid: int) -> Reading | None:
        process = processes.look(pid)
        if process is None or (os.geteuid() != 0 and os.geteuid() not in process.users):
            return None
        descriptor = processes.open_segment(processes.segment_path(process), process.users)
        try:
            return self._read_open(process, of_descriptor(descriptor), os.fstat(descriptor))
        finally:
            os.close(descriptor)

    def _read_open(self, process: Process, fetch: Fetch, facts: os.stat_result) -> Reading | None:
        columns, words = self._columns(process, fetch, facts)
        if words[4] != process.inner_pid:
            raise Unreadable(f"it says it is of process {words[4]}")
        monotonic_ns, rows = columns.read(fetch, _ATTEMPTS)
        if processes.why_not_its(process, words[4], words[5], monotonic_ns):
            return None  # another process's; nothing is wrong with this one
        if not rows.get(PROCESS):
            raise Unreadable("it has no row for the process")
        age = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - monotonic_ns
        return Reading(
            pid=process.pid, program=_program(process.command), library=columns.layout.library,
            resident_bytes=processes.resident_bytes(process.pid), age_s=max(0, age) / 1e9, rows=rows,
            bounds=columns.layout.bounds,
        )  # fmt: skip

    def _columns(self, process: Process, fetch: Fetch, facts: os.stat_result) -> tuple[Columns, tuple[Any, ...]]:
        """A file that has the header it had at the last look has the layout it had then."""
        head = fetch(0, HEADER.size)
        same = (
            process.started_ns,
            facts.st_dev,
            facts.st_ino,
            facts.st_size,
            head[:_LATEST_AT],
            head[_LATEST_AT + 8 :],
        )
        known = self._known.get(process.pid)
        if known is None or known[0] != same:
            known = (same, *self._described(fetch, head, facts.st_size))
        self._read_now[process.pid] = known
        return known[2], HEADER.unpack(head)

    def _described(self, fetch: Fetch, head: bytes, size: int) -> tuple[bytes, Columns]:
        if size > MOST_BYTES or len(head) < HEADER.size:
            read_layout(fetch, size)  # which says what is wrong
            raise Unreadable("its size changed while it was read")
        words = HEADER.unpack(head)
        end = min(max(HEADER.size, words[18]), max(HEADER.size, words[19]), size)  # where the first snapshot begins
        described = fetch(HEADER.size, end - HEADER.size)
        key = size.to_bytes(8, "little") + head[:_PID_AT] + head[_PID_AT + 24 : _LATEST_AT]
        key += head[_LATEST_AT + 8 :] + described
        columns = self._layouts.get(key)
        if columns is None:
            layout = read_layout(lambda at, n: (head + described)[at : at + n], size)
            check_layout(layout, {})
            columns = Columns(layout, TABLES)
            if len(self._layouts) < _MOST_LAYOUTS:
                self._layouts[key] = columns
        return key, columns


def _program(command: str) -> str:
    """The name of the program without its folder and arguments: a series for each command line would be too many."""
    return command.split(" ", 1)[0].rpartition("/")[2][:64] or "unknown"
