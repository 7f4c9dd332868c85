"""Epochs and statistics of the process that this Python runs in, by ctypes.

The library must have been preloaded (`tslab run -- python program.py`): nothing can replace malloc later. Without it
epochs do nothing and have no report, so the same program runs with the library and without it; available() says which.

Threads: an epoch's scope belongs to the thread that entered it, and is left in that thread. docs/python.md says which
memory CPython keeps to itself.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

_FIELDS = (
    "epoch", "threads_inside", "live_blocks", "live_bytes", "slabs_pinned", "bytes_recycled", "bytes_returned",
    "rss_before", "rss_after", "elapsed_ns",
)  # fmt: skip
_RESERVED = 6
_WRITE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class EpochError(RuntimeError):
    """An epoch could not be opened, entered, left or closed; the message says why."""


@dataclass(frozen=True)
class Report:
    """The report of an epoch's close, in bytes and blocks: tslab_epoch_report in tslab.h."""

    live_blocks: int
    live_bytes: int
    slabs_pinned: int
    bytes_recycled: int
    bytes_returned: int
    threads_inside: int


class _CReport(ctypes.Structure):
    _fields_ = (*((name, ctypes.c_uint64) for name in _FIELDS), ("reserved", ctypes.c_uint64 * _RESERVED))


class _COptions(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("label", ctypes.c_char_p),
        ("budget_bytes", ctypes.c_uint64),
        ("prefault_bytes", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("parent", ctypes.c_uint64),
    )


@functools.cache
def _loaded() -> ctypes.CDLL | None:
    """Returns the library that serves this process, or None. Looks only once, because the library cannot come later."""
    found = ctypes.CDLL(None, use_errno=True)
    try:
        found.tslab_epoch_open_with.restype = ctypes.c_uint64
        found.tslab_epoch_open_with.argtypes = [ctypes.POINTER(_COptions)]
        found.tslab_epoch_enter.argtypes = found.tslab_epoch_leave.argtypes = [ctypes.c_uint64]
        found.tslab_epoch_close.argtypes = [ctypes.c_uint64, ctypes.POINTER(_CReport)]
        found.tslab_stats_json.argtypes = [_WRITE, ctypes.c_void_p]
    except AttributeError:
        return None
    return found


def available() -> bool:
    """Returns true if temporal-slab serves this process."""
    return _loaded() is not None


def library(hardened: bool = False) -> Path | None:
    """The library that this package's wheel brought, for LD_PRELOAD; None where the command alone is installed."""
    path = Path(__file__).parent / "lib" / f"libtslab{'-hardened' if hardened else ''}.so.0"
    return path if path.exists() else None


class epoch:  # noqa: N801 (it reads like the `with` statement it is made for)
    """A named lifetime: blocks that this thread mallocs inside, C libraries included, lie together and are counted.

    with tslab.epoch("batch") as batch:
        work()
    if batch.report:
        print(batch.report.live_bytes, "bytes outlived the batch")

    `budget` is the bytes after which malloc inside fails, which Python raises as MemoryError. `report` is None until
    the end, and without the library. Blocks that outlive the epoch stay valid. One object is good for many epochs, one
    after the other.
    """

    def __init__(self, label: str, budget: int = 0) -> None:
        self.label = label
        self.budget = budget
        self.report: Report | None = None
        self._id = 0
        self._inside = False
        self._raw = _CReport()  # made here, so that it is no block of the epoch

    def __enter__(self) -> epoch:
        loaded = _loaded()
        if self._inside:
            raise EpochError(f"epoch '{self.label}' is entered already: make another object for another scope")
        self.report = None
        if loaded is None:
            self._inside = True
            return self
        options = _COptions(ctypes.sizeof(_COptions), self.label.encode(), self.budget, 0, 0, 0)
        self._id = loaded.tslab_epoch_open_with(ctypes.byref(options))
        if self._id == 0:
            raise self._failed("cannot be opened", ctypes.get_errno())
        error = loaded.tslab_epoch_enter(self._id)
        if error:
            loaded.tslab_epoch_close(self._id, None)
            raise self._failed("cannot be entered", error)
        self._inside = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, at: TracebackType | None
    ) -> None:
        loaded = _loaded()
        if loaded is None:
            self._inside = False
            return
        error = loaded.tslab_epoch_leave(self._id)
        if error:
            raise self._failed("is not this thread's innermost scope: leave it where it was entered", error)
        self._inside = False
        error = loaded.tslab_epoch_close(self._id, ctypes.byref(self._raw))
        if error:
            raise self._failed("cannot be closed", error)
        self.report = Report(**{name: getattr(self._raw, name) for name in Report.__dataclass_fields__})

    def _failed(self, what: str, error: int) -> EpochError:
        return EpochError(f"epoch '{self.label}' {what} ({os.strerror(error)})")


def stats() -> dict[str, Any]:
    """All statistics of this process, as docs/observability.md describes them.

    Raises EpochError without the library."""
    loaded = _loaded()
    if loaded is None:
        raise EpochError("temporal-slab does not serve this process: start it with `tslab run -- COMMAND`")
    pieces: list[bytes] = []

    def keep(piece: int, length: int, _: int) -> int:
        pieces.append(ctypes.string_at(piece, length))
        return 0

    loaded.tslab_stats_json(_WRITE(keep), None)
    found: dict[str, Any] = json.loads(b"".join(pieces))
    return found
