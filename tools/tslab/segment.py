"""The figures of a process as they lie in shared memory: src/stats/segment.h, read from outside.

Another process wrote the bytes, perhaps to do harm, so the reader checks everything: every size and offset against the
bytes of the file, every string for its end, every count for the work that it would cause. All tables together may not
describe more than the file holds, so neither time nor memory depends on what a number claims. The file is read and
never mapped: one that is cut short meanwhile gives fewer bytes, not a signal.
"""

from __future__ import annotations

import itertools
import os
import re
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tslab.errors import Unreadable

MAGIC = b"TSLABSEG"
VERSION = 1
MOST_BYTES = 4 << 20  # a segment has less than 1 MiB; more is not one of ours

HEADER = struct.Struct("<8sIIQQQQIIIIIIQQQQQQQQQ128s")
TABLE = struct.Struct("<IIIIIIQ")
FIELD = struct.Struct("<IIIIII")
SNAPSHOT = struct.Struct("<QQQQ")  # and one u64 for each table
WORD = struct.Struct("<Q")
LATEST_AT = HEADER.size - 128 - WORD.size
PROFILE_REQUEST_AT = HEADER.size  # of libraries whose header goes on
PROFILE_AUTO = 2**32 - 1  # the interval that asks the process to choose

KINDS = ("counter", "gauge", "text", "histogram")
UNITS = ("none", "bytes", "nanoseconds")
COUNTER, GAUGE, TEXT, HISTOGRAM = KINDS
WITHOUT_BOUND = 2**64 - 1

_MOST_TABLES = 256
_MOST_FIELDS = 4096
_MOST_BUCKETS = 1024
_MOST_STRING = 1024
_MOST_DESCRIPTOR = 4096
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
# A writer needs microseconds for a snapshot and starts one a second: a reader that misses 50 in a row, a millisecond
# apart, will not get one.
_ATTEMPTS = 50
_PAUSE_S = 0.001

Row = dict[str, Any]
Fetch = Callable[[int, int], bytes]  # offset, bytes wanted; fewer where the file ends


@dataclass(frozen=True)
class Field:
    name: str
    help: str
    offset: int
    count: int  # values; of text: bytes
    kind: str
    unit: str


@dataclass(frozen=True)
class Table:
    name: str
    help: str
    fields: tuple[Field, ...]
    row_bytes: int
    rows_most: int
    offset: int


@dataclass(frozen=True)
class Layout:
    """The layout that a segment describes, checked."""

    total_bytes: int
    pid: int
    pid_namespace: int
    started_realtime_ns: int
    library: str
    tables: tuple[Table, ...]
    bounds: tuple[int, ...]
    snapshot_head_bytes: int
    snapshot_offsets: tuple[int, int]
    snapshot_bytes: int
    takes_requests: bool  # for another interval of the heap profile


@dataclass(frozen=True)
class Snapshot:
    number: int
    monotonic_ns: int
    realtime_ns: int
    gather_ns: int
    rows: dict[str, list[Row]]  # by the table's name
    raw: bytes


class NothingYet(Unreadable):
    """A segment without a snapshot: its process has just made it."""


def printable(text: str) -> str:
    """Labels and command lines are the program's: none of their characters may steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


# ---- what the segment says about itself ------------------------------------------------------------------------------


def read_layout(fetch: Fetch, size: int) -> Layout:
    if size > MOST_BYTES:
        raise Unreadable(f"{size} bytes are more than any segment has ({MOST_BYTES})")
    raw = fetch(0, HEADER.size)
    if not raw or not size:  # the library makes the file, and then gives it its size
        raise NothingYet("its process is just making it")
    if len(raw) < HEADER.size:
        raise Unreadable(f"it ends after {len(raw)} bytes, within its header of {HEADER.size}")
    (
        magic, version, header_bytes, total, pid, namespace, started, tables, fields, bounds, table_bytes, field_bytes,
        head_bytes, tables_at, fields_at, bounds_at, strings_at, strings_bytes, first, second, snapshot_bytes, _,
        library,
    ) = HEADER.unpack(raw)  # fmt: skip
    if magic == bytes(len(MAGIC)):
        raise NothingYet("its process is just making it")
    if magic != MAGIC:
        raise Unreadable(f"it begins with {magic!r}, not with {MAGIC!r}: no segment of temporal-slab")
    if version != VERSION:
        raise Unreadable(f"its format has version {version}, this tslab reads {VERSION}: use the tslab of its library")
    _within("total_bytes", total, HEADER.size, size)
    _within("header_bytes", header_bytes, HEADER.size, total)
    _within("tables", tables, 1, _MOST_TABLES)
    _within("fields", fields, 1, _MOST_FIELDS)
    _within("bounds", bounds, 0, _MOST_BUCKETS)
    _within("table_bytes", table_bytes, TABLE.size, _MOST_DESCRIPTOR)
    _within("field_bytes", field_bytes, FIELD.size, _MOST_DESCRIPTOR)
    _within("snapshot_head_bytes", head_bytes, SNAPSHOT.size + WORD.size * tables, snapshot_bytes)
    _inside("tables", tables_at, tables * table_bytes, total)
    _inside("fields", fields_at, fields * field_bytes, total)
    _inside("bounds", bounds_at, bounds * WORD.size, total)
    _inside("strings", strings_at, strings_bytes, total)
    _inside("snapshot 0", first, snapshot_bytes, total)
    _inside("snapshot 1", second, snapshot_bytes, total)
    strings = exactly(fetch, strings_at, strings_bytes)
    limits = struct.unpack(f"<{bounds}Q", exactly(fetch, bounds_at, bounds * WORD.size))
    if any(a >= b for a, b in itertools.pairwise(limits)):
        raise Unreadable("the upper bounds of its histograms do not ascend")
    if limits and limits[-1] != WITHOUT_BOUND:
        raise Unreadable(f"the last bucket of its histograms ends at {limits[-1]}, not at 2^64 - 1")
    all_fields = [
        _field(words, strings, bounds)
        for words in _descriptors(exactly(fetch, fields_at, fields * field_bytes), FIELD, field_bytes)
    ]
    described = tuple(
        _table(words, strings, all_fields, head_bytes, snapshot_bytes)
        for words in _descriptors(exactly(fetch, tables_at, tables * table_bytes), TABLE, table_bytes)
    )
    _unique("table", [table.name for table in described])
    # One after the other, tables use each field and each byte of a snapshot at most once: that bounds our work.
    _within("fields of all tables", sum(len(table.fields) for table in described), 0, fields)
    room = sum(table.rows_most * table.row_bytes for table in described)
    _within("bytes of all tables", room, 0, snapshot_bytes - head_bytes)
    return Layout(
        total_bytes=total, pid=pid, pid_namespace=namespace, started_realtime_ns=started,
        library=terminated("library", library), tables=described, bounds=limits, snapshot_head_bytes=head_bytes,
        snapshot_offsets=(first, second), snapshot_bytes=snapshot_bytes,
        takes_requests=header_bytes >= PROFILE_REQUEST_AT + WORD.size,
    )  # fmt: skip


def _descriptors(raw: bytes, form: struct.Struct, stride: int) -> list[tuple[int, ...]]:
    return [form.unpack_from(raw, at) for at in range(0, len(raw), stride)]


def _field(words: tuple[int, ...], strings: bytes, bounds: int) -> Field:
    name_at, help_at, offset, count, kind, unit = words
    name = _name("a field", strings, name_at)
    if kind >= len(KINDS):
        raise Unreadable(f"field {name} is of kind {kind}, which this tslab does not know")
    if unit >= len(UNITS):
        raise Unreadable(f"field {name} is in unit {unit}, which this tslab does not know")
    if KINDS[kind] == HISTOGRAM and count != bounds:
        raise Unreadable(f"histogram {name} has {count} buckets, but there are {bounds} bounds")
    if count == 0 or (KINDS[kind] in (COUNTER, GAUGE) and count != 1):
        raise Unreadable(f"field {name} has {count} values")
    return Field(name, _string(f"the help of {name}", strings, help_at), offset, count, KINDS[kind], UNITS[unit])


def _table(words: tuple[int, ...], strings: bytes, fields: list[Field], head: int, snapshot_bytes: int) -> Table:
    name_at, help_at, first, count, row_bytes, rows_most, offset = words
    name = _name("a table", strings, name_at)
    if count == 0 or first + count > len(fields):
        raise Unreadable(f"table {name} has fields {first} to {first + count - 1} of {len(fields)}")
    own = tuple(fields[first : first + count])
    _unique(f"field of {name}", [field.name for field in own])
    for field in own:
        if field.offset + _size(field) > row_bytes:
            raise Unreadable(f"field {field.name} of {name} ends past its row of {row_bytes} bytes")
    _within(f"row_bytes of {name}", row_bytes, WORD.size, snapshot_bytes)
    if offset < head:
        raise Unreadable(f"table {name} begins within the snapshot's head")
    _inside(f"table {name}", offset, row_bytes * rows_most, snapshot_bytes)
    _within(f"bytes of all fields of {name}", sum(_size(field) for field in own), 1, row_bytes)
    return Table(name, _string(f"the help of {name}", strings, help_at), own, row_bytes, rows_most, offset)


def _size(field: Field) -> int:
    return field.count if field.kind == TEXT else field.count * WORD.size


def _within(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise Unreadable(f"{what} is {value}, which is not between {least} and {most}")


def _inside(what: str, offset: int, size: int, total: int) -> None:
    if offset + size > total:
        raise Unreadable(f"{what} would lie at {offset} to {offset + size}, past the end at {total}")


def _unique(what: str, names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise Unreadable(f"two times the same {what}: {', '.join(sorted({n for n in names if names.count(n) > 1}))}")


def exactly(fetch: Fetch, offset: int, size: int) -> bytes:
    raw = fetch(offset, size)
    if len(raw) != size:
        raise Unreadable(f"it was cut short while it was read: {len(raw)} of {size} bytes at {offset}")
    return raw


def _string(what: str, strings: bytes, at: int) -> str:
    end = strings.find(b"\0", at, at + _MOST_STRING + 1)
    if at >= len(strings) or end < 0:
        raise Unreadable(f"{what} is a string at {at} that does not end within {_MOST_STRING} of {len(strings)} bytes")
    try:
        text = strings[at:end].decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"{what} is not text: {strings[at:end]!r:.80}") from error
    if not text.isprintable():
        raise Unreadable(f"{what} is not printable: {text!r:.80}")
    return text


def _name(what: str, strings: bytes, at: int) -> str:
    text = _string(f"the name of {what}", strings, at)
    if not _NAME.fullmatch(text):
        raise Unreadable(f"{what} is named {text!r:.80}")
    return text


def terminated(what: str, raw: bytes) -> str:
    end = raw.find(b"\0")
    if end < 0:
        raise Unreadable(f"the text {what} does not end: {raw[:40]!r}")
    return printable(raw[:end].decode(errors="backslashreplace"))


# ---- its figures -----------------------------------------------------------------------------------------------------


def read_snapshot(fetch: Fetch, layout: Layout, attempts: int = _ATTEMPTS) -> Snapshot:
    """The latest snapshot, whole. A writer that comes round meanwhile costs another attempt."""
    seen = ""
    for attempt in range(attempts):
        if attempt:
            time.sleep(_PAUSE_S)
        latest = _word(fetch, LATEST_AT)
        if latest == 0:
            raise NothingYet("it holds no figures yet")
        at = layout.snapshot_offsets[latest % 2]
        before = _word(fetch, at)
        raw = exactly(fetch, at, layout.snapshot_bytes)
        after = _word(fetch, at)
        if before == after == WORD.unpack_from(raw)[0] == latest:
            return _snapshot(raw, layout)
        seen = f"snapshot {latest} has the number {before} before and {after} after it is read"
    raise Unreadable(f"no whole snapshot in {attempts} looks: {seen}")


def read_earlier(fetch: Fetch, layout: Layout, latest: int) -> Snapshot | None:
    """The snapshot before number `latest`; None where the writer has overwritten it, or there was none."""
    wanted = latest - 1
    at = layout.snapshot_offsets[wanted % 2]
    before = _word(fetch, at)
    raw = exactly(fetch, at, layout.snapshot_bytes)
    if wanted < 1 or not before == WORD.unpack_from(raw)[0] == _word(fetch, at) == wanted:
        return None
    return _snapshot(raw, layout)


def _word(fetch: Fetch, at: int) -> int:
    return int(WORD.unpack(exactly(fetch, at, WORD.size))[0])


def _snapshot(raw: bytes, layout: Layout) -> Snapshot:
    number, monotonic, realtime, gather = SNAPSHOT.unpack_from(raw)
    counts = struct.unpack_from(f"<{len(layout.tables)}Q", raw, SNAPSHOT.size)
    rows: dict[str, list[Row]] = {}
    for table, count in zip(layout.tables, counts, strict=True):
        if count > table.rows_most:
            raise Unreadable(f"table {table.name} has {count} rows, but room for {table.rows_most}")
        starts = range(table.offset, table.offset + count * table.row_bytes, table.row_bytes)
        rows[table.name] = [_row(raw, start, table, layout.bounds) for start in starts]
    return Snapshot(number, monotonic, realtime, gather, rows, raw)


def with_value(layout: Layout, snapshot: Snapshot, table: str, name: str, value: int) -> Snapshot:
    """Returns the snapshot with `value` in a field of the table's first row, or as it is if there is no such field."""
    for own in layout.tables:
        for field in own.fields:
            if (own.name, field.name) == (table, name) and snapshot.rows[table] and field.kind in (COUNTER, GAUGE):
                raw = bytearray(snapshot.raw)
                WORD.pack_into(raw, own.offset + field.offset, value)
                return _snapshot(bytes(raw), layout)
    return snapshot


def _row(raw: bytes, start: int, table: Table, bounds: tuple[int, ...]) -> Row:
    row: Row = {}
    for field in table.fields:
        at = start + field.offset
        if field.kind == TEXT:
            row[field.name] = terminated(f"{table.name}.{field.name}", raw[at : at + field.count])
        elif field.kind == HISTOGRAM:
            counts = struct.unpack_from(f"<{field.count}Q", raw, at)
            row[field.name] = [
                {"le_ns": None if upper == WITHOUT_BOUND else upper, "count": count}
                for upper, count in zip(bounds, counts, strict=True)
            ]
        else:
            row[field.name] = WORD.unpack_from(raw, at)[0]
    return row


# ---- from bytes or an open file --------------------------------------------------------------------------------------


def of_bytes(data: bytes) -> Fetch:
    return lambda offset, size: data[offset : offset + size]


def of_descriptor(descriptor: int) -> Fetch:
    def fetch(offset: int, size: int) -> bytes:
        pieces = []
        while size > 0 and (piece := os.pread(descriptor, size, offset)):
            pieces.append(piece)
            offset, size = offset + len(piece), size - len(piece)
        return b"".join(pieces)

    return fetch


def saved(fetch: Fetch, layout: Layout, snapshot: Snapshot) -> bytes:
    """Returns the segment as a file that holds this one snapshot, for a later `tslab stats FILE`."""
    data = bytearray(exactly(fetch, 0, layout.total_bytes))
    for at in layout.snapshot_offsets:
        data[at : at + WORD.size] = bytes(WORD.size)
    here = layout.snapshot_offsets[snapshot.number % 2]
    data[here : here + layout.snapshot_bytes] = snapshot.raw
    WORD.pack_into(data, LATEST_AT, snapshot.number)
    return bytes(data)
