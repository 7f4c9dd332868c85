"""Record which calls of malloc's family a command makes, into a file for tslab replay.

tslab record -- python3 service.py                  writes python3.trace.gz
tslab record -o build.trace.xz --of cc1 -- make     the compiler, of all processes that make starts

A command may start other programs. The recording is of the one process that made the most calls, or of the program that
--of names. It has sizes, threads, order and times, and nothing of what the program kept in its memory. A process that
only forked, and exec'ed nothing, is not recorded. Meanwhile glibc's malloc serves the program, and it runs slower.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tslab import given, project, trace
from tslab.errors import LabError
from tslab.reporters.quantities import bytes_text

NOT_FOUND, NOT_EXECUTABLE = 127, 126
_OTHERS = 4


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE",
        help="the recording; .gz or .xz: compressed (default: PROGRAM.trace.gz)",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=_size, default="1G", metavar="SIZE",
        help="stop recording a process at so many bytes, about three a call (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--of", metavar="PROGRAM", help="the recording of this program, not of the busiest")
    parser.add_argument("--preset", default="release", help="which build has the recorder (default: %(default)s)")


def run(arguments: argparse.Namespace, console: Console) -> int:
    del console  # standard output is the command's
    if not arguments.program or not arguments.program[0]:
        raise LabError("no command: tslab record [options] -- COMMAND...")
    out = given.place_for(arguments.out or Path(f"{Path(arguments.of or arguments.program[0]).name}.trace.gz"))
    recorder = find_recorder(arguments.preset)
    with tempfile.TemporaryDirectory(prefix=".tslab-record-", dir=out.parent) as name:
        folder = Path(name).resolve()
        status = _run(arguments.program, trace.environment(recorder, folder, arguments.limit))
        if status in {NOT_FOUND, NOT_EXECUTABLE} and not any(folder.iterdir()):
            return status
        _keep(arguments, folder, out)
    return 128 - status if status < 0 else status


def find_recorder(preset: str) -> Path:
    for place in (project.find(preset), project.find(preset, Path(__file__))):
        found = (place.workloads / trace.LIBRARY).resolve()
        if found.exists():
            if re.search(r"[ :]", str(found)):
                raise LabError(
                    f"'{found}' has a space or a colon in it, where LD_PRELOAD ends a name: move the repository"
                )
            return found
    raise LabError(f"no {trace.LIBRARY}: it comes with the repository; build it there with ./dev build {preset} --all")


def _size(text: str) -> int:
    size = given.size(text)
    if size is None or not 1 << 16 <= size < 1 << 50:
        raise argparse.ArgumentTypeError(f"a size of at least 64K, such as 200M or 1G, not '{text}'")
    return size


def _run(command: list[str], variables: dict[str, str]) -> int:
    """Runs the command. Signals from the terminal reach it, and this process waits for its end."""
    try:
        process = subprocess.Popen(command, env=variables)
    except FileNotFoundError:
        print(f"tslab record: no command '{command[0]}' to run", file=sys.stderr)
        return NOT_FOUND
    except OSError as error:
        print(f"tslab record: cannot run '{command[0]}': {error.strerror}", file=sys.stderr)
        return NOT_EXECUTABLE
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(process.pid, signal.SIGTERM))
    try:
        return process.wait()
    finally:
        for number, handler in (
            (signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL),
            (signal.SIGTERM, signal.SIG_DFL),
        ):  # fmt: skip
            signal.signal(number, handler)


def _keep(arguments: argparse.Namespace, folder: Path, out: Path) -> None:
    """Writes the recording that was asked for, and says what it has, and what else there was."""
    found = trace.recordings(folder)
    chosen = trace.choose(found, arguments.of)
    if chosen is None and found:
        raise LabError(f"no process of '{arguments.of}' was recorded, but of {_names(found)}")
    if chosen is None:
        raise LabError(
            f"nothing was recorded of {shlex.join(arguments.program):.100}: it makes no such call, is static or "
            "set-user-id, or has a malloc of its own linked in"
        )
    trace.pack(chosen.path, out)
    size = bytes_text(out.stat().st_size)
    threads = "1 thread" if chosen.lanes == 1 else f"{chosen.lanes} threads at a time"
    said = [f"{chosen.calls:,} calls of {chosen.program}, {threads}, in {out} ({size})"]
    if chosen.limited:
        said.append(f"  it stops at the limit of {bytes_text(arguments.limit)}: a larger --limit records more")
    if not chosen.finished:
        said.append("  the program was killed, so the last calls of each thread are missing: replay it with --partial")
    others = [one for one in found if one is not chosen]
    if others:
        said.append(f"  not kept: {_names(others)}; --of NAME keeps another")
    print("\n".join(f"tslab record: {line}" for line in said), file=sys.stderr)


def _names(found: list[trace.Facts]) -> str:
    """Returns the programs with their calls, the busiest first."""
    totals: dict[str, int] = {}
    for one in found:
        totals[one.program] = max(totals.get(one.program, 0), one.calls)
    shown = [f"{name} ({calls:,} calls)" for name, calls in totals.items()]
    more = f" and {len(shown) - _OTHERS} more" if len(shown) > _OTHERS else ""
    return ", ".join(shown[:_OTHERS]) + more
