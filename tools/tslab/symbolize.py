"""From the addresses of a stack to functions and lines, for a process that lives.

Where an address lies is read from /proc/PID/maps, and the file is opened through /proc/PID/root, so that it is the
process's own, also in a container. Functions and lines, inlined ones included, come from the platform's addr2line;
without it the function comes from the file's own table of symbols. A file that was replaced meanwhile is not asked: its
addresses would be another program's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

from tslab.segment import printable
from tslab.symbols import Symbols

# Functions of the library itself, and of C++ operators that call it, say nothing of who holds memory.
OF_THE_LIBRARY = "libtslab"
_ALLOCATORS = ("malloc", "calloc", "realloc", "free", "operator new", "operator delete", "tslab_")
_TIMEOUT_S = 120


@dataclass(frozen=True)
class Mapping:
    start: int
    end: int
    offset: int
    path: str  # as the process sees it
    file: str  # as we can open it; empty: not


@dataclass(frozen=True)
class Frame:
    """One function, of those that an address lies in, the innermost first."""

    function: str
    file: str
    line: int


@dataclass(frozen=True)
class Place:
    address: int
    mapping: Mapping | None
    frames: tuple[Frame, ...]

    @property
    def text(self) -> str:
        if not self.frames:
            where = f" in {Path(self.mapping.path).name}" if self.mapping else ""
            return f"{self.address:#x}{where}"
        frame = self.frames[0]
        return f"{frame.function} ({Path(frame.file).name}:{frame.line})" if frame.file else frame.function


class Symbolizer:
    """Of one process; of none (pid None) it knows no address."""

    def __init__(self, pid: int | None) -> None:
        self.mappings = _mappings(pid) if pid is not None else []
        self._starts = [mapping.start for mapping in self.mappings]
        self._places: dict[int, Place] = {}
        self._files: dict[str, _File] = {}

    def learn(self, addresses: Iterable[int]) -> None:
        """Asks for all of them at once: each file is read once."""
        wanted: dict[str, list[int]] = {}
        for address in set(addresses) - set(self._places):
            mapping = self._mapping(address)
            self._places[address] = Place(address, mapping, ())
            if mapping and mapping.file:
                wanted.setdefault(mapping.file, []).append(address)
        for path, here in wanted.items():
            file = self._files.setdefault(path, _File(path))
            # A return address may be that of the line after the call.
            places = [file.address(self._mapping(address), address - 1) for address in here]
            for address, frames in zip(here, file.frames(places), strict=True):
                self._places[address] = Place(address, self._mapping(address), frames)

    def place(self, address: int) -> Place:
        if address not in self._places:
            self.learn([address])
        return self._places[address]

    def build_id(self, mapping: Mapping) -> str:
        return self._files.setdefault(mapping.file, _File(mapping.file)).build_id if mapping.file else ""

    def callers(self, stack: Iterable[int]) -> list[Place]:
        """The stack from the first function on that is the program's; the last place, if all are the allocator's."""
        places = [self.place(address) for address in stack]
        while len(places) > 1 and _is_allocator(places[0]):
            places = places[1:]
        return places

    def _mapping(self, address: int) -> Mapping | None:
        at = bisect_right(self._starts, address) - 1
        return self.mappings[at] if at >= 0 and address < self.mappings[at].end else None


def _is_allocator(place: Place) -> bool:
    if place.mapping and OF_THE_LIBRARY in Path(place.mapping.path).name:
        return True
    return bool(place.frames) and place.frames[0].function.startswith(_ALLOCATORS)


def _mappings(pid: int) -> list[Mapping]:
    """Of files that have code; empty where we may not look."""
    found = []
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    for line in lines:
        words = line.split(maxsplit=5)
        if len(words) < 6 or not words[5].startswith("/") or "x" not in words[1]:
            continue
        start, _, end = words[0].partition("-")
        path = words[5]
        file = f"/proc/{pid}/root{path}"
        opened = file if _is_it(file, words) else ""
        found.append(Mapping(int(start, 16), int(end, 16), int(words[2], 16), printable(path), opened))
    return found


def _is_it(file: str, words: list[str]) -> bool:
    """The file is the one that was mapped: a newer one of the same name has another inode."""
    try:
        facts = os.stat(file)  # noqa: PTH116
    except OSError:
        return False
    return facts.st_ino == int(words[4])


class _File:
    def __init__(self, path: str) -> None:
        self._path = path

    @cached_property
    def _loads(self) -> list[tuple[int, int, int]]:
        with contextlib.suppress(OSError, ELFError), Path(self._path).open("rb") as file:
            segments = [s for s in ELFFile(file).iter_segments() if s["p_type"] == "PT_LOAD"]
            return [(s["p_offset"], s["p_filesz"], s["p_vaddr"]) for s in segments]
        return []

    @cached_property
    def build_id(self) -> str:
        with contextlib.suppress(OSError, ELFError), Path(self._path).open("rb") as file:
            for section in ELFFile(file).iter_sections():
                if isinstance(section, NoteSection):
                    for note in section.iter_notes():
                        if note["n_type"] == "NT_GNU_BUILD_ID":
                            return str(note["n_desc"])
        return ""

    def address(self, mapping: Mapping | None, address: int) -> int:
        """The file's own, before it was loaded anywhere."""
        offset = address - mapping.start + mapping.offset if mapping else 0
        for at, size, virtual in self._loads:
            if at <= offset < at + size:
                return int(offset - at + virtual)
        return offset

    def frames(self, addresses: list[int]) -> list[tuple[Frame, ...]]:
        asked = self._ask(addresses)
        return [frames or self._of_symbols(at) for at, frames in zip(addresses, asked, strict=True)]

    def _ask(self, addresses: list[int]) -> list[tuple[Frame, ...]]:
        """By addr2line: after each address itself two lines for each function, a name and a place."""
        tool = shutil.which("addr2line")
        nothing: list[tuple[Frame, ...]] = [() for _ in addresses]
        if not tool:
            return nothing
        text = "".join(f"{address:#x}\n" for address in addresses)
        try:
            done = subprocess.run(
                [tool, "-a", "-f", "-i", "-C", "-e", self._path], input=text, capture_output=True, text=True,
                check=False, timeout=_TIMEOUT_S, errors="replace",
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return nothing
        answers: list[list[str]] = []
        for line in done.stdout.splitlines():
            if line.startswith("0x"):
                answers.append([])
            elif answers:
                answers[-1].append(line)
        if len(answers) != len(addresses):
            return nothing
        return [tuple(_frame(*pair) for pair in zip(a[::2], a[1::2], strict=False) if pair[0] != "??") for a in answers]

    @cached_property
    def _symbols(self) -> Symbols | None:
        with contextlib.suppress(OSError, ELFError):
            return Symbols(Path(self._path))
        return None

    def _of_symbols(self, address: int) -> tuple[Frame, ...]:
        name = self._symbols.at(address) if self._symbols else "?"
        return () if name == "?" else (Frame(printable(name), "", 0),)


def _frame(function: str, place: str) -> Frame:
    """A place is FILE:LINE, with a remark behind it at times."""
    file, _, line = place.partition(" ")[0].rpartition(":")
    known = line.isdigit() and not file.startswith("??")
    return Frame(printable(function), printable(file) if known else "", int(line) if known else 0)
