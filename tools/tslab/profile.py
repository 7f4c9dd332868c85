"""The instructions of a run, function by function: reads callgrind's output without its annotator.

Instruction counts of two equal runs hardly differ, so they show a change of a fraction of a percent that no clock can.
The count for an operation is the cost that callers outside the allocator pay for their calls into malloc's family,
callees included.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tslab.arms import Arm, environment
from tslab.errors import LabError, NotServed
from tslab.runner import NOT_SERVED_STATUS, Program, RunFailed
from tslab.symbols import Symbols

FAMILY = frozenset(
    {
        *("malloc", "free", "calloc", "realloc", "reallocarray"),
        *("aligned_alloc", "posix_memalign", "memalign", "free_sized", "free_aligned_sized"),
    }
)
OPERATORS = re.compile(r"operator (new|delete)")
UNKNOWN = "???"


@dataclass(frozen=True, order=True)
class Function:
    object: str  # the file's path
    name: str


@dataclass
class Profile:
    """Self instructions and calls by function; `entries` are the calls from outside into malloc's family."""

    total: int = 0
    own: dict[Function, int] = field(default_factory=lambda: defaultdict(int))
    called: dict[Function, int] = field(default_factory=lambda: defaultdict(int))
    entry_calls: int = 0
    entry_instructions: int = 0
    entry_callers: set[Function] = field(default_factory=set)

    @property
    def per_call(self) -> float:
        """Instructions of one call into the allocator, on average over the whole run."""
        return self.entry_instructions / self.entry_calls if self.entry_calls else 0.0

    @property
    def around_calls(self) -> int:
        """The allocator's instructions plus those of the functions that call it: the part of the program in which an
        allocator can make a difference. Set-up and reporting stay out, so shares of this are upper bounds."""
        return self.entry_instructions + sum(self.own[caller] for caller in self.entry_callers)


class EndedEarly(LabError):
    """Valgrind could not run the program to its end."""


def callgrind(program: Program, arm: Arm, options: Sequence[str] = (), timeout_s: float = 300) -> Profile:
    if shutil.which("valgrind") is None:
        raise LabError("valgrind is needed to count instructions: install the package valgrind")
    with tempfile.TemporaryDirectory(prefix="tslab-callgrind-") as folder:
        out = Path(folder) / "out"
        command = [
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={out}",
            "--compress-strings=no",
            "--compress-pos=no",
            *program.command,
            *options,
        ]
        try:
            result = subprocess.run(
                command, env=environment(arm), capture_output=True, text=True, check=False, timeout=timeout_s
            )
        except subprocess.TimeoutExpired as error:
            raise LabError(
                f"{program.name} needs more than {timeout_s:.0f} s under callgrind; give a smaller run with "
                f"--count-with, for example --count-with=--iterations=200000"
            ) from error
        said = [line for line in result.stderr.splitlines() if line.strip() and not line.startswith("==")]
        reason = said[-1] if said else "no message"
        if result.returncode == NOT_SERVED_STATUS and program.is_workload:
            raise NotServed(f"{program.name} under {arm.name}: {reason}")
        if result.returncode < 0 or not out.exists():
            raise EndedEarly(f"{program.name} under {arm.name} ends early in valgrind: {reason}")
        if result.returncode != 0:
            raise RunFailed(f"{program.name} under {arm.name} exited with status {result.returncode}: {reason}")
        return parse(out.read_text(errors="replace"), arm.library)


def parse(text: str, library: Path | None = None) -> Profile:
    """Reads callgrind's uncompressed format. A cost line belongs to the last fn=; the one after calls= is inclusive.

    Valgrind knows the file of a library's first executable mapping only, and says ??? of functions in another: those
    that `library` has are its own."""
    profile = Profile()
    names = Symbols(library).names() if library else set()

    def function(file: str, name: str) -> Function:
        name = _plain(name)
        return Function(str(library) if file == UNKNOWN and name in names else file, name)

    here = callee = Function("", "")
    here_object = callee_object = ""
    calls = 0
    for line in text.splitlines():
        head, separator, value = line.partition("=")
        if separator and head in _HEADS:
            if head == "ob":
                here_object = value
            elif head == "fn":
                here = function(here_object, value)
                callee_object = here_object
            elif head == "cob":
                callee_object = value
            elif head == "cfn":
                callee = function(callee_object, value)
            elif head == "calls":
                calls = int(value.split()[0])
            continue
        if not line or not (line[0].isdigit() or line[0] in "+-*"):
            continue
        cost = int(line.split()[1]) if " " in line else 0
        if not calls:
            profile.own[here] += cost
            profile.total += cost
            continue
        profile.called[callee] += calls
        if _is_entry(callee.name) and not _is_entry(here.name) and here.object != callee.object:
            profile.entry_calls += calls
            profile.entry_instructions += cost
            profile.entry_callers.add(here)
        calls, callee_object = 0, here_object
    return profile


_HEADS = frozenset(("ob", "fn", "cob", "cfn", "calls"))


def _plain(name: str) -> str:
    """Callgrind marks the second level of a recursion with an apostrophe and a number."""
    return re.sub(r"'\d+$", "", name)


def _is_entry(name: str) -> bool:
    return name in FAMILY or bool(OPERATORS.match(name))
