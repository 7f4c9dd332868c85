"""Segments made in Python, as src/stats/publish.c writes given rows; damaged ones; the judge of a reader."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tslab import metrics
from tslab.errors import Unreadable
from tslab.figures import document
from tslab.segment import (
    FIELD,
    GAUGE,
    HEADER,
    HISTOGRAM,
    KINDS,
    MAGIC,
    SNAPSHOT,
    TABLE,
    TEXT,
    UNITS,
    VERSION,
    Fetch,
    Field,
    of_bytes,
    read_layout,
    read_snapshot,
)

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
BOUNDS = [8 << i for i in range(47)] + [2**64 - 1]


@dataclass
class Spec:
    """A table to be: fields are laid out one after the other."""

    name: str
    help: str
    fields: list[Field]
    most: int = 4
    row_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        at = 0
        placed = []
        for f in self.fields:
            placed.append(Field(f.name, f.help, at, f.count, f.kind, f.unit))
            at += (f.count + 7) // 8 * 8 if f.kind == TEXT else 8 * f.count
        self.fields = placed
        self.row_bytes = at


def published(most: int = 600) -> list[Spec]:
    """The tables of this release, as its schema has them."""
    definitions = metrics.published_schema()["$defs"]
    specs = []
    for name, about in definitions.items():
        fields = list(metrics.known_fields()[metrics.section(name)].values())
        fields = [
            Field(f.name, f.help, 0, len(BOUNDS) if f.kind == HISTOGRAM else f.count, f.kind, f.unit) for f in fields
        ]
        specs.append(Spec(name, about["description"], fields, 1 if name == metrics.PROCESS else most))
    return specs


def small() -> list[Spec]:
    """One of everything, and little of it: for thousands of damaged copies."""

    def one(name: str, kind: str = GAUGE, count: int = 1) -> Field:
        return Field(name, f"what {name} is", 0, count, kind, "none")

    return [
        Spec("process", "all", [one("allocations"), one("live_bytes")], 1),
        Spec("path", "a way", [one("name", TEXT, 16), one("entries"), one("buckets", HISTOGRAM, 4)], 3),
        Spec("sample", "one", [one("number"), one("wall_ns")], 3),
    ]


def make(
    specs: Sequence[Spec], rows: Rows, *, bounds: Sequence[int] = BOUNDS, number: int = 1, pid: int = 4711,
    realtime_ns: int = 1_700_000_000_000_000_000, monotonic_ns: int = 5_000_000_000,
    started_ns: int = 1_600_000_000 * 10**9, pid_namespace: int = 0,
    library: str = "temporal-slab 0.1.0 (release, gcc 12.2.0)",
) -> bytearray:  # fmt: skip
    strings = bytearray(b"\0")

    def text(value: str) -> int:
        at = len(strings)
        strings.extend(value.encode() + b"\0")
        return at

    tables, fields = bytearray(), bytearray()
    head = SNAPSHOT.size + 8 * 16
    offset, first = head, 0
    for spec in specs:
        tables += TABLE.pack(
            text(spec.name), text(spec.help), first, len(spec.fields), spec.row_bytes, spec.most, offset
        )
        for f in spec.fields:
            fields += FIELD.pack(
                text(f.name), text(f.help), f.offset, f.count, KINDS.index(f.kind), UNITS.index(f.unit)
            )
        offset += spec.row_bytes * spec.most
        first += len(spec.fields)
    snapshot = bytearray(offset)
    SNAPSHOT.pack_into(snapshot, 0, number, monotonic_ns, realtime_ns, 120_000)
    at = head
    for index, spec in enumerate(specs):
        own = rows.get(spec.name, ())
        struct.pack_into("<Q", snapshot, SNAPSHOT.size + 8 * index, len(own))
        for i, row in enumerate(own):
            put_row(snapshot, at + i * spec.row_bytes, spec, row)
        at += spec.row_bytes * spec.most
    while len(strings) % 8:
        strings.append(0)
    limits = struct.pack(f"<{len(bounds)}Q", *bounds)
    places, end = [], HEADER.size
    for part in (tables, fields, limits, strings, snapshot, snapshot):
        places.append(end)
        end += len(part)
    tables_at, fields_at, bounds_at, strings_at, *snapshots_at = places
    data = bytearray(
        HEADER.pack(
            MAGIC, VERSION, HEADER.size, end, pid, pid_namespace, started_ns, len(specs), first, len(bounds),
            TABLE.size, FIELD.size, head, tables_at, fields_at, bounds_at, strings_at, len(strings), *snapshots_at,
            offset, number, library.encode().ljust(128, b"\0"),
        )
    )  # fmt: skip
    older = bytearray(len(snapshot))
    both = (older, snapshot) if number % 2 else (snapshot, older)
    return data + tables + fields + limits + strings + both[0] + both[1]


def put_row(into: bytearray, at: int, spec: Spec, row: Mapping[str, Any]) -> None:
    for f in spec.fields:
        value = row.get(f.name, "" if f.kind == TEXT else [] if f.kind == HISTOGRAM else 0)
        if f.kind == TEXT:
            raw = value if isinstance(value, bytes) else value.encode()
            into[at + f.offset : at + f.offset + len(raw)] = raw
        elif f.kind == HISTOGRAM:
            for i, count in enumerate(value):
                struct.pack_into("<Q", into, at + f.offset + 8 * i, count)
        else:
            struct.pack_into("<Q", into, at + f.offset, value)


def small_segment() -> bytearray:
    rows = {
        "process": [{"allocations": 7, "live_bytes": 4096}],
        "path": [
            {"name": "fast", "entries": 3, "buckets": [1, 2]},
            {"name": "map", "entries": 1, "buckets": [0, 0, 0, 1]},
        ],
        "sample": [{"number": 1, "wall_ns": 33}],
    }
    return make(small(), rows, bounds=[8, 16, 32, 2**64 - 1])


WILD = (0, 1, 2, 7, 8, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**48, 2**63 - 1, 2**63, 2**64 - 1)


def damaged(original: bytes, seed: int) -> Iterator[bytes]:
    """For ever: copies with bits turned, words made wild, pieces moved, ends cut off or made up."""
    chance = random.Random(seed)
    size = len(original)
    head = min(size, 1024)  # where most of what steers a reader lies
    while True:
        data = bytearray(original)
        for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
            kind = chance.randrange(8)
            at = chance.randrange(head if chance.random() < 0.6 else size)
            if kind == 0 and len(data) > 1:
                del data[chance.randrange(len(data)) :]
            elif kind == 1:
                data += chance.randbytes(chance.randrange(64))
            elif kind == 2:
                data[at : at + 16] = chance.randbytes(16)
            elif kind in (3, 4) and len(data) > 8:
                width = chance.choice((4, 8))
                at = min(at, len(data) - width) & -width
                value = chance.choice(WILD) if chance.random() < 0.7 else chance.randrange(2 * size)
                data[at : at + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")
            elif kind == 5:
                source = chance.randrange(size)
                data[at : at + 8] = original[source : source + 8]
            elif at < len(data):
                data[at] ^= 1 << chance.randrange(8)
        yield bytes(data)


def counted(data: bytes, budget: int) -> Fetch:
    """Bytes of `data`; a reader that asks for more than it may need is caught here."""
    fetch, asked = of_bytes(data), 0

    def take(offset: int, size: int) -> bytes:
        nonlocal asked
        assert 0 <= size <= max(len(data), HEADER.size), f"{size} bytes asked for at {offset} of {len(data)}"
        asked += size
        assert asked <= budget, f"{asked} bytes read of {len(data)}"
        return fetch(offset, size)

    return take


def read_one(data: bytes) -> bool:
    """Returns true if the reader believed it. An exception other than Unreadable is a defect of the reader."""
    fetch = counted(data, 8 * len(data) + 1024)
    try:
        layout = read_layout(fetch, len(data))
        snapshot = read_snapshot(fetch, layout, attempts=1)
        found = document(layout, snapshot, None)
    except Unreadable as error:
        assert str(error).isprintable(), repr(str(error))
        assert len(str(error)) < 2000
        return False
    assert len(json.dumps(found)) < 64 * len(data) + 65536
    return True
