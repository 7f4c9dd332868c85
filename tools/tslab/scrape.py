"""One look at every process under the library, made cheap enough to repeat for ever.

A scrape reads a dozen figures of each process, not its samples and threads, and checks a layout once for all processes
whose library describes its segment by the same bytes. What is kept between two looks is bounded: layouts and counts.
Every segment is somebody else's: one that cannot be believed is refused and counted, and the others are still read.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace

from tslab import process as processes
from tslab import served
from tslab.errors import Unreadable
from tslab.figures import check_layout
from tslab.metrics import PROCESS
from tslab.process import Process
from tslab.segment import HEADER, MOST_BYTES, Fetch, Layout, NothingYet, Row, of_descriptor, read_layout, read_snapshot

TABLES = frozenset({PROCESS, "class", "path", "label", "epoch", "lock"})
_MOST_LAYOUTS = 32
# A writer needs microseconds a second; a segment that changes under five looks is not one of the library's.
_ATTEMPTS = 5
# The words of a header that differ between processes of one library: pid, namespace, start and the latest snapshot.
_PID_AT, _LATEST_AT = 24, HEADER.size - 128 - 8


@dataclass(frozen=True)
class Reading:
    """The figures of one process; `rows` by the table's name in the segment."""

    pid: int
    program: str
    library: str
    resident_bytes: int
    age_s: float
    rows: dict[str, list[Row]]

    @property
    def total(self) -> Row:
        return self.rows[PROCESS][0]


class Scraper:
    """Keeps the layouts that were checked and the number of segments that were refused."""

    def __init__(self) -> None:
        self.refused = 0
        self.last_refusal = ""
        self.cpu_seconds = 0.0
        self._layouts: dict[bytes, Layout] = {}

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
        self.cpu_seconds = time.thread_time() - begin
        return found

    def _read(self, pid: int) -> Reading | None:
        process = processes.look(pid)
        if process is None or (os.geteuid() != 0 and os.geteuid() not in process.users):
            return None
        descriptor = processes.open_segment(processes.segment_path(process), process.users)
        try:
            return self._read_open(process, of_descriptor(descriptor), os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    def _read_open(self, process: Process, fetch: Fetch, size: int) -> Reading | None:
        layout = self._layout(fetch, size)
        if layout.pid != process.inner_pid:
            raise Unreadable(f"it says it is of process {layout.pid}")
        snapshot = read_snapshot(fetch, layout, _ATTEMPTS, TABLES)
        if processes.why_not_its(process, layout.pid, layout.pid_namespace, snapshot.monotonic_ns):
            return None  # another process's; nothing is wrong with this one
        if not snapshot.rows.get(PROCESS):
            raise Unreadable("it has no row for the process")
        age = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - snapshot.monotonic_ns
        return Reading(
            pid=process.pid, program=_program(process.command), library=layout.library,
            resident_bytes=processes.resident_bytes(process.pid), age_s=max(0, age) / 1e9, rows=snapshot.rows,
        )  # fmt: skip

    def _layout(self, fetch: Fetch, size: int) -> Layout:
        if size > MOST_BYTES:
            raise Unreadable(f"{size} bytes are more than any segment has")
        head = fetch(0, HEADER.size)
        if len(head) < HEADER.size:
            return read_layout(fetch, size)  # which says what is missing
        words = HEADER.unpack(head)
        end = min(max(HEADER.size, words[18]), max(HEADER.size, words[19]), size)  # where the first snapshot begins
        described = fetch(HEADER.size, end - HEADER.size)
        key = size.to_bytes(8, "little") + head[:_PID_AT] + head[_PID_AT + 24 : _LATEST_AT]
        key += head[_LATEST_AT + 8 :] + described
        layout = self._layouts.get(key)
        if layout is None:
            layout = read_layout(lambda at, n: (head + described)[at : at + n], size)
            check_layout(layout, {})
            if len(self._layouts) >= _MOST_LAYOUTS:
                self._layouts.clear()
            self._layouts[key] = layout
        return replace(layout, pid=words[4], pid_namespace=words[5], started_realtime_ns=words[6])


def _program(command: str) -> str:
    """The name of the program without its folder and arguments: a series for each command line would be too many."""
    return command.split(" ", 1)[0].rpartition("/")[2][:64] or "unknown"
