"""One run of one program under one arm: its output, its cost, and the check that the right allocator served it."""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tslab.arms import Arm, environment
from tslab.errors import LabError, NotServed

SERVED_LEAST_PCT = 99.0
NOT_SERVED_STATUS = 4  # a workload's status when the expected allocator did not serve
# Metrics end in their unit; of these, more is better, and of everything else, less.
MORE_IS_BETTER = ("_per_s", "scaling_ratio")


def higher_is_better(metric: str) -> bool:
    return metric.endswith(MORE_IS_BETTER)


@dataclass(frozen=True)
class Program:
    """The program to run. A workload of ours prints rows and proves its allocator; any other command is timed as a
    whole.

    One that `preloads` puts the library only under the programs that it starts, not under itself.
    """

    command: tuple[str, ...]
    is_workload: bool
    preloads: bool = False

    @property
    def name(self) -> str:
        return " ".join((Path(self.command[0]).name, *self.command[1:]))


@dataclass(frozen=True)
class Row:
    workload: str
    variant: str
    seed: int
    metrics: Mapping[str, float]
    proof: Mapping[str, Any]
    series: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Run:
    rows: tuple[Row, ...]
    wall_s: float
    cpu_s: float
    peak_rss_bytes: float | None
    forced_switches: int


class RunFailed(LabError):
    """A program that crashed, timed out or printed nonsense. In a table this is a row that says so."""

    def __init__(self, message: str, status: str = "crashed") -> None:
        super().__init__(message)
        self.status = status  # crashed, stopped or missing, as a table shows it


def find_program(command: Sequence[str], workloads: Path) -> Program:
    """A bare name is a workload if there is one of that name, and a command otherwise."""
    if not command:
        raise LabError("no program given: put it after --, as in `tslab ab A B -- random-mixed`")
    own = workloads / command[0]
    if "/" not in command[0] and own.exists():
        return Program((str(own), *command[1:]), is_workload=True)
    return Program(tuple(command), Path(command[0]).resolve().parent == workloads.resolve())


def run(program: Program, arm: Arm, *, pad_to: int = 0, timeout_s: float = 600, options: Sequence[str] = ()) -> Run:
    command = [*program.command, *options]
    if program.is_workload:
        command.append(f"--expect={arm.library or 'glibc'}")
    variables = environment(arm, pad_to)
    if program.preloads and "LD_PRELOAD" in variables:
        del variables["LD_PRELOAD"]
        command.append(f"--preload={arm.library}")
    started = time.monotonic()
    try:
        # A group of its own, so that a program that is stopped takes the programs that it started with it.
        process = subprocess.Popen(
            command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        how = "build the workloads with ./dev build --all"
        raise LabError(f"cannot run {command[0]}: {error.strerror}; {how}") from error
    out, err = _drain(process, timeout_s)
    _, ended, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(ended)
    wall = time.monotonic() - started
    if process.returncode == NOT_SERVED_STATUS and program.is_workload:
        raise NotServed(f"{program.name} under {arm.name}: {_last_line(err) or 'another allocator served the calls'}")
    if process.returncode != 0:
        missing, failed = _row_reason(out, "missing"), _row_reason(out, "failed")
        why = missing or failed or _last_line(err)
        status = "missing" if missing else "stopped" if wall >= timeout_s else "crashed"
        raise RunFailed(
            f"{program.name} under {arm.name}: {_ending(process.returncode, wall, timeout_s)}"
            + (f": {why}" if why else ""),
            status,
        )
    rows = tuple(_rows(out, program)) if program.is_workload else ()
    for row in rows:
        _check_proof(row, arm, program)
    return Run(rows, wall, usage.ru_utime + usage.ru_stime, _peak_rss(rows, usage), usage.ru_nivcsw)


def _peak_rss(rows: Sequence[Row], usage: resource.struct_rusage) -> float | None:
    """A workload's own figure, or the kernel's, which starts at the peak of the launching process: this one's. A peak
    at or below that says nothing about the program, and the result leaves it out."""
    if rows:
        return max(row.metrics.get("peak_rss_bytes", 0.0) for row in rows)
    if usage.ru_maxrss <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
        return None
    return usage.ru_maxrss * 1024.0


def _drain(process: subprocess.Popen[bytes], timeout_s: float) -> tuple[str, str]:
    """Reads both streams to their ends without reaping the process, whose resource usage is wanted afterwards."""
    assert process.stdout and process.stderr
    streams: dict[Any, list[bytes]] = {process.stdout: [], process.stderr: []}
    deadline = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                os.killpg(process.pid, signal.SIGKILL)
                break
            for key, _ in selector.select(left):
                data = os.read(key.fd, 1 << 16)
                if data:
                    streams[key.fileobj].append(data)
                else:
                    selector.unregister(key.fileobj)
    texts = [b"".join(parts).decode(errors="replace") for parts in streams.values()]
    for stream in streams:
        stream.close()
    return texts[0], texts[1]


def _rows(out: str, program: Program) -> list[Row]:
    rows = []
    for line in out.splitlines():
        if not line.startswith("{"):
            continue
        try:
            data = json.loads(line)
            metrics = {str(name): float(value) for name, value in data["metrics"].items() if value is not None}
            rows.append(
                Row(
                    data["workload"], data["variant"], int(data["seed"]), metrics, data["proof"], data.get("series", {})
                )
            )
        except (ValueError, KeyError, TypeError) as error:
            raise RunFailed(f"{program.name} printed a row that cannot be read ({error}): {line[:120]}") from error
    if not rows:
        raise RunFailed(f"{program.name} printed no row")
    return rows


def _row_reason(out: str, key: str) -> str:
    """Why a row of real programs has no figures: {"missing": "nginx is not installed"} or {"failed": ...}."""
    for line in out.splitlines():
        if line.startswith("{"):
            try:
                return str(json.loads(line).get(key, ""))
            except ValueError:
                continue
    return ""


def _check_proof(row: Row, arm: Arm, program: Program) -> None:
    """The workload has checked itself; this checks the workload. Programs started with a preload are proved by the
    loader's record of their bindings, which knows no share."""
    unknown = 100.0 if program.preloads else 0.0
    served, source = float(row.proof.get("served_pct", unknown)), str(row.proof.get("malloc_from", ""))
    if served < SERVED_LEAST_PCT:
        raise NotServed(
            f"{row.workload} under {arm.name}: the allocator served {served:.2f} % of the calls; "
            f"a run below {SERVED_LEAST_PCT:g} % is no row"
        )
    if arm.library is not None and Path(source).resolve() != arm.library:
        raise NotServed(
            f"{row.workload} under {arm.name}: wrong library: malloc came from {source}, not from {arm.library}"
        )
    if arm.library is None and "libc.so" not in Path(source).name:
        raise NotServed(f"{row.workload} under {arm.name}: wrong library: malloc came from {source}, not from glibc")


def _ending(status: int, wall: float, timeout_s: float) -> str:
    if wall >= timeout_s:
        return f"stopped after {timeout_s:.0f} s"
    if status < 0:
        return f"crashed with signal {-status}"
    return f"exited with status {status}"


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
