"""Run a command under temporal-slab, and sum up on standard error how it used memory.

tslab run -- ./server --port 80
tslab run --stats-interval 5 --samples slow.csv --set TSLAB_CACHE=1M -- make -j4

Its standard input and output are its own; signals reach it, and its exit status is ours. Without a file name nothing
is left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import resource
import shlex
import signal
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO

from rich.console import Console

from tslab import preload
from tslab import process as processes
from tslab.attribution import CsvWriter, samples_of
from tslab.errors import LabError, Unreadable
from tslab.figures import RESIDENT, Document, Source
from tslab.reporters.figures import changes, duration, size
from tslab.reporters.quantities import bytes_text, share_text, time_text

# The library renews its figures once a second.
LOOK_S = 1.0
PASSED_ON = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
    signal.SIGTSTP, signal.SIGCONT,
)  # fmt: skip
NOT_FOUND, NOT_EXECUTABLE = 127, 126
_MOST_PATHS = 4


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stats-interval", type=float, metavar="S", help="a line of figures every S seconds, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the last figures there")
    parser.add_argument("--samples", type=Path, metavar="FILE.csv", help="write raw samples there, for tslab samples")
    parser.add_argument("--lib", type=Path, metavar="PATH", help="the library (default: build/release, or installed)")
    parser.add_argument("--hardened", action="store_true", help="the slower library that names more mistakes")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting (repeatable)")


def run(arguments: argparse.Namespace, console: Console) -> int:
    del console  # standard output is the command's
    if not arguments.program or not arguments.program[0]:
        raise LabError("no command: tslab run [options] -- COMMAND...")
    if arguments.stats_interval is not None and not 0.1 <= arguments.stats_interval <= 86400:
        raise LabError(f"--stats-interval takes 0.1 to 86400 seconds, not {arguments.stats_interval:g}")
    variables = preload.environment(_library(arguments), arguments.set)
    if arguments.samples:
        variables.setdefault("TSLAB_SAMPLE_CPU", "16")  # users ask for samples to see what the calls waited for
    if preload.AT_EXIT in variables:
        raise LabError(f"{preload.AT_EXIT} is how the last figures reach tslab run: unset it, and use --json FILE")
    with tempfile.TemporaryDirectory(prefix="tslab-run-") as folder, contextlib.ExitStack() as files:
        variables[preload.AT_EXIT] = f"{folder}/%p.json"
        writer = CsvWriter(files.enter_context(_open(arguments.samples))) if arguments.samples else None
        if arguments.json:
            _open(arguments.json).close()  # now, rather than after an hour
        watch = Watch(Path(folder), writer, arguments.stats_interval)
        try:
            status = _run(arguments.program, variables, watch)
        except OSError as error:
            return _cannot_start(arguments.program[0], error)
        found = watch.last
        sys.stderr.write("".join(f"{line}\n" for line in summary(arguments.program, status, watch)))
        if arguments.json and found:
            arguments.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        elif arguments.json:
            print(f"tslab run: there are no figures for {arguments.json}", file=sys.stderr)
    if os.WIFSIGNALED(status):
        _end_by(os.WTERMSIG(status))
    return os.waitstatus_to_exitcode(status)


def _library(arguments: argparse.Namespace) -> Path:
    if arguments.hardened and arguments.lib:
        raise LabError("--hardened chooses the library itself: give it, or --lib PATH")
    return preload.find_library(arguments.lib, arguments.hardened)


def _open(path: Path) -> TextIO:
    try:
        return path.open("w", newline="", encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from error


def _cannot_start(name: str, error: OSError) -> int:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        print(f"tslab run: no command '{name}' to run", file=sys.stderr)
        return NOT_FOUND
    hint = "; a script needs a first line such as #!/bin/sh" if error.errno == errno.ENOEXEC else ""
    print(f"tslab run: cannot run '{name}': {error.strerror}{hint}", file=sys.stderr)
    return NOT_EXECUTABLE


def _end_by(number: int) -> None:
    """Ends as the command did, so that a waiting parent sees the same status. The command has left its core, if any."""
    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler to restore
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    sys.exit(128 + number)


# ---- while it runs ---------------------------------------------------------------------------------------------------


class Watch:
    """Watches the command: each second in shared memory, and at its end in the file that it leaves."""

    def __init__(self, folder: Path, samples: CsvWriter | None, interval: float | None) -> None:
        self.folder = folder
        self.samples = samples
        self.interval = interval
        self.pid = 0
        self.began = time.monotonic()
        self.seconds = 0.0
        self.last: Document | None = None
        self.whole = False  # `last` is from the very end
        self.most_live = 0
        self.most_resident = 0  # of what was looked at, so the peak is no lower
        self.others = 0
        self.usage: resource.struct_rusage | None = None
        self._reported: Document | None = None
        self._report_at = self.began + (interval or 0)

    def look(self) -> None:
        self.most_resident = max(self.most_resident, processes.most_resident_bytes(self.pid))
        with contextlib.suppress(LabError):  # too young, or not served: the summary says so
            self._take(Source(str(self.pid)).read())
        self._sweep()
        if self.interval and time.monotonic() >= self._report_at:
            self._report_at += self.interval
            self._report()

    def end(self) -> None:
        """The command has ended and is not yet reaped, so that its number is still its own."""
        self.look()
        processes.remove_segment(self.pid)
        path = self.folder / f"{self.pid}.json"
        if path.exists():
            with contextlib.suppress(Unreadable):
                last = Source(str(path)).read()
                self._take(last | {"state": "ended", "age_ns": 0})
                self.whole = True

    def wake_after(self) -> float:
        due = self._report_at - time.monotonic() if self.interval else LOOK_S
        return max(0.01, min(LOOK_S, due))

    def _take(self, found: Document) -> None:
        self.last = found
        self.most_live = max(self.most_live, found["process"].get("live_bytes", 0))
        self.most_resident = max(self.most_resident, found["process"].get(RESIDENT, 0))
        if self.samples:
            self.samples.add(samples_of(found))

    def _sweep(self) -> None:
        """Every process that the command starts leaves a file too; they are counted, and not kept."""
        for path in self.folder.iterdir():
            if path.name != f"{self.pid}.json":
                self.others += 1
                path.unlink(missing_ok=True)

    def _report(self) -> None:
        if self.last is None:
            return
        now = f"live {size(self.last['process'], 'live_bytes')}"
        if self._reported:
            now += f" · {changes(self._reported, self.last)}"
        print(f"tslab run: {time.monotonic() - self.began:.0f} s: {now}", file=sys.stderr)
        self._reported = self.last


def _run(command: list[str], variables: dict[str, str], watch: Watch) -> int:
    """The status that wait gives. Signals of ours are blocked, and waited for together with the command's end."""
    waited = {signal.SIGCHLD, *PASSED_ON}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    # The command must not inherit the signals that Python ignores for itself.
    watch.pid = os.posix_spawnp(
        command[0], command, variables, setsigmask=before, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
    )
    while True:
        number = signal.sigtimedwait(waited, watch.wake_after())
        if number is None:
            watch.look()
        elif number.si_signo != signal.SIGCHLD:
            _pass_on(watch.pid, number)
        state = os.waitid(os.P_PID, watch.pid, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        if state is None:
            continue
        if state.si_code == os.CLD_STOPPED:
            os.waitid(os.P_PID, watch.pid, os.WSTOPPED | os.WNOHANG)
            os.kill(os.getpid(), signal.SIGSTOP)  # the shell must see its job stop
            continue
        watch.seconds = time.monotonic() - watch.began
        watch.end()
        _, status, watch.usage = os.wait4(watch.pid, 0)
        return status


def _pass_on(pid: int, number: signal.struct_siginfo) -> None:
    """A terminal sends its signals to the whole group, so the command has them already. SIGCONT is harmless twice."""
    if number.si_code > 0 and number.si_signo != signal.SIGCONT:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number.si_signo)


# ---- at its end ------------------------------------------------------------------------------------------------------


def summary(command: list[str], status: int, watch: Watch) -> list[str]:
    how = (
        f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
        if os.WIFSIGNALED(status)
        else f"exit status {os.waitstatus_to_exitcode(status)}"
    )
    lines = [f"tslab run: {shlex.join(command):.100}: {how} after {time_text(watch.seconds * 1e9)}{_peak(watch)}"]
    found = watch.last
    if found is None:
        return [*lines, f"  {why_nothing(command, status)}"]
    if not watch.whole:
        lines.append(
            "  it ended without its exit handlers: the figures are its last published ones, up to a second old"
        )
    total, derived = found["process"], found["process"]["derived"]
    lines.append(
        f"  live         at the end {size(total, 'live_bytes')} in {total.get('live_blocks', 0):,} blocks, "
        f"at most {bytes_text(watch.most_live)} when looked at each second"
    )
    lines.append(f"  allocations  {total.get('allocations', 0):,}, of them {share_text(derived['slow_share'])} slow")
    lines += _slow_lines(found)
    lines.append(f"  locks        {share_text(derived['lock_contention_rate'])} contended")
    if total.get("epochs_opened"):
        lines.append(
            f"  epochs       {total['epochs_opened']:,} opened, {total.get('epochs_ended', 0):,} ended; recycled "
            f"{size(total, 'bytes_recycled')}, returned {size(total, 'bytes_returned')}"
        )
    if watch.samples:
        missed = f", {watch.samples.missed:,} between them came and went unseen" if watch.samples.missed else ""
        lines.append(f"  samples      {watch.samples.written:,} written{missed}")
    if watch.others:
        lines.append(
            f"  others       {watch.others:,} more processes that it started were served; these figures are its own"
        )
    return lines


def _peak(watch: Watch) -> str:
    """The kernel counts in what this process had when it started the command: a peak up to that is ours, and then what
    was seen of the command itself bounds it from below."""
    kernels = watch.usage.ru_maxrss * 1024 if watch.usage else 0
    ours = processes.most_resident_bytes(os.getpid()) or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if kernels > ours:
        return f", peak resident {bytes_text(kernels)}"
    return f", peak resident at least {bytes_text(watch.most_resident)}" if watch.most_resident else ""


def _slow_lines(found: Document) -> list[str]:
    slow = [row for row in found["paths"] if row["name"] != "fast" and row.get("entries")]
    slow.sort(key=lambda row: -row.get("wall_ns_sum", 0))
    whole = sum(row.get("wall_ns_sum", 0) for row in slow)
    lines = []
    for row in slow[:_MOST_PATHS]:
        share = share_text(row.get("wall_ns_sum", 0) / whole if whole else None)
        lines.append(
            f"  slow path    {row['name']}: {row['entries']:,} calls, {share} of the slow time, "
            f"p99 {duration(row['derived']['p99_ns'])}, longest {duration(row.get('wall_ns_max'))}"
        )
    return lines


def why_nothing(command: list[str], status: int) -> str:
    program = _path_of(command[0])
    if program and (reason := _ignores_preload(program)):
        return f"nothing was served: {program} {reason}"
    if os.WIFSIGNALED(status):
        return "no figures: it was killed before it published, which it does after its first second"
    return (
        "no figures: the library was not loaded, could not write them, or the program ended without its exit handlers "
        "(_exit, exec of another program) within its first second; what served it is not known"
    )


def _path_of(name: str) -> Path | None:
    folders = [""] if "/" in name else os.environ.get("PATH", os.defpath).split(":")
    return next((path for folder in folders if (path := Path(folder, name)).is_file()), None)


def _ignores_preload(program: Path) -> str:
    """Returns why the loader does not read LD_PRELOAD; empty if it does."""
    try:
        facts, head = program.stat(), program.open("rb").read(1 << 16)
    except OSError:
        return ""
    if (facts.st_mode & stat.S_ISUID and facts.st_uid != os.geteuid()) or (
        facts.st_mode & stat.S_ISGID and facts.st_gid != os.getegid()
    ):
        return "is set-user-id, and such programs ignore LD_PRELOAD; run it as its owner"
    if head[:4] == b"\x7fELF" and not _asks_for_loader(head):
        return "is linked statically, so no library can be preloaded; link it with libtslab.a"
    return ""


def _asks_for_loader(head: bytes) -> bool:
    """Returns true if a 64-bit ELF file has a PT_INTERP segment."""
    start, width, count = (int.from_bytes(head[at : at + n], "little") for at, n in ((32, 8), (54, 2), (56, 2)))
    kinds = (head[start + i * width : start + i * width + 4] for i in range(min(count, 64)))
    return any(int.from_bytes(kind, "little") == 3 for kind in kinds)
