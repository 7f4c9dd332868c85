"""Recorded calls of malloc's family: how a program is recorded, and the file format of bench/trace/trace.h.

A trace may be compressed by gzip or xz. Its content tells, not its name.
"""

from __future__ import annotations

import contextlib
import gzip
import lzma
import mmap
import os
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from tslab.errors import LabError
from tslab.project import Project

MAGIC, VERSION = b"tslabtrc", 1
END = 0xFFFFFFFF
_HEAD, _CHUNK, _END = struct.Struct("<8sII112s"), struct.Struct("<IIIIQ"), struct.Struct("<QQQQ")
KINDS = ("malloc", "calloc", "aligned", "realloc", "free", "touched", "time", "thread_end")
_BIRTHS = 4  # the first kinds
_NEXT = 16
VARIABLE, LIMIT_VARIABLE = "TRACE_RECORD", "TRACE_RECORD_LIMIT"
LIBRARY = "libtslab-record.so"


@dataclass(frozen=True)
class Facts:
    """A trace, by the heads of its chunks. `good_bytes` are whole; `finished` says that the program's end is there."""

    path: Path
    name: Path  # as a person knows it
    command: str
    pid: int
    calls: int
    lanes: int
    bytes: int
    good_bytes: int
    finished: bool
    limited: bool

    @property
    def program(self) -> str:
        return Path(self.command.split(" ", 1)[0]).name or "?"


@dataclass(frozen=True)
class Event:
    lane: int
    kind: str
    clock: int
    size: int = 0
    object: int = 0  # that is born
    old: int = 0  # that dies, is resized or was touched
    more: int = 0


def unpack(path: Path, to: Path) -> None:
    """Writes the trace to another file, not compressed. A compressed file that was cut is read as far as it goes."""
    try:
        with path.open("rb") as stream, to.open("wb") as out:
            expand = _expander(stream.peek(2)[:2])
            while part := stream.read(1 << 16):
                out.write(expand(part))
    except (zlib.error, lzma.LZMAError, EOFError):
        return  # from here on it is damaged
    except OSError as error:
        raise LabError(f"cannot read the trace {path}: {error.strerror or error}") from error


def _expander(start: bytes) -> Callable[[bytes], bytes]:
    """Returns the function that expands parts of a file that begins so."""
    if start == b"\x1f\x8b":
        return zlib.decompressobj(wbits=31).decompress
    return lzma.LZMADecompressor().decompress if start == b"\xfd7" else bytes


def pack(path: Path, to: Path) -> None:
    """Writes the trace to `to`, compressed if its name ends so."""
    with path.open("rb") as stream, _to_write(to) as out:
        shutil.copyfileobj(stream, out, 1 << 20)


def _to_write(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "wb"))
    return cast(IO[bytes], lzma.open(path, "wb")) if path.suffix == ".xz" else path.open("wb")


def facts(path: Path, name: Path | None = None) -> Facts:
    """Reads a trace that is not compressed. Messages call it `name`."""
    with path.open("rb") as stream:
        if path.stat().st_size < _HEAD.size:
            raise LabError(f"{name or path} is not a trace: tslab record makes one")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _facts(data, name or path, path)


def _facts(data: mmap.mmap, named: Path, path: Path) -> Facts:
    magic, version, pid, command = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise LabError(f"{named} is not a trace: tslab record makes one")
    if version != VERSION:
        raise LabError(f"{named} is a trace of version {version}, this tslab reads version {VERSION}: record it again")
    calls = lanes = limited = 0
    good, finished = _HEAD.size, False
    for at, lane, length, own, _ in chunks(data):
        good = at + length
        if lane == END:
            finished, limited = True, _END.unpack_from(data, at)[3]
        else:
            calls += own
            lanes = max(lanes, lane + 1)
    text = command.split(b"\0", 1)[0].decode(errors="replace")
    return Facts(path, named, text, pid, calls, lanes, len(data), good, finished, bool(limited))


def chunks(data: bytes | mmap.mmap) -> Iterator[tuple[int, int, int, int, int]]:
    """Returns where the bytes of each whole chunk begin, its lane, its length, its calls and its clock."""
    at = _HEAD.size
    while len(data) - at >= _CHUNK.size:
        lane, length, calls, _, clock = _CHUNK.unpack_from(data, at)
        at += _CHUNK.size
        if len(data) - at < length or (lane == END and length != _END.size):
            return
        yield at, lane, length, calls, clock
        at += length
        if lane == END:
            return


def events(data: bytes) -> Iterator[Event]:
    """Returns all events, in the order of the file."""
    for start, lane, length, _, clock in chunks(data):
        if lane == END:
            return
        at, event = start, Event(lane, "", clock)
        while at < start + length:
            at, event = _event(data, at, event)
            yield event


def _event(data: bytes, at: int, before: Event) -> tuple[int, Event]:
    first, kind, clock = data[at], KINDS[data[at] & 15], before.clock
    at += 1
    size = old = more = 0
    if kind == "time":
        at, more = _varint(data, at)
    elif kind != "thread_end":
        is_birth = KINDS.index(kind) < _BIRTHS
        step = 1 if is_birth else 0
        if not first & _NEXT:
            at, step = _varint(data, at)
        clock += step
        if kind in {"realloc", "free", "touched"}:
            at, back = _varint(data, at)
            old = clock - back
        if is_birth:
            at, size = _varint(data, at)
        if kind in {"aligned", "touched"}:
            at, more = _varint(data, at)
        return at, Event(before.lane, kind, clock, size, clock if is_birth else 0, old, more)
    return at, Event(before.lane, kind, clock, more=more)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return at, value


def how_far(found: Facts) -> str:
    """Returns what is wrong with a trace that is not whole, and how far it is good; empty for one that is whole."""
    if found.finished:
        return ""
    if found.good_bytes < found.bytes:
        return f"was cut: its first {found.good_bytes:,} bytes are good, with {found.calls:,} calls"
    return (
        f"is unfinished, for its program was killed or the file was cut: it has {found.calls:,} calls, and the last "
        "ones of each thread are missing"
    )


def environment(recorder: Path, folder: Path, limit: int) -> dict[str, str]:
    """Returns the variables under which each process of a command writes a trace into the folder."""
    before = os.environ.get("LD_PRELOAD", "")
    return os.environ | {
        "LD_PRELOAD": ":".join(filter(None, [str(recorder), before])),
        VARIABLE: f"{folder}/%p.trace",
        LIMIT_VARIABLE: str(limit),
    }


def make_missing(place: Project, options: Sequence[str]) -> None:
    """Makes the recordings that these options of the workload replay name and that are not there yet."""
    script = place.root / "bench" / "traces.py"
    names = [option.removeprefix("--trace=") for option in options]
    wanted = [name for name in names if not (place.workloads / "traces" / f"{name}.trace").exists()]
    if wanted and script.exists() and (place.workloads / LIBRARY).exists():
        print(f"recording {', '.join(wanted)}, which takes some 10 s each", file=sys.stderr)
        subprocess.run([sys.executable, str(script), *wanted, f"--folder={place.workloads}"], check=False)


def recordings(folder: Path) -> list[Facts]:
    """Returns the traces of a folder that have calls, the longest first."""
    found = []
    for path in sorted(folder.glob("*.trace")):
        with contextlib.suppress(LabError):  # its program ended before the head was written
            found.append(facts(path))
    return sorted((one for one in found if one.calls), key=lambda one: -one.calls)


def choose(found: Sequence[Facts], program: str | None) -> Facts | None:
    """Returns the recording of that program, or of the one that made the most calls."""
    return next((one for one in found if program in (None, one.program)), None)
