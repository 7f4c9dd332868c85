"""Looks at a process from outside: the place of its figures, and its state.

Everything is read from /proc and needs no cooperation: it works on a process that hangs, is stopped, or has just been
killed and left its segment behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from tslab.errors import Unreadable
from tslab.segment import printable

DIRECTORY = "/dev/shm"

STATES = {
    "R": "running", "S": "sleeping", "I": "sleeping", "D": "waiting in the kernel", "T": "stopped", "t": "traced",
    "Z": "ended", "X": "ended",
}  # fmt: skip
GONE = "gone"
ENDED = frozenset({"ended", GONE})
FILE = "saved"


@dataclass(frozen=True)
class Process:
    pid: int
    state: str
    command: str
    started: float  # seconds since 1970; 0 when it is gone
    started_ns: int  # since the machine's start; never later than on CLOCK_MONOTONIC of the process. 0: not known
    users: frozenset[int]
    inner_pid: int  # as the process sees itself
    pid_namespace: int  # the inode of its pid namespace; 0: not known
    elsewhere: bool  # in another mount namespace


def look(pid: int) -> Process | None:
    """None when there is no such process."""
    folder = Path("/proc") / str(pid)
    try:
        words = folder.joinpath("stat").read_text(errors="replace").rpartition(")")[2].split()
        lines = folder.joinpath("status").read_text(errors="replace").splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        arguments = folder.joinpath("cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Process(
        pid=pid,
        state=STATES.get(words[0], words[0]),
        command=printable(arguments.decode(errors="backslashreplace") or f"[{status['Name']}]"),
        started=_boot_time() + int(words[19]) / os.sysconf("SC_CLK_TCK"),
        started_ns=_least_start_ns(pid, int(words[19])),
        users=frozenset(int(word) for word in status["Uid"].split()),
        inner_pid=int(status.get("NSpid", str(pid)).split()[-1]),
        pid_namespace=int("0" + re.sub(r"\D", "", _link(pid, "pid"))),
        elsewhere=_namespace(pid) != _namespace(os.getpid()) != "",
    )


def why_not_its(process: Process, pid: int, pid_namespace: int, monotonic_ns: int) -> str:
    """Says why a segment cannot be the process's own, from what its header and its latest snapshot say. Empty: it can.

    A file of the same name may be there from a killed process whose number was given out again, or from a process of
    another pid namespace that sees the same files.
    """
    if pid != process.inner_pid:
        return f"says it is of process {pid}: not made by process {process.pid}, and not believed"
    if 0 not in (pid_namespace, process.pid_namespace) and pid_namespace != process.pid_namespace:
        return f"was made in another pid namespace, by a process that has the number {pid} there"
    if monotonic_ns < process.started_ns:
        return f"was left by an earlier process with the number {pid}, which was killed"
    return ""


def _least_start_ns(pid: int, ticks: int) -> int:
    """The earliest moment at which the process can have started, on the clock by which the library dates figures.

    That clock stands still while the machine is suspended, and /proc's does not, so all suspensions are taken off. The
    clock of the wall is not asked: it may be set. 0 for a process in another time namespace, whose clock is shifted.
    """
    if _link(pid, "time") != _link("self", "time") != "":
        return 0
    suspended = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return max(0, ticks * 10**9 // os.sysconf("SC_CLK_TCK") - max(0, suspended))


def has_executed_another(process: Process, inode: int) -> bool:
    """Returns true if the process does not have the segment's file in its memory, where its writer has it.

    A program that is executed inherits the number of the process, and nothing of its memory. False where /proc does not
    say, and of a process that has ended.
    """
    try:
        lines = Path(f"/proc/{process.pid}/maps").read_bytes().splitlines()
    except OSError:
        return False
    name = f"/tslab.{process.inner_pid}".encode()
    return bool(lines) and not any(name in line and int(line.split(maxsplit=5)[4]) == inode for line in lines)


def resident_bytes(pid: int) -> int:
    """0 where /proc does not say, and of a process that has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def most_resident_bytes(pid: int) -> int:
    """The peak so far of the program that the process runs now. 0 where /proc does not say, and after its end."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


def _boot_time() -> float:
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _namespace(pid: int) -> str:
    """Empty where we may not look; then it is taken for ours."""
    return _link(pid, "mnt") or _link("self", "mnt")


def _link(pid: int | str, kind: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")  # noqa: PTH115
    except OSError:
        return ""


def segment_path(process: Process) -> str:
    root = f"/proc/{process.pid}/root" if process.elsewhere else ""
    return f"{root}{DIRECTORY}/tslab.{process.inner_pid}"


def open_segment(path: str, owners: frozenset[int], mode: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file of one of these users, ours or root's. FileNotFoundError when there is none.

    In another mount namespace a link on the way would be followed in ours, so none is followed at all.
    """
    outer = path.startswith("/proc/")
    at = os.open("/".join(path.split("/")[:4]) if outer else DIRECTORY, os.O_PATH | os.O_DIRECTORY)
    try:
        for name in ("dev", "shm") if outer else ():
            below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        return _open_file(path, owners, at, mode)
    finally:
        os.close(at)


def _open_file(path: str, owners: frozenset[int], at: int, mode: int) -> int:
    flags = mode | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        descriptor = os.open(path.rpartition("/")[2], flags, dir_fd=at)
    except PermissionError as error:
        what = "read" if mode == os.O_RDONLY else "write"
        raise Unreadable(f"{path} is not yours to {what}: run this as {owner_names(owners)}, or with sudo") from error
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.EROFS:
            raise Unreadable(f"{path} lies on a file system that is mounted to be read alone") from error
        raise Unreadable(f"{path} is no regular file ({error.strerror}), so no segment of ours; remove it") from error
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        os.close(descriptor)
        raise Unreadable(f"{path} is no regular file, so no segment of temporal-slab; remove it")
    if facts.st_uid not in owners | {0, os.geteuid()}:
        os.close(descriptor)
        raise Unreadable(
            f"{path} belongs to {owner_names({facts.st_uid})}, not to {owner_names(owners)} who runs the process: "
            f"somebody else put it there, and it is not read"
        )
    return descriptor


def remove_segment(pid: int) -> None:
    """Of a child of ours that was killed, so that it could not do it, and is not reaped yet."""
    with contextlib.suppress(OSError):
        Path(f"{DIRECTORY}/tslab.{pid}").unlink()


def owner_names(users: frozenset[int] | set[int]) -> str:
    return " or ".join(sorted({_user_name(user) for user in users})) or "its user"


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
