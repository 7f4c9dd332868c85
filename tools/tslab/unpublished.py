"""Finds the one cause why a process has no segment, from /proc.

The library makes its thread, which publishes, when the heap reaches a mebibyte, or at the first slow path of malloc
after a second. So a process that has the thread and no segment could not make the file, and a process without the
thread holds little, or could not make the thread.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import signal
import stat
import struct
import time
from pathlib import Path

from tslab import process as processes
from tslab.process import Process, owner_names

HOW_TO_START = "start it with `tslab run -- COMMAND`, or with LD_PRELOAD=/path/to/libtslab.so"
# The thread's first look comes a quarter of a second after it was made, and a smaller heap is looked at after a second.
YOUNG_S = 3.0
# The most that a process without the thread has resident in its heap: a mebibyte in use and half of one free.
SMALL_HEAP_BYTES = 2 << 20
# The size of a segment, in bytes: a limit below it keeps the library from making one.
SEGMENT_BYTES = 764 << 10
FILE_BYTES, FILES_SHARE = 128 << 10, 4  # of src/stats/publish.c
NAME_IN_LIBRARY = b"/dev/shm/tslab."  # SEGMENT_NAME of src/stats/segment.h; a build without telemetry lacks it
AT_SECURE = 23


def why(process: Process, path: str) -> str:
    """Returns one sentence on the cause, and one on the remedy."""
    here = f"process {process.pid} ({process.command:.60})"
    if process.state == processes.STATES["Z"]:
        return f"{here} has ended and waits for its parent: its figures are gone"
    try:
        return f"{here} {_of_living(process, path)}"
    except PermissionError:
        if process.users & {os.geteuid()}:
            return f"{here} is yours, but the system does not let you look into it: try sudo, or from its container"
        return f"{here} belongs to {owner_names(process.users)}: run this as that user, or with sudo"
    except OSError:
        if process.command.startswith("["):
            return f"{here} has no memory of its own: it ends just now, or is the kernel's"
        return f"process {process.pid} ended while it was looked at"


def _of_living(process: Process, path: str) -> str:
    facts = Path("/proc") / str(process.pid)
    maps = facts.joinpath("maps").read_text(errors="replace").splitlines()
    environment = facts.joinpath("environ").read_bytes()
    status = _status(facts)
    library = next((line for line in maps if "libtslab" in line), None)
    if library is None and not _contains(facts / "exe"):
        return f"runs without temporal-slab (libtslab is not in its memory map): {HOW_TO_START}"
    if off := _switched_off(facts, environment, library):
        return off
    if any(line.endswith(f"/tslab.{process.inner_pid} (deleted)") for line in maps):
        return f"published, but somebody removed {path}: it makes the file again when it allocates next"
    if time.time() - process.started < YOUNG_S:
        return "is too young: it publishes after its first second; look again in a moment"
    if _has_the_thread(facts):
        return _no_file(process, facts, status, path)
    return _no_thread(process, facts, status)


def _status(folder: Path) -> dict[str, str]:
    lines = folder.joinpath("status").read_text(errors="replace").splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def _contains(program: Path) -> bool:
    """Returns true if the file names the segment, as the library and what it is linked into do, or cannot be read."""
    try:
        with program.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(NAME_IN_LIBRARY) >= 0
    except (OSError, ValueError):
        return True


def _switched_off(facts: Path, environment: bytes, library: str | None) -> str | None:
    settings = dict(word.partition(b"=")[::2] for word in environment.split(b"\0"))
    for name in (b"TSLAB_PUBLISH", b"TSLAB_SCAVENGER"):
        if settings.get(name) == b"0":
            return f"has {name.decode()}=0 in its environment, so it does not publish: start it without"
    if dict(struct.iter_unpack("NN", facts.joinpath("auxv").read_bytes())).get(AT_SECURE):
        return "runs with more rights than its user (set-user-id or capabilities), so it does not publish"
    file = library[library.index("/") :] if library else ""
    if file and not _contains(Path(f"{facts}/root{file}")):
        return f"has {file}, which was built without TSLAB_TELEMETRY: it never publishes"
    return None


def _has_the_thread(facts: Path) -> bool:
    """Returns true if a thread blocks every signal that can be blocked, but those libc keeps for itself (32 to 34) and
    those that its own instructions raise.

    The first thread is the program's own: right after a fork it blocks them all for a moment.
    """
    raised = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS)
    every = ((1 << 64) - 1) & ~(1 << 8 | 1 << 18 | 7 << 31 | sum(1 << number - 1 for number in raised))
    first = facts.name
    for task in facts.joinpath("task").iterdir():
        if task.name == first:
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if int(_status(task)["SigBlk"], 16) & every == every:
                return True
    return False


# ---- the thread is there, the file is not ----------------------------------------------------------------------------


def _no_file(process: Process, facts: Path, status: dict[str, str], path: str) -> str:
    directory = f"{facts}/root{processes.DIRECTORY}"
    cause = _closed_directory(directory, status) or _low_limit(facts)
    if cause is None and status.get("Seccomp") == "2":
        cause = "its seccomp filter forbids a call that making the file takes (openat, truncate, newfstatat)"
    if cause is None:
        cause = f"making {path} failed"
    return f"cannot publish: {cause}. It tries again once a minute when it allocates"


def _closed_directory(directory: str, status: dict[str, str]) -> str | None:
    name = processes.DIRECTORY
    try:
        facts, room = Path(directory).stat(), os.statvfs(directory)
    except FileNotFoundError:
        return f"it has no {name}; mount a tmpfs there"
    if not stat.S_ISDIR(facts.st_mode):
        return f"its {name} is no directory"
    if room.f_flag & os.ST_RDONLY:
        return f"its {name} is mounted read-only"
    user = int(status["Uid"].split()[3])
    groups = {int(word) for word in (status["Gid"].split()[3], *status.get("Groups", "").split())}
    shift = 6 if user == facts.st_uid else 3 if facts.st_gid in groups else 0
    if user != 0 and facts.st_mode >> shift & 3 != 3:
        return f"{owner_names({user})} may not write to its {name}"
    if room.f_blocks and (room.f_bavail * room.f_frsize < SEGMENT_BYTES or (room.f_files and room.f_favail == 0)):
        return f"its {name} is full"
    living = sum(1 for entry in Path(directory).iterdir() if re.fullmatch(r"tslab\.[1-9][0-9]*", entry.name))
    if room.f_blocks and (living + 1) * FILE_BYTES > room.f_blocks * room.f_frsize // FILES_SHARE:
        return (
            f"the files of {living} processes take the quarter of its {name} that is theirs: make it larger (in a "
            f"container: --shm-size)"
        )
    return None


def _low_limit(facts: Path) -> str | None:
    limits = {line[:26].strip(): line[26:].split()[0] for line in facts.joinpath("limits").read_text().splitlines()[1:]}
    most, files = limits["Max file size"], limits["Max open files"]
    if most != "unlimited" and int(most) < SEGMENT_BYTES:
        return f"its limit of file sizes is {most} bytes (ulimit -f)"
    if files != "unlimited" and len(list(facts.joinpath("fd").iterdir())) >= int(files):
        return f"it has as many open files as its limit of {files} allows (ulimit -n)"
    return None


# ---- the thread is not there -----------------------------------------------------------------------------------------


def _no_thread(process: Process, facts: Path, status: dict[str, str]) -> str:
    held = _heap_resident(facts)
    if _is_copy_of_parent(facts, status):
        return (
            f"was forked by process {status['PPid']} and has allocated little since: a fork child publishes when it "
            f"has taken a mebibyte of its own, or allocates more than a second after the fork"
        )
    if held < SMALL_HEAP_BYTES:
        return (
            f"has a heap of {held >> 10} KiB and has allocated nothing since its first second: a heap is published "
            f"from a mebibyte on, a smaller one when it allocates after its first second"
        )
    if status.get("Seccomp") == "2":
        return "cannot publish: its seccomp filter forbids making a thread"
    return (
        "cannot publish: it could not make a thread when it tried (limits of processes: ulimit -u, pids.max of its "
        "cgroup). It tries again once a minute when it allocates"
    )


def _is_copy_of_parent(facts: Path, status: dict[str, str]) -> bool:
    """Returns true if it did not execute a program since its fork: each execution has an auxiliary vector of its own,
    with random addresses, and a fork child keeps its parent's."""
    parent = Path("/proc") / status["PPid"]
    try:
        same = facts.joinpath("auxv").read_bytes() == parent.joinpath("auxv").read_bytes()
        return same and facts.joinpath("exe").readlink() == parent.joinpath("exe").readlink()
    except OSError:
        return False


def _heap_resident(facts: Path) -> int:
    """Resident bytes of the last writable mapping in front of the longest reservation, which is the heap."""
    mappings: list[tuple[int, int, str, int]] = []
    for line in facts.joinpath("smaps").read_text(errors="replace").splitlines():
        words = line.split()
        if words[0] == "Rss:" and mappings:
            start, end, rights, _ = mappings[-1]
            mappings[-1] = (start, end, rights, int(words[1]) << 10)
        elif "-" in words[0] and not words[0].endswith(":"):
            start, end = (int(word, 16) for word in words[0].split("-"))
            mappings.append((start, end, words[1] if len(words) == 5 else "file", 0))
    reserved = max((m for m in mappings if m[2].startswith("---")), key=lambda m: m[1] - m[0], default=None)
    before = mappings[: mappings.index(reserved)] if reserved else []
    held = 0
    for _, _, rights, resident in reversed(before):
        if not rights.startswith("rw"):
            break
        held += resident
    return held
