"""Reads some tables of a segment's latest snapshot again and again, by forms that it makes once for a layout.

`segment.read_snapshot` reads a snapshot whole and serves every reader. A scrape of many processes takes a tenth of its
bytes and a fraction of its time here, and believes as little: the layout was checked, and the numbers around a read
must agree as they do there.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Container
from dataclasses import dataclass
from functools import lru_cache

from tslab.errors import Unreadable
from tslab.segment import (
    HISTOGRAM,
    LATEST_AT,
    SNAPSHOT,
    TEXT,
    WORD,
    Fetch,
    Field,
    Layout,
    NothingYet,
    Row,
    Table,
    exactly,
    terminated,
)

# Names repeat from one look to the next and from one process to another.
_MOST_TEXTS = 1024
_PAUSE_S = 0.001


@dataclass(frozen=True)
class Form:
    """The form of the rows of one table; `count_at` is the place of their number in the snapshot."""

    table: Table
    count_at: int
    row: struct.Struct
    names: tuple[str, ...]
    texts: tuple[str, ...]
    histograms: tuple[tuple[str, int, int], ...]  # name, first and last but one place among the values


class Columns:
    """The wanted tables of one layout. Histograms are tuples of counts, in the order of the layout's bounds."""

    def __init__(self, layout: Layout, wanted: Container[str]) -> None:
        self.layout = layout
        self._forms = [_form(index, table) for index, table in enumerate(layout.tables) if table.name in wanted]

    def read(self, fetch: Fetch, attempts: int) -> tuple[int, dict[str, list[Row]]]:
        """Returns the time of the snapshot, on CLOCK_MONOTONIC, and the rows by the table's name."""
        for attempt in range(attempts):
            if attempt:
                time.sleep(_PAUSE_S)
            latest = WORD.unpack(exactly(fetch, LATEST_AT, WORD.size))[0]
            if latest == 0:
                raise NothingYet("it holds no figures yet")
            at = self.layout.snapshot_offsets[latest % 2]
            head = exactly(fetch, at, SNAPSHOT.size + WORD.size * len(self.layout.tables))
            number, monotonic_ns, *_ = SNAPSHOT.unpack_from(head)
            if number != latest:
                continue
            raw = [(form, self._bytes(form, fetch, at, head)) for form in self._forms]
            if WORD.unpack(exactly(fetch, at, WORD.size))[0] == latest:
                return monotonic_ns, {form.table.name: _rows(form, data) for form, data in raw}
        raise Unreadable(f"no whole snapshot in {attempts} looks")

    @staticmethod
    def _bytes(form: Form, fetch: Fetch, at: int, head: bytes) -> bytes:
        (count,) = WORD.unpack_from(head, form.count_at)
        table = form.table
        if count > table.rows_most:
            raise Unreadable(f"table {table.name} has {count} rows, but room for {table.rows_most}")
        return exactly(fetch, at + table.offset, count * table.row_bytes) if count else b""


def _form(index: int, table: Table) -> Form:
    at, pieces = 0, ["<"]
    names: list[str] = []
    histograms = []
    fields = sorted(table.fields, key=lambda field: field.offset)
    places = 0
    for field in fields:
        if field.offset < at:
            raise Unreadable(f"field {field.name} of {table.name} begins within the one before")
        pieces += [f"{field.offset - at}x", _piece(field)]
        at = field.offset + struct.calcsize("<" + _piece(field))
        if field.kind == HISTOGRAM:
            histograms.append((field.name, places, places + field.count))
            places += field.count
        else:
            names.append(field.name)
            places += 1
    pieces.append(f"{table.row_bytes - at}x")
    texts = tuple(field.name for field in fields if field.kind == TEXT)
    count_at = SNAPSHOT.size + WORD.size * index
    return Form(table, count_at, struct.Struct("".join(pieces)), tuple(names), texts, tuple(histograms))


def _piece(field: Field) -> str:
    if field.kind == TEXT:
        return f"{field.count}s"
    return f"{field.count}Q" if field.kind == HISTOGRAM else "Q"


def _rows(form: Form, raw: bytes) -> list[Row]:
    rows: list[Row] = []
    for values in form.row.iter_unpack(raw):
        plain = values
        for _, first, end in reversed(form.histograms):
            plain = plain[:first] + plain[end:]
        row: Row = dict(zip(form.names, plain, strict=True))
        for name in form.texts:
            row[name] = _text(row[name])
        for name, first, end in form.histograms:
            row[name] = values[first:end]
        rows.append(row)
    return rows


@lru_cache(maxsize=_MOST_TEXTS)
def _text(raw: bytes) -> str:
    return terminated("in a row", raw)
