"""The reader of shared memory believes nothing before it is checked."""

from __future__ import annotations

import itertools
import os
import re
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import segments

from tslab import figures, process
from tslab.errors import LabError, Unreadable
from tslab.figures import Source, request_profile
from tslab.segment import (
    FIELD,
    HEADER,
    LATEST_AT,
    MOST_BYTES,
    PROFILE_REQUEST_AT,
    TABLE,
    Layout,
    NothingYet,
    Snapshot,
    of_bytes,
    of_descriptor,
    read_layout,
    read_snapshot,
    saved,
)

FUZZED = 20_000


def both(data: bytes | bytearray, attempts: int = 2) -> tuple[Layout, Snapshot]:
    layout = read_layout(of_bytes(bytes(data)), len(data))
    return layout, read_snapshot(of_bytes(bytes(data)), layout, attempts)


def with_word(data: bytearray, at: int, value: int, width: int = 8) -> bytes:
    copy = bytearray(data)
    copy[at : at + width] = value.to_bytes(width, "little")
    return bytes(copy)


def test_what_was_written_is_read() -> None:
    layout, snapshot = both(segments.small_segment())
    assert [table.name for table in layout.tables] == ["process", "path", "sample"]
    assert layout.pid == 4711
    assert snapshot.rows["process"] == [{"allocations": 7, "live_bytes": 4096}]
    fast, slow = snapshot.rows["path"][:2]
    assert (fast["name"], fast["entries"]) == ("fast", 3)
    assert [(bucket["le_ns"], bucket["count"]) for bucket in fast["buckets"]] == [(8, 1), (16, 2), (32, 0), (None, 0)]
    assert slow["buckets"][-1] == {"le_ns": None, "count": 1}


def test_either_snapshot_may_be_the_latest() -> None:
    for number in (1, 2, 7, 2**64 - 1):
        data = segments.make(
            segments.small(), {"process": [{"allocations": number}]}, bounds=[1, 2, 3, 2**64 - 1], number=number
        )
        assert both(data)[1].number == number


def with_longer_header(data: bytes, extra: int) -> bytearray:
    _, _, head, total = struct.unpack_from("<8sIIQ", data)
    longer = bytearray(data[: HEADER.size] + bytes(extra) + data[HEADER.size :])
    struct.pack_into("<I", longer, 12, head + extra)
    struct.pack_into("<Q", longer, 16, total + extra)
    for at in (72, 80, 88, 96, 112, 120):
        struct.pack_into("<Q", longer, at, struct.unpack_from("<Q", data, at)[0] + extra)
    return longer


def test_the_layout_of_the_c_header() -> None:
    """src/stats/segment.h, as the compiler lays it out."""
    assert (HEADER.size, TABLE.size, FIELD.size, LATEST_AT) == (272, 32, 24, 136)


def test_a_longer_header_and_longer_descriptors_of_a_newer_library_are_skipped() -> None:
    specs = segments.small()
    data = segments.make(specs, {"process": [{"allocations": 9}]}, bounds=[1, 2, 3, 2**64 - 1])
    assert both(with_longer_header(data, 64))[1].rows["process"][0]["allocations"] == 9


@pytest.mark.parametrize(
    ("at", "width", "value", "message"),
    [
        (0, 8, 0, "just making it"),
        (0, 8, 1, "it begins with"),
        (8, 4, 2, "its format has version 2, this tslab reads 1"),
        (12, 4, 100, "header_bytes is 100"),
        (16, 8, 2**40, "total_bytes is 1099511627776"),
        (48, 4, 0, "tables is 0"),
        (48, 4, 2**31, "tables is 2147483648"),
        (52, 4, 2**32 - 1, "fields is 4294967295"),
        (56, 4, 2**32 - 1, "bounds is 4294967295"),
        (60, 4, 4, "table_bytes is 4"),
        (64, 4, 0, "field_bytes is 0"),
        (68, 4, 8, "snapshot_head_bytes is 8"),
        (72, 8, 2**64 - 1, "tables would lie at 18446744073709551615"),
        (80, 8, 2**63, "fields would lie at"),
        (88, 8, 2**32, "bounds would lie at"),
        (96, 8, 2**32, "strings would lie at"),
        (104, 8, 2**64 - 8, "strings would lie at"),
        (112, 8, 2**60, "snapshot 0 would lie at"),
        (120, 8, 2**60, "snapshot 1 would lie at"),
        (128, 8, 2**60, "snapshot 0 would lie at"),
        (136, 8, 0, "no figures yet"),
        (136, 8, 3, "no whole snapshot in 2 looks: snapshot 3 has the number 1"),
    ],
)
def test_a_header_that_lies(at: int, width: int, value: int, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        both(with_word(segments.small_segment(), at, value, width))


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, 2**31, "the name of a table is a string at 2147483648 that does not end"),
        (8, 2**32 - 1, "table process has fields 4294967295"),
        (12, 0, "table process has fields"),
        (16, 0, "ends past its row of 0 bytes"),
        (20, 2**32 - 1, "table process would lie at"),
        (24, 0, "begins within the snapshot's head"),
        (28, 2**31, "table process would lie at"),
    ],
)
def test_a_table_that_lies(at: int, value: int, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        both(with_word(segments.small_segment(), HEADER.size + at, value, 4))


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, 2**31, "the name of a field is a string"),
        (4, 2**31, "the help of allocations is a string"),
        (8, 2**32 - 8, "field allocations of process ends past its row"),
        (12, 0, "field allocations has 0 values"),
        (12, 2**32 - 1, "field allocations has 4294967295 values"),
        (16, 4, "field allocations is of kind 4"),
        (16, 3, "histogram allocations has 1 buckets, but there are 4 bounds"),
        (20, 9, "field allocations is in unit 9"),
    ],
)
def test_a_field_that_lies(at: int, value: int, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        both(with_word(segments.small_segment(), HEADER.size + 3 * TABLE.size + at, value, 4))


def test_more_rows_than_there_is_room_for() -> None:
    data = segments.small_segment()
    layout, _ = both(data)
    with pytest.raises(Unreadable, match=r"table path has 4 rows, but room for 3"):
        both(with_word(data, layout.snapshot_offsets[1] + 32 + 8, 4))


def test_tables_that_share_their_rows_would_multiply_the_work() -> None:
    data = segments.small_segment()
    layout, _ = both(data)
    most = (layout.snapshot_bytes - layout.snapshot_head_bytes) // layout.tables[1].row_bytes
    with pytest.raises(Unreadable, match=r"bytes of all tables is"):
        copy = with_word(data, HEADER.size + TABLE.size + 20, most, 4)
        both(with_word(bytearray(copy), HEADER.size + TABLE.size + 24, layout.snapshot_head_bytes))


def test_a_text_that_does_not_end() -> None:
    specs = segments.small()
    rows = {"path": [{"name": b"x" * 16, "entries": 1}]}
    with pytest.raises(Unreadable, match=r"the text path.name does not end"):
        both(segments.make(specs, rows, bounds=[1, 2, 3, 2**64 - 1]))


def test_a_label_cannot_steer_a_terminal() -> None:
    rows = {"path": [{"name": b"\x1b[31m\xff\r\xe2\x80\xae", "entries": 1}]}
    _, snapshot = both(segments.make(segments.small(), rows, bounds=[1, 2, 3, 2**64 - 1]))
    assert snapshot.rows["path"][0]["name"] == r"\x1b[31m\xff\r\u202e"


def test_bounds_that_do_not_ascend() -> None:
    with pytest.raises(Unreadable, match=r"do not ascend"):
        both(segments.make(segments.small(), {}, bounds=[1, 2, 2, 2**64 - 1]))
    with pytest.raises(Unreadable, match=r"ends at 4, not at"):
        both(segments.make(segments.small(), {}, bounds=[1, 2, 3, 4]))


def test_a_known_name_of_another_kind() -> None:
    data = segments.make([segments.Spec("class", "x", [segments.Field("live_bytes", "x", 0, 1, "gauge", "none")])], {})
    with pytest.raises(Unreadable, match=r"table class has no field object_size"):
        figures.document(*both(data), None)


def test_every_length_of_a_cut_file() -> None:
    data = bytes(segments.small_segment())
    for length in range(0, len(data), 7):
        with pytest.raises(Unreadable):
            both(data[:length])


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_bytes(segments.small_segment())
    descriptor = os.open(path, os.O_RDONLY)
    layout = read_layout(of_descriptor(descriptor), path.stat().st_size)
    os.truncate(path, 300)
    with pytest.raises(Unreadable, match=r"cut short while it was read"):
        read_snapshot(of_descriptor(descriptor), layout)
    os.close(descriptor)


def test_a_huge_file_is_not_read() -> None:
    with pytest.raises(Unreadable, match=r"more than any segment has"):
        read_layout(of_bytes(b""), MOST_BYTES + 1)


def test_damaged_segments_by_the_thousand() -> None:
    original = bytes(segments.small_segment())
    believed = sum(segments.read_one(data) for data in itertools.islice(segments.damaged(original, 1), FUZZED))
    assert 0 < believed < FUZZED  # the damage is neither always fatal nor never seen


def test_a_saved_copy_reads_the_same() -> None:
    data = bytes(segments.small_segment())
    layout, snapshot = both(data)
    again = both(saved(of_bytes(data), layout, snapshot))[1]
    assert again.rows == snapshot.rows


def test_a_reader_beside_a_writer_never_sees_half_a_snapshot(tmp_path: Path) -> None:
    """The writer follows segment.h: number 0, rows, number, latest."""
    path = tmp_path / "s"
    path.write_bytes(segments.small_segment())
    descriptor = os.open(path, os.O_RDWR)
    layout = read_layout(of_descriptor(descriptor), path.stat().st_size)
    done = threading.Event()

    def write() -> None:
        for number in itertools.count(2):
            at = layout.snapshot_offsets[number % 2]
            table = layout.tables[0]
            os.pwrite(descriptor, bytes(8), at)
            for word in (table.offset, table.offset + 8):
                os.pwrite(descriptor, struct.pack("<Q", number), at + word)
            os.pwrite(descriptor, struct.pack("<Q", number), at)
            os.pwrite(descriptor, struct.pack("<Q", number), LATEST_AT)
            if done.is_set():
                return

    # A first whole pair, so that both snapshots hold what this writer writes.
    for at in layout.snapshot_offsets:
        os.pwrite(descriptor, struct.pack("<QQ", 1, 1), at + layout.tables[0].offset)
        os.pwrite(descriptor, struct.pack("<Q", 1), at + 32)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            row = read_snapshot(of_descriptor(descriptor), layout, 10_000).rows["process"][0]
            assert row["allocations"] == row["live_bytes"]
    finally:
        done.set()
        writer.join()
        os.close(descriptor)


# ---- finding it ------------------------------------------------------------------------------------------------------


@pytest.fixture
def shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(process, "DIRECTORY", str(tmp_path))
    return tmp_path


def put(folder: Path, pid: int, *, says: int = 0, **how: int) -> Path:
    path = folder / f"tslab.{pid}"
    how = {"pid": says or pid, "started_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()} | how
    path.write_bytes(segments.make(segments.published(4), {"process": [{"allocations": 5}]}, **how))
    return path


def test_the_figures_of_a_process(shared_memory: Path) -> None:
    put(shared_memory, os.getpid())
    found = Source(str(os.getpid())).read()
    assert found["process"]["allocations"] == 5
    assert found["state"] in ("running", "sleeping")
    assert "python" in found["command"] or "pytest" in found["command"]


def test_a_request_for_an_interval_is_counted(shared_memory: Path) -> None:
    path = put(shared_memory, os.getpid())
    with pytest.raises(LabError, match="takes no interval from outside"):  # a library of before
        request_profile(os.getpid(), 4096)
    path.write_bytes(with_longer_header(path.read_bytes(), 8))
    for count, interval in enumerate((1 << 30, 0, 0), start=1):
        request_profile(os.getpid(), interval)
        assert struct.unpack_from("<II", path.read_bytes(), PROFILE_REQUEST_AT) == (interval, count)
    path.chmod(0o400)
    if os.geteuid() != 0:
        with pytest.raises(Unreadable, match="is not yours to write"):
            request_profile(os.getpid(), 4096)


def test_a_link_in_its_place_is_not_followed(shared_memory: Path) -> None:
    put(shared_memory, os.getpid()).rename(shared_memory / "elsewhere")
    (shared_memory / f"tslab.{os.getpid()}").symlink_to(shared_memory / "elsewhere")
    with pytest.raises(Unreadable, match=r"is no regular file"):
        Source(str(os.getpid())).read()


def test_a_pipe_in_its_place_does_not_hold_us_up(shared_memory: Path) -> None:
    os.mkfifo(shared_memory / f"tslab.{os.getpid()}")
    with pytest.raises(Unreadable, match=r"is no regular file"):
        Source(str(os.getpid())).read()


def test_a_segment_that_another_process_made(shared_memory: Path) -> None:
    put(shared_memory, os.getpid(), says=1)
    with pytest.raises(Unreadable, match=r"says it is of process 1: not made by process"):
        Source(str(os.getpid())).read()


def test_a_segment_of_an_earlier_process_of_this_number(shared_memory: Path) -> None:
    """Its figures are older than the process, if only by a little."""
    child = subprocess.Popen(["sleep", "60"])
    try:
        found = process.look(child.pid)
        assert found
        put(shared_memory, child.pid, monotonic_ns=found.started_ns - 1)
        with pytest.raises(
            Unreadable, match=r"left by an earlier process .* which was killed; .* runs without temporal-slab"
        ):
            Source(str(child.pid)).read()
        put(shared_memory, child.pid, monotonic_ns=found.started_ns + 10_000_000)
        assert Source(str(child.pid)).read()["process"]["allocations"] == 5
    finally:
        child.kill()
        child.wait()


def test_a_segment_of_another_pid_namespace(shared_memory: Path) -> None:
    """Containers that share /dev/shm give the same numbers to different processes."""
    own = int(re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink())))
    put(shared_memory, os.getpid(), pid_namespace=own)
    assert Source(str(os.getpid())).read()["process"]["allocations"] == 5
    put(shared_memory, os.getpid(), pid_namespace=own - 1)
    with pytest.raises(Unreadable, match=r"another pid namespace, by a process that has the number .* there"):
        Source(str(os.getpid())).read()


def test_the_clock_of_the_wall_may_be_set(shared_memory: Path) -> None:
    """The figures of a process that published before a time server corrected the clock are still its own."""
    put(shared_memory, os.getpid(), started_ns=10**18)
    assert Source(str(os.getpid())).read()["process"]["allocations"] == 5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_segment_that_somebody_else_put_there(shared_memory: Path) -> None:
    path = put(shared_memory, os.getpid())
    os.chown(path, 12345, 12345)
    with pytest.raises(Unreadable, match=r"belongs to user 12345, not to root who runs the process: .* is not read"):
        Source(str(os.getpid())).read()


def test_what_a_killed_process_left_behind_is_its_last_word(shared_memory: Path) -> None:
    gone = 2**22 - 1
    put(shared_memory, gone)
    found = Source(str(gone)).read()
    assert found["state"] == "gone"
    assert found["process"]["allocations"] == 5


def test_a_process_without_the_library(shared_memory: Path) -> None:
    with pytest.raises(Unreadable, match=r"runs without temporal-slab .*start it with `tslab run -- COMMAND`"):
        Source(str(os.getpid())).read()


def test_a_process_that_is_not_there(shared_memory: Path) -> None:
    with pytest.raises(Unreadable, match=r"there is no process 4194303, and none of that number left figures"):
        Source("4194303").read()


@pytest.mark.parametrize("read", [Source.read, Source.layout])
def test_a_segment_that_gets_its_size_later(
    shared_memory: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Source], object]
) -> None:
    path = put(shared_memory, os.getpid())
    whole = path.read_bytes()
    path.write_bytes(b"")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            path.write_bytes(whole)

    monkeypatch.setattr(figures.time, "sleep", sleep)
    read(Source(str(os.getpid())))
    assert len(slept) == 3


def test_a_segment_that_is_never_finished(shared_memory: Path) -> None:
    path = put(shared_memory, os.getpid())
    path.write_bytes(bytes(4096))
    with pytest.raises(NothingYet, match=r"just making it: look again in a second"):
        Source(str(os.getpid())).read()
