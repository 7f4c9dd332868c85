"""Step 0 of a comparison: is the changed code executed at all, and how much could it matter (Amdahl's bound)?

It finds the change by itself. Of two builds: the functions whose instructions differ. Of one build in two environments:
the functions that executed another number of instructions, more than two runs of the same arm differ. The share of
instructions that those functions execute bounds the gain: at best they cost nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tslab.arms import Arm
from tslab.errors import LabError, Refused
from tslab.profile import UNKNOWN, Function, Profile
from tslab.stats import Interval, amdahl
from tslab.symbols import Symbols

# Two files with fewer function names in common than this are two allocators, not two builds of one.
SAME_ALLOCATOR_SHARE = 0.5
# Below this share of the instructions around the allocator's calls nothing can be measured, by whatever method: a
# function executed once at the start, or the loader reading one variable more, is no changed path.
LEAST_SHARE = 0.0005


@dataclass(frozen=True)
class Reach:
    """`share` is an upper bound on the work that the change can touch, as a fraction of instructions."""

    changed: tuple[str, ...]
    executed: tuple[str, ...]
    share: float
    calls_per_operation: float
    per_call: tuple[float, float]
    wobble: float  # by how much of itself A's count differs from A's
    whole_allocator: bool

    @property
    def bound(self) -> float:
        return amdahl(self.share)

    @property
    def instructions(self) -> Interval:
        """The change in instructions a call, fewer being better; as wide as two runs of A differ."""
        a, b = self.per_call
        point = 1 - b / a if a else 0.0
        return Interval(point, point - 2 * self.wobble, point + 2 * self.wobble)

    def lines(self) -> list[str]:
        what = "another allocator as a whole" if self.whole_allocator else f"{len(self.changed)} functions changed"
        shown = ", ".join(self.executed[:6]) + (", …" if len(self.executed) > 6 else "")
        bound = "any gain" if self.share >= 1 else f"at most {100 * self.bound:+.1f} %"
        a, b = self.per_call
        return [
            f"changed: {what}; executed here: {shown or 'none'}",
            f"share:   at most {100 * self.share:.2f} % of the instructions around the allocator's calls, "
            f"{self.calls_per_operation:.3f} calls of changed functions a call",
            f"bound:   if all of it cost nothing, {bound} (Amdahl, by instructions)",
            f"count:   {a:.2f} instructions a call in A, {b:.2f} in B"
            + (f" ({100 * (b / a - 1):+.2f} %)" if a else ""),
        ]

    def refuse_if_unreached(self) -> None:
        if self.share >= LEAST_SHARE:
            return
        names = f" ({', '.join(self.changed[:6])})" if self.changed else ""
        found = f"only {100 * self.share:.4f} % of the work is" if self.executed else "nothing is executed"
        raise Refused(
            f"this workload never reaches the changed path: {found} in functions that differ between A and B{names}. "
            f"A difference measured here would be noise: choose a workload that reaches it"
        )


def reach(a: Arm, b: Arm, profile: Callable[[Arm], Profile], is_workload: bool = False) -> Reach:
    """`profile` counts one run of the program under an arm. A workload of ours does the same whatever the arm, but for
    the turns it spends on its clock: there only the library's own functions can be the changed ones."""
    if a.library == b.library and dict(a.variables) == dict(b.variables):
        raise Refused("A and B are the same library with the same environment: there is nothing to compare")
    in_a, again, in_b = profile(a), profile(a), profile(b)
    wobble = abs(again.per_call / in_a.per_call - 1) if in_a.per_call else 0.0
    per_call = (in_a.per_call, in_b.per_call)
    if a.library == b.library:
        functions = _counted_differently(in_a, again, in_b)
        if is_workload and a.library is not None:
            functions = {function for function in functions if function.object == str(a.library)}
        changed = {function.name for function in functions}
    else:
        names = changed_functions(a.library, b.library)
        if names is None:
            share = max(p.entry_instructions / max(1, p.around_calls) for p in (in_a, in_b))
            executed_names = ("malloc's family",) if in_a.entry_calls and in_b.entry_calls else ()
            return Reach((), executed_names, share, 1.0, per_call, wobble, whole_allocator=True)
        changed = names
        objects = {str(library) for library in (a.library, b.library)}
        functions = {f for f in in_a.own.keys() | in_b.own.keys() if f.object in objects and f.name in names}
    executed = {f for f in functions if in_a.own.get(f, 0) or in_b.own.get(f, 0)}
    share = max(_share(in_a, executed), _share(in_b, executed))
    calls = sum(in_a.called.get(f, 0) for f in executed) / max(1, in_a.entry_calls)
    names_executed = tuple(sorted({f.name for f in executed}))
    return Reach(tuple(sorted(changed)), names_executed, share, calls, per_call, wobble, whole_allocator=False)


def changed_functions(a: Path | None, b: Path | None) -> set[str] | None:
    """Names of the functions whose instructions differ; None when these are two different allocators."""
    if a is None or b is None:
        return None
    code_a, code_b = disassemble(a), disassemble(b)
    common = code_a.keys() & code_b.keys()
    if len(common) < SAME_ALLOCATOR_SHARE * max(1, len(code_a), len(code_b)):
        return None
    different = {name for name in common if code_a[name] != code_b[name]}
    different |= code_a.keys() ^ code_b.keys()
    return Symbols(a).aliases(different) | Symbols(b).aliases(different)


def disassemble(library: Path) -> dict[str, str]:
    """Each function's instructions without addresses, which move when anything before them changes length."""
    if shutil.which("objdump") is None:
        raise LabError("objdump is needed to compare two builds: install the package binutils")
    text = subprocess.run(
        ["objdump", "-d", "-w", "--no-show-raw-insn", str(library)], capture_output=True, text=True, check=True
    ).stdout
    functions: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if header := re.fullmatch(r"[0-9a-f]+ <(.+)>:", line):
            lines = functions.setdefault(header.group(1), [])
        elif line.startswith(" "):
            lines.append(_without_addresses(line.partition(":\t")[2]))
    # Padding after a function is the linker's, not the function's.
    return {name: "\n".join(body).rstrip("\n") for name, body in functions.items() if not name.endswith("@plt")}


def _without_addresses(instruction: str) -> str:
    if re.match(r"(cs )?(nopw?|data16|xchg +%ax,%ax)", instruction):
        return ""
    instruction = re.sub(r"-?0x[0-9a-f]+\(%rip\)\s+# [0-9a-f]+ ", "(%rip) ", instruction)
    return re.sub(r"\b[0-9a-f]+ (<[^+>]+)(\+0x[0-9a-f]+)?>", r"\1>", instruction)


def _counted_differently(first: Profile, again: Profile, other: Profile) -> set[Function]:
    least = LEAST_SHARE * max(first.around_calls, other.around_calls)
    found = set()
    for function in first.own.keys() | other.own.keys():
        mine = first.own.get(function, 0)
        wobble = abs(again.own.get(function, 0) - mine)
        difference = abs(other.own.get(function, 0) - mine)
        # The loader's own work depends on the environment's length whatever it says.
        if difference > max(least, 2 * wobble) and "/ld-" not in function.object and function.object != UNKNOWN:
            found.add(function)
    return found


def _share(profile: Profile, functions: set[Function]) -> float:
    touched = sum(profile.own.get(function, 0) for function in functions)
    return min(1.0, touched / max(1, profile.around_calls or profile.total))
