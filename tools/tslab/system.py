"""The system's figures of a process: memory, limits, and turns at a processor."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60


@dataclass(frozen=True)
class Limit:
    """`used` of `most` bytes; `name` says who set it."""

    name: str
    used: int
    most: int


@dataclass(frozen=True)
class System:
    at_ns: int  # CLOCK_MONOTONIC
    resident: int
    anonymous: int  # the resident bytes that no file backs: heaps, stacks, maps of the program's own
    cpu_ns: int
    waited_ns: int  # ready to run, without a processor
    throttled_ns: int  # held back by the cgroup's quota
    limits: tuple[Limit, ...]
    memory: int  # the most that the machine, the cgroup or a limit lets the process have


def look(pid: int, idle_reservation: int = 0) -> System | None:
    """None where /proc does not say. `idle_reservation` bytes of addresses are given up before a limit is met."""
    folder = Path("/proc") / str(pid)
    try:
        status = _kilobytes(folder / "status")
        cpu, waited = _turns(folder)
        limits = [*_cgroup_limits(folder), *_process_limits(folder, status, idle_reservation)]
    except OSError:
        return None
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return System(
        at_ns=time.clock_gettime_ns(time.CLOCK_MONOTONIC), resident=status.get("VmRSS", 0),
        anonymous=status.get("RssAnon", 0), cpu_ns=cpu, waited_ns=waited, throttled_ns=_throttled(folder),
        limits=tuple(limits), memory=min([machine, *(limit.most for limit in limits)]),
    )  # fmt: skip


def _kilobytes(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text(errors="replace").splitlines() if line.endswith(" kB"))
    return {words[0].rstrip(":"): int(words[1]) << 10 for words in lines}


def _turns(folder: Path) -> tuple[int, int]:
    """Of all threads: time on a processor, and time ready to run without one."""
    cpu = waited = 0
    for task in folder.joinpath("task").iterdir():
        with contextlib.suppress(OSError, IndexError):
            words = task.joinpath("schedstat").read_text().split()
            cpu, waited = cpu + int(words[0]), waited + int(words[1])
    return cpu, waited


def _process_limits(folder: Path, status: dict[str, int], idle_reservation: int) -> list[Limit]:
    found = []
    lines = folder.joinpath("limits").read_text().splitlines()[1:]
    soft = {line[:26].strip(): line[26:].split()[0] for line in lines}
    for name, used in (
        ("Max address space", status.get("VmSize", 0) - idle_reservation),
        ("Max data size", status.get("VmData", 0)),
    ):
        if soft.get(name, "unlimited") != "unlimited":
            option = "ulimit -v" if name == "Max address space" else "ulimit -d"
            found.append(Limit(option, max(0, used), int(soft[name])))
    return found


def _cgroup_limits(folder: Path) -> list[Limit]:
    """The tightest memory limit of the process's control groups, of either version."""
    found = []
    for group in _groups(folder, "memory"):
        for used, most in (
            ("memory.current", "memory.max"),
            ("memory.usage_in_bytes", "memory.limit_in_bytes"),
        ):
            with contextlib.suppress(OSError, ValueError):
                limit = int(group.joinpath(most).read_text())
                if limit < _UNLIMITED:
                    found.append(Limit("its control group", int(group.joinpath(used).read_text()), limit))
    return sorted(found, key=lambda limit: limit.most - limit.used)[:1]


def _throttled(folder: Path) -> int:
    for group in _groups(folder, "cpu"):
        with contextlib.suppress(OSError, ValueError):
            lines = group.joinpath("cpu.stat").read_text().splitlines()
            words = dict(line.split() for line in lines)
            if "throttled_usec" in words:
                return int(words["throttled_usec"]) * 1000
            if "throttled_time" in words:
                return int(words["throttled_time"])
    return 0


def _groups(folder: Path, controller: str) -> list[Path]:
    """The folders of the process's control groups for a controller, innermost first; empty where none is mounted."""
    found = []
    with contextlib.suppress(OSError):
        for line in folder.joinpath("cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number != "0" and controller not in controllers.split(","):
                continue
            base = _CGROUPS if number == "0" else _CGROUPS / controller
            place = base / path.lstrip("/")
            while place != base and base in place.parents:
                found.append(place)
                place = place.parent
            found.append(base)
    return [place for place in found if place.is_dir()]
