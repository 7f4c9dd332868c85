"""Counting instructions one at a time, for programs that valgrind cannot run to their end.

The program runs at full speed until it enters malloc, free, calloc or realloc (the processor's four debug registers
watch for that), then one instruction per stop until the call returns. A repeated string instruction counts once, as in
callgrind. Only the main thread is counted, from the program's entry point on. Some fifty thousand a second: give it a
small run.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tslab.arms import Arm, environment
from tslab.errors import LabError
from tslab.profile import Function, Profile
from tslab.runner import Program
from tslab.symbols import Symbols

_TRACEME, _PEEKTEXT, _PEEKUSER, _POKEUSER, _CONT, _SINGLESTEP = 0, 1, 3, 6, 7, 9
# Offsets in x86_64's struct user: two registers, and the first debug register.
_RIP, _RSP, _DEBUG = 16 * 8, 19 * 8, 848
_WATCHED = ("malloc", "free", "calloc", "realloc")
_AT_ENTRY = 9


def count(program: Program, arm: Arm, options: Sequence[str] = (), timeout_s: float = 120) -> Profile:
    if os.uname().machine != "x86_64":
        raise LabError("single-stepping knows only x86_64's registers; use a program that valgrind can run")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    # Safe before exec: this program starts no threads.
    process = subprocess.Popen(
        [*program.command, *options],
        env=environment(arm),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: libc.ptrace(_TRACEME, 0, None, None),  # noqa: PLW1509
    )
    try:
        return _Tracee(libc, process.pid, time.monotonic() + timeout_s).count(arm)
    finally:
        process.kill()
        process.wait()


class _Tracee:
    def __init__(self, libc: ctypes.CDLL, pid: int, deadline: float) -> None:
        self._libc, self._pid, self._deadline = libc, pid, deadline
        self._steps = 0
        self._executed: Counter[int] = Counter()

    def count(self, arm: Arm) -> Profile:
        profile = Profile()
        os.waitpid(self._pid, 0)  # the stop that exec makes
        self._watch([_entry_point(self._pid)])
        if not self._go(_CONT):
            return profile
        library, base = _loaded(self._pid, arm)
        symbols = Symbols(library)
        family = [address for name in _WATCHED if (address := symbols.address(name))]
        self._watch([base + address for address in family])
        while self._go(_CONT):
            profile.entry_calls += 1
            profile.entry_instructions += self._call()
        profile.total = profile.entry_instructions
        for address, count in self._executed.items():
            # Code outside the library counts for the calls, but belongs to none of its functions.
            if 0 <= address - base < library.stat().st_size:
                profile.own[Function(str(library), symbols.at(address - base))] += count
        return profile

    def _call(self) -> int:
        """Steps from a function's first instruction until it has returned; how many instructions that took."""
        stack = self._user(_RSP)
        return_to = self._ptrace(_PEEKTEXT, stack)
        instructions, last = 0, 0
        while True:
            here = self._user(_RIP)
            if here == return_to and self._user(_RSP) > stack:
                return instructions
            # A watched address stops once more before it runs, and a repeated instruction after each turn.
            if here != last:
                instructions += 1
                self._executed[here] += 1
            last = here
            if not self._go(_SINGLESTEP):
                return instructions

    def _go(self, request: int) -> bool:
        """Resumes until the next trap; False when the program has ended. Other signals are passed on."""
        signal_number = 0
        while True:
            self._steps += 1
            if self._steps % 4096 == 0 and time.monotonic() > self._deadline:
                raise LabError("single-stepping takes longer than its time; give a smaller run with --count-with")
            self._ptrace(request, 0, signal_number)
            _, status = os.waitpid(self._pid, 0)
            if not os.WIFSTOPPED(status):
                return False
            signal_number = os.WSTOPSIG(status)
            if signal_number == signal.SIGTRAP:
                return True

    def _watch(self, addresses: Sequence[int]) -> None:
        self._ptrace(_POKEUSER, _DEBUG + 7 * 8, 0)
        for index, address in enumerate(addresses):
            self._ptrace(_POKEUSER, _DEBUG + index * 8, address)
        enabled = sum(1 << 2 * index for index in range(len(addresses)))
        if self._ptrace(_POKEUSER, _DEBUG + 7 * 8, enabled) != 0:
            raise LabError("this machine gives no debug registers, so single-stepping cannot find malloc")

    def _user(self, offset: int) -> int:
        return self._ptrace(_PEEKUSER, offset)

    def _ptrace(self, request: int, address: int, data: int = 0) -> int:
        result = self._libc.ptrace(request, self._pid, ctypes.c_void_p(address), ctypes.c_void_p(data))
        return int(result) & (2**64 - 1)


def _entry_point(pid: int) -> int:
    vector = Path(f"/proc/{pid}/auxv").read_bytes()
    pairs = struct.iter_unpack("QQ", vector)
    return next(int(value) for key, value in pairs if key == _AT_ENTRY)


def _loaded(pid: int, arm: Arm) -> tuple[Path, int]:
    """The file that the arm's malloc comes from, and where it lies in the running process."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split()
        if len(fields) < 6 or fields[2] != "00000000":
            continue
        path = Path(fields[5])
        if path == arm.library or (arm.library is None and path.name.startswith("libc.so")):
            return path, int(line.split("-")[0], 16)
    raise LabError(f"single-stepping finds no library of arm '{arm.name}' in the program")
