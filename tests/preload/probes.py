#!/usr/bin/env python3
"""Checks the probes of a library (docs/probes.md): the notes that tracers read, and that each is hit in a live run.

usage: probes.py notes LIBRARY            the notes name every probe, and each leads to a nop
       probes.py perf LIBRARY             perf computes the same places in the file
       probes.py live LIBRARY PROGRAM     gdb stops PROGRAM at each probe and reads its arguments
       probes.py otel LIBRARY PROGRAM     bpftrace follows the samples of PROGRAM, as OpenTelemetry's profiler does

Exit status 77: perf, gdb or bpftrace is missing, or may not trace here.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SKIPPED = 77
PROBES = {  # the number of arguments
    ("otel_memory", "alloc"): 3,
    ("otel_memory", "free"): 1,
    ("tslab", "epoch_open"): 2,
    ("tslab", "epoch_close"): 3,
    ("tslab", "last_free"): 2,
    ("tslab", "purge"): 3,
    ("tslab", "slow_path"): 3,
}
WITH_LABEL = {"epoch_open", "epoch_close", "last_free"}  # as the second argument
MACHINES = {
    62: (b"\x90", re.compile(r"8@(%r\w\w?|%r\d+\w?|\$\d+)")),
    183: (b"\x1f\x20\x03\xd5", re.compile(r"8@(x\d+|xzr|\d+)")),
}
EXECUTABLE = 4  # SHF_EXECINSTR


class Failure(Exception):
    pass


@dataclass(frozen=True)
class Section:
    name: str
    flags: int
    address: int
    offset: int
    size: int


@dataclass(frozen=True)
class Note:
    provider: str
    name: str
    arguments: str
    address: int
    base: int
    counter: int

    @property
    def probe(self) -> tuple[str, str]:
        return self.provider, self.name


class Library:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path.read_bytes()
        (self.machine,) = struct.unpack_from("<H", self.data, 18)
        self.sections = self._sections()

    def _sections(self) -> list[Section]:
        (start,) = struct.unpack_from("<Q", self.data, 40)
        size, count, names = struct.unpack_from("<HHH", self.data, 58)
        rows = [struct.unpack_from("<IIQQQQ", self.data, start + i * size) for i in range(count)]
        text = rows[names][4]
        return [
            Section(self._word(text + name), flags, address, offset, length)
            for name, _, flags, address, offset, length in rows
        ]

    def _word(self, at: int) -> str:
        return self.data[at : self.data.index(b"\0", at)].decode()

    def section(self, name: str) -> Section:
        found = [section for section in self.sections if section.name == name]
        if len(found) != 1:
            raise Failure(f"{self.path.name} has {len(found)} sections {name}")
        return found[0]

    def notes(self) -> list[Note]:
        section = self.section(".note.stapsdt")
        notes, at = [], section.offset
        while at < section.offset + section.size:
            owner_bytes, bytes_, kind = struct.unpack_from("<III", self.data, at)
            if (self._word(at + 12), owner_bytes, kind) != ("stapsdt", 8, 3):
                raise Failure(f"the note at {at:#x} is of another owner or kind")
            text = self.data[at + 44 : at + 20 + bytes_].split(b"\0")
            notes.append(Note(*(word.decode() for word in text[:3]), *struct.unpack_from("<QQQ", self.data, at + 20)))
            at += 20 + (bytes_ + 3) // 4 * 4
        return notes

    def place_of(self, address: int) -> int:
        """Returns where the instruction at the address lies in the file."""
        for section in self.sections:
            if section.flags & EXECUTABLE and section.address <= address < section.address + section.size:
                return address - section.address + section.offset
        raise Failure(f"no instruction lies at {address:#x}")


def check_note(library: Library, note: Note) -> None:
    name = ":".join(note.probe)
    nop, argument = MACHINES[library.machine]
    place, base = library.place_of(note.address), library.section(".stapsdt.base")
    if library.data[place : place + len(nop)] != nop:
        raise Failure(f"{name}: no nop lies at {note.address:#x}")
    words = note.arguments.split()
    if len(words) != PROBES[note.probe] or not all(argument.fullmatch(word) for word in words):
        raise Failure(f"{name}: the arguments are {note.arguments!r}")
    if note.base != base.address or note.counter != 0:
        raise Failure(f"{name}: the base is {note.base:#x}, not {base.address:#x}, or there is a counter")
    if note.address + base.offset - base.address != place:  # perf's way; a breakpoint elsewhere breaks the program
        raise Failure(f"{name}: perf takes it for another place in the file (cmake/rare.ld)")


def test_notes(path: Path) -> None:
    library = Library(path)
    notes = library.notes()
    for note in notes:
        if note.probe not in PROBES:
            raise Failure(f"docs/probes.md does not have {note.provider}:{note.name}")
        check_note(library, note)
    missing = set(PROBES) - {note.probe for note in notes}
    if missing:
        raise Failure(f"no note of {missing}")
    print(f"{len(notes)} notes of {len(PROBES)} probes")


def test_perf(path: Path) -> None:
    library = Library(path)
    wanted = {(*note.probe, library.place_of(note.address)) for note in library.notes()}
    found = set()
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home}
        if shutil.which("perf") is None:
            sys.exit(SKIPPED)
        subprocess.run(["perf", "buildid-cache", "--add", path], env=environment, check=True, capture_output=True)
        for provider, name in sorted(PROBES):
            command = ["perf", "probe", "-x", path, "-D", f"%sdt_{provider}:{name}"]
            run = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
            if run.returncode != 0 and not found:
                print(run.stderr)
                sys.exit(SKIPPED)
            places = re.findall(r"^p:\S+ \S+:0x([0-9a-f]+)", run.stdout, re.MULTILINE)
            found |= {(provider, name, int(place, 16)) for place in places}
    if found != wanted:
        raise Failure(f"perf finds {sorted(found)}, not {sorted(wanted)}")
    print(f"perf finds {len(found)} places")


def hits(library: Path, program: Path) -> tuple[dict[str, int], list[tuple[str, list[str]]]]:
    """Returns what the program printed, and the probes that it met."""
    lines = ["set environment TSLAB_PROFILE=4K", "break main", "run", "delete"]
    for (provider, name), count in PROBES.items():
        words = ["%s" if name in WITH_LABEL and i == 1 else "%lu" for i in range(count)]
        values = "".join(
            f", (char *)$_probe_arg{i}" if word == "%s" else f", $_probe_arg{i}" for i, word in enumerate(words)
        )
        say = f'printf "hit {provider}:{name} {" ".join(words)}\\n"{values}'
        lines += [f"break -probe-stap {provider}:{name}", "commands", "silent", say, "continue", "end"]
    lines += ["continue"]
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch) / "commands"
        script.write_text("\n".join(lines) + "\n")
        command = ["gdb", "-nx", "-batch", "-ex", "set pagination off", "-x", str(script), str(program)]
        environment = {**os.environ, "HOME": scratch, "DEBUGINFOD_URLS": "", "LD_LIBRARY_PATH": str(library.parent)}
        run = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=120)
    output = run.stdout
    said = re.search(r"^(large .*)$", output, re.MULTILINE)
    if not said:
        print(output, run.stderr, file=sys.stderr)
        sys.exit(SKIPPED if "ptrace" in run.stderr or "ptrace" in output else 1)
    words = said[1].split()
    found = [(line[1], line[2].split()) for line in re.finditer(r"hit (\S+) (.*)", output)]
    return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}, found


def expect(found: list[tuple[str, list[str]]], probe: str, *arguments: str) -> int:
    """Returns which hit it was; an empty argument may be any."""
    for at, (name, given) in enumerate(found):
        if name == probe and all(a in ("", b) for a, b in zip(arguments, given, strict=True)):
            return at
    raise Failure(f"{probe} {arguments} is not among {[hit for hit in found if hit[0] == probe]}")


def test_live(library: Path, program: Path) -> None:
    if shutil.which("gdb") is None:
        sys.exit(SKIPPED)
    said, found = hits(library, program)
    large, epoch = str(said["large"]), str(said["epoch"])
    order = [
        expect(found, "otel_memory:alloc", large, "100000", "100000"),
        expect(found, "tslab:epoch_open", epoch, "probed"),
        expect(found, "tslab:epoch_close", epoch, "probed", ""),
        expect(found, "tslab:last_free", epoch, "probed"),
        expect(found, "otel_memory:free", large),
        expect(found, "tslab:epoch_close", "", "empty", ""),
    ]
    if order != sorted(order):
        raise Failure(f"the order is {order}: {found}")
    expect(found[order[-1] :], "tslab:purge", "", "", "1")
    expect(found, "tslab:slow_path", "", "", "100000")
    closed = found[order[2]][1]
    if not 4096 <= int(closed[2]) <= 1 << 20:
        raise Failure(f"the epoch held {closed[2]} bytes when it closed")
    print(f"{len(found)} hits")


FREED = 200
FOLLOWER = """
BEGIN {{ printf("ready\\n"); }}
usdt:{library}:otel_memory:alloc {{
  printf("alloc %lu %lu %lu\\n%s", arg0, arg1, arg2, ustack(8));
  @live[arg0] = arg2;
}}
usdt:{library}:otel_memory:free {{
  printf("free %lu\\n", arg0);
  delete(@live[arg0]);
}}
"""


def may_follow(program: Path) -> bool:
    """Returns true if the kernel lets bpftrace stop any process at all."""
    if shutil.which("bpftrace") is None:
        return False
    script = f"uprobe:{program}:main {{ exit(); }} BEGIN {{ exit(); }}"
    run = subprocess.run(["bpftrace", "-e", script], check=False, capture_output=True, text=True, timeout=60)
    if run.returncode != 0:
        print(run.stdout, run.stderr)
    return run.returncode == 0


def follow(library: Path, program: Path) -> tuple[str, str]:
    """Returns what the program said, and what bpftrace read."""
    environment = {**os.environ, "TSLAB_PROFILE": "4K", "LD_LIBRARY_PATH": str(library.parent)}
    with subprocess.Popen(
        [program, str(FREED)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as probed:
        assert probed.stdin and probed.stdout and probed.stdout.readline() == "waits\n"
        command = ["bpftrace", "-B", "line", "-p", str(probed.pid), "-e", FOLLOWER.format(library=library)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
            seen = read_to(follower, r"^ready$")
            probed.stdin.write("\n")
            probed.stdin.flush()
            said = probed.stdout.readline()
            # bpftrace names functions when it prints, and needs the process for that.
            seen += read_to(follower, rf"^alloc {said.split()[1]} 100000 100000\n\s+\S.*\n")
            probed.communicate("\n", timeout=60)
            assert follower.stdout
            seen += follower.stdout.read()  # it ends with the process
    return said, seen


def read_to(follower: subprocess.Popen[str], pattern: str) -> str:
    seen = ""
    assert follower.stdout
    while not re.search(pattern, seen, re.MULTILINE) and (line := follower.stdout.readline()):
        seen += line
    return seen


def test_otel(library: Path, program: Path) -> None:
    if not may_follow(program):
        sys.exit(SKIPPED)
    said, seen = follow(library, program)
    words = re.search(r"^large (\d+) late \d+ epoch \d+$", said, re.MULTILINE)
    if not words:
        raise Failure(f"the program said {said!r}")
    large = words[1]
    live: dict[str, int] = {}
    frees = 0
    for line in re.finditer(r"^(alloc|free) (\d+)(?: (\d+) (\d+))?$", seen, re.MULTILINE):
        kind, address, size, weighted = line.groups()
        if (kind == "alloc") == (address in live):
            raise Failure(f"{kind} of {address} comes at a wrong time: {seen[-4000:]}")
        if kind == "alloc" and int(size) > int(weighted):
            raise Failure(f"a sample of {size} bytes stands for {weighted}")
        if kind == "alloc":
            live[address] = int(weighted)
        else:
            del live[address]
            frees += 1
    stack = re.search(rf"^alloc {large} 100000 100000\n((?:\s+\S.*\n)+)", seen, re.MULTILINE)
    if not stack or "main+" not in stack[1]:
        raise Failure(f"no stack of the large block leads to main: {seen[-4000:]}")
    told = dict(re.findall(r"^@live\[(\d+)\]: (\d+)$", seen, re.MULTILINE))
    if live.get(large) != 100000 or {at: int(weighted) for at, weighted in told.items()} != live:
        raise Failure(f"in use are {live}, and bpftrace has {told}")
    if frees < FREED:
        raise Failure(f"{frees} of {FREED} frees were told: {seen[-4000:]}")
    print(f"{frees} samples were freed, {len(live)} are in use")


def main() -> int:
    test = globals().get(f"test_{sys.argv[1]}") if len(sys.argv) > 2 else None
    if test is None:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        test(*(Path(argument).resolve() for argument in sys.argv[2:]))
    except Failure as failure:
        print(f"failed: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
