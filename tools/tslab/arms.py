"""An arm of a comparison: an allocator, its environment, and the proof that it serves the program.

Every program runs in an environment made from nothing: PATH, HOME, TMPDIR, a fixed locale, what the arm sets, and the
TSLAB_* variables of the caller that the library under test really reads. All other variables that could steer an
allocator are dropped, and the record names them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tslab.errors import LabError, NotServed, Refused

KEPT = ("PATH", "HOME", "TMPDIR")
FIXED = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
# Variables by which an allocator, or the loader under it, lets itself be steered.
STEERING = re.compile(
    r"(LD_|MALLOC_|MALLOCSTATS|GLIBC_TUNABLES|MIMALLOC_|_RJEM_|TCMALLOC_|HEAPPROFILE|SNMALLOC_|RPMALLOC_|TSLAB_)"
)
GLIBC = "glibc"


@dataclass(frozen=True)
class Arm:
    """`library` is None for the C library's own malloc."""

    name: str
    library: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_tslab(self) -> bool:
        return self.library is not None and is_tslab(self.library)


def is_tslab(library: Path) -> bool:
    """Returns true if the file defines temporal-slab's own names; a file name proves nothing."""
    return b"\0tslab_version\0" in library.read_bytes()


def parse_arm(text: str, known: Mapping[str, Path | None], fallback: Path | None = None) -> Arm:
    """`LIBRARY`, `LIBRARY,NAME=VALUE,...` or `NAME=VALUE,...`; LIBRARY is a path or a name from `known`."""
    library: Path | None = fallback
    variables: dict[str, str] = {}
    named = False
    for item in filter(None, text.split(",")):
        if re.match(r"[A-Za-z_][A-Za-z0-9_]*=", item):
            name, _, value = item.partition("=")
            variables[name] = value
        elif named:
            raise LabError(f"'{text}' names two libraries; an arm is one library and any number of NAME=VALUE")
        else:
            library, named = find_library(item, known), True
    return Arm(text, library, variables)


def find_library(text: str, known: Mapping[str, Path | None]) -> Path | None:
    if text in known:
        return known[text]
    path = Path(text)
    if not path.exists():
        names = ", ".join(sorted(known))
        raise LabError(f"no library '{text}': give a path, or one of {names} (./dev peers makes the peers)")
    if path.is_dir() or path.read_bytes()[:4] != b"\x7fELF":
        raise LabError(f"'{text}' is not a shared library (no ELF file), so it cannot be preloaded")
    return path.resolve()


def steering_variables() -> dict[str, str]:
    return {name: value for name, value in sorted(os.environ.items()) if STEERING.match(name)}


def environment(arm: Arm, pad_to: int = 0) -> dict[str, str]:
    """The whole environment of a run. `pad_to` makes all arms' environments equally long, since its length moves the
    stack and with it the alignment of everything on it."""
    variables = {name: os.environ[name] for name in KEPT if name in os.environ} | FIXED
    if arm.is_tslab:
        variables |= {name: value for name, value in os.environ.items() if name.startswith("TSLAB_")}
    if arm.library is not None:
        variables["LD_PRELOAD"] = str(arm.library)
    variables |= arm.variables
    missing = pad_to - environment_bytes(variables)
    if missing > 0:
        variables["LAB_PADDING"] = "x" * max(0, missing - len("LAB_PADDING") - 2)
    return variables


def environment_bytes(variables: Mapping[str, str]) -> int:
    return sum(len(name) + len(value) + 2 for name, value in variables.items())


def common_length(arms: Sequence[Arm]) -> int:
    """The length to which every arm's environment is padded; 16 leaves room for the padding variable itself."""
    return max(environment_bytes(environment(arm)) for arm in arms) + 16


def check_knobs(arm: Arm) -> None:
    """Refuses a TSLAB_* variable that the library does not read: a sweep over it would measure noise.

    It starts a program with the variables set, and the library names those that it does not know or cannot use.
    """
    set_here = {name: value for name, value in environment(arm).items() if name.startswith("TSLAB_")}
    if not set_here:
        return
    if not arm.is_tslab:
        where = arm.library or "the C library"
        raise Refused(f"arm '{arm.name}' sets {', '.join(set_here)}, but {where} reads no TSLAB_ variable")
    said = subprocess.run([_true()], env=environment(arm), capture_output=True, text=True, check=False).stderr
    refused = [line for line in said.splitlines() if any(re.search(rf"\b{name}\b", line) for name in set_here)]
    if refused:
        raise Refused(
            f"{arm.library} does not take what arm '{arm.name}' or your environment sets:\n  "
            + "\n  ".join(refused)
            + "\nunset or correct it, then run again"
        )


def check_preload(arm: Arm, command: Sequence[str]) -> None:
    """Refuses an arm whose library does not serve malloc in `command`, by the loader's own record of its bindings."""
    if arm.library is None:
        return
    program = shutil.which(command[0])
    if program is None:
        raise LabError(f"no command '{command[0]}' to run")
    with tempfile.TemporaryDirectory(prefix="tslab-bindings-") as folder:
        variables = environment(arm) | {
            "LD_DEBUG": "bindings",
            "LD_DEBUG_OUTPUT": f"{folder}/log",
            "LD_BIND_NOW": "1",
        }
        # The loader binds before main, so a program that needs longer than this has long been bound.
        try:
            said = subprocess.run(
                [program, *command[1:]], env=variables, capture_output=True, text=True, check=False, timeout=20
            ).stderr
        except subprocess.TimeoutExpired:
            said = ""
        logs = [path.read_text(errors="replace") for path in sorted(Path(folder).glob("log.*"))]
    for line in said.splitlines():
        if "from LD_PRELOAD cannot be preloaded" in line:
            raise NotServed(f"arm '{arm.name}': the preload does not take: {line.strip()}")
    if not logs:
        raise NotServed(
            f"arm '{arm.name}': the preload does not take: {command[0]} is static or privileged, so the loader never "
            f"looks at LD_PRELOAD; link the library in, or measure another program"
        )
    for log in logs:
        bound = re.findall(r"binding file \S+ \[\d+\] to (\S+) \[\d+\]: normal symbol `malloc'", log)
        wrong = [library for library in bound if Path(library).resolve() != arm.library]
        if wrong:
            raise NotServed(
                f"arm '{arm.name}': wrong library: malloc binds to {wrong[0]}, not to {arm.library}; "
                f"does that file define malloc?"
            )
        if not bound:
            raise NotServed(f"arm '{arm.name}': {command[0]} binds no malloc at all, so no allocator is measured")


class Fingerprints:
    """The libraries at the start of a measurement: a library that is rebuilt meanwhile is another allocator."""

    def __init__(self, arms: Iterable[Arm]) -> None:
        self._digests = {arm.library: self._digest(arm.library) for arm in arms if arm.library is not None}

    def check(self) -> None:
        for library, digest in self._digests.items():
            if self._digest(library) != digest:
                raise Refused(
                    f"{library} was rebuilt while it was measured; measure a copy, or build nothing meanwhile"
                )

    @staticmethod
    def _digest(library: Path) -> str:
        try:
            return hashlib.sha256(library.read_bytes()).hexdigest()
        except OSError:
            return ""


def _true() -> str:
    return shutil.which("true") or "/bin/true"
