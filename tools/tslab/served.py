"""The processes of this machine that run under the library, containers included.

A process that has figures is found by its segment, which costs a file look-up. A process without figures is found by
the library in its memory map, which costs more and is done only for those that ask for it (`idle`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tslab import process as processes
from tslab.errors import LabError, Unreadable
from tslab.figures import Document, read_pair
from tslab.process import Process

_PROC = Path("/proc")


@dataclass(frozen=True)
class Served:
    """One process under the library. Without a document, `why` gives the reason."""

    pid: int
    process: Process | None
    document: Document | None
    before: Document | None  # the figures that were published last but one, about a second earlier
    why: str = ""


def published() -> list[int]:
    """Returns the processes that have a segment, of any user."""
    own = {int(name[6:]) for name in _names(processes.DIRECTORY) if name.startswith("tslab.") and name[6:].isdigit()}
    here = (_link("self", "mnt"), _link("self", "pid"))
    found = []
    for pid in _pids():
        namespaces = (_link(str(pid), "mnt"), _link(str(pid), "pid"))
        if namespaces in (here, ("", "")):
            if pid in own:
                found.append(pid)
        elif (process := processes.look(pid)) and _exists(processes.segment_path(process)):
            found.append(pid)
    return found


def idle(known: list[int]) -> list[int]:
    """The processes that have the library in their memory map and no segment."""
    seen = set(known)
    return [pid for pid in _pids() if pid not in seen and _has_library(pid)]


def read_all(pids: list[int]) -> Iterator[Served]:
    """Reads each process; one that ends meanwhile is left out."""
    for pid in pids:
        try:
            document, before = read_pair(pid)
        except Unreadable as error:
            if process := processes.look(pid):
                yield Served(pid, process, None, None, str(error))
        except (LabError, OSError) as error:
            yield Served(pid, processes.look(pid), None, None, str(error))
        else:
            yield Served(pid, processes.look(pid), document, before)


def _pids() -> list[int]:
    return sorted(int(name) for name in _names(_PROC) if name.isdigit())


def _names(folder: str | Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def _link(pid: str, kind: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")  # noqa: PTH115
    except OSError:
        return ""


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:
        return False


def _has_library(pid: int) -> bool:
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/maps").open("rb") as maps:
        return any(b"libtslab" in line for line in maps)
    return False
