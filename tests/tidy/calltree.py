#!/usr/bin/env python3
"""Keeps the call trees of docs/design.md true, and each path through them short.

usage: calltree.py --objects DIRECTORY... [--root DIRECTORY] [--write]

The trees are made from the calls in the objects that a build left in each DIRECTORY. Without --write they are compared
with the ones in the document. A tree leaves out the calls beside its path; the document names them and says when each
is made. Exit status 1: a tree of the document is not that of the objects, or a path crosses more files than it may.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

DOCUMENT = "docs/design.md"


class Route(NamedTuple):
    """A path through the program: where it begins, how many files it may cross, what lies beside it."""

    name: str
    root: str
    files: int
    beside: dict[str, str]  # a function, or the beginning of names that ends with *, and when it is called


EVERYWHERE = {
    "lock_*": "another thread holds the lock",
    "misuse_*": "the program misused memory",
    "scavenger_*": "the scavenger has work to do",
    "counters_*": "the call is counted",
    "profile_*": "the heap profile is on",
    "guard_*": "blocks are guarded",
    "thread_*": "the thread's first call, or one after its end",
}
PATHS = [
    Route(
        "a plain malloc miss",
        "malloc",
        8,
        {
            **EVERYWHERE,
            "process_start": "the process's first call",
            "heap_make_store": "the heap's first miss",
            "limits_*": "a limit refuses memory",
            "borrow_*": "a limit refuses memory",
            "os_heal": "the kernel refused memory before",
            "heap_large_alloc": "a block above 32 KiB",
            "bump_*": "a thread inside an epoch",
            "malloc_in_scope": "a thread inside an epoch",
            "arena_*": "a thread inside an epoch",
            "reserve_*": "a thread inside an epoch",
            "returning_*": "a thread inside an epoch",
            "give_up_list": "a damaged list",
            "take_detached": "a call that is timed",
            "sampled_malloc": "a call that the heap profile draws",
            "cut_*": "the heap profile is on",
            "timing_*": "a call that is timed",
        },
    ),
    Route(
        "a lone close",
        "tslab_epoch_close",
        5,
        {
            **EVERYWHERE,
            "close_any": "more than one thread was in the epoch, blocks are alive in it, or the caller wants a report",
            "epoch_lock_unowned": "another thread owns the epoch",
            "handle_forget_tables": "the program allocated blocks by handle there (`tslab_handle_alloc`)",
            "claim_slabs": "the thread must count the epoch's slabs against `TSLAB_RESERVE`",
            "chunk_cache_claim_epoch": "the thread must count the epoch's chunk against `TSLAB_RESERVE`",
            "drop_chunk": "the label's epochs begin with slabs from now on",
            "scope_misused": "the id is not of an open epoch",
        },
    ),
]


class Calls:
    """Which function calls which, from call and jump instructions and their relocations."""

    def __init__(self, root: Path, folders: list[Path]) -> None:
        self.file: dict[str, str] = {}  # of a function: a name, or "file name" for one that its file keeps to itself
        self.called: dict[str, set[str]] = {}
        for folder in folders:
            for path in sorted(folder.rglob("src/**/*.o")):
                source = str(path).split("/src/")[-1].removesuffix(".o")
                if (root / "src" / source).exists():
                    self.read(path, source)
        for name, wanted in self.called.items():
            resolved = {self.resolve(self.file[name], target) for target in wanted}
            self.called[name] = resolved - {""}

    def read(self, path: Path, source: str) -> None:
        symbols = [line.split()[-2:] for line in output("nm", path)]
        shared = {name for kind, name in symbols if kind in "TW"}
        function, instruction = "", ""
        for line in output("objdump", "-dr", "--no-show-raw-insn", path):
            if head := re.match(r"[0-9a-f]+ <(.+)>:", line):
                name = plain(head[1])
                function = name if name in shared else f"{source} {name}"
                self.file[function] = source
                self.called.setdefault(function, set())
            elif target := re.match(r"\s+[0-9a-f]+: R_\w+\s+([\w.]+)", line):
                if re.search(r"\t(call|j\w+)\s", instruction):
                    self.called[function].add(plain(re.sub(r"^\.text\.(unlikely\.)?", "", target[1])))
            else:
                instruction = line
                if near := re.search(r"\t(?:call|j\w+)\s+[0-9a-f]+ <([\w.]+)>$", line):  # within a section: none
                    self.called[function].add(plain(near[1]))

    def resolve(self, file: str, target: str) -> str:
        own = f"{file} {target}"
        return own if own in self.file else target if target in self.file else ""


def output(*command: str | Path) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def plain(name: str) -> str:
    """The name in the source of what the compiler split, such as `f.part.0`."""
    return name.split(".", maxsplit=1)[0]


class Tree:
    """The functions that the root of a path reaches without the calls beside it."""

    def __init__(self, calls: Calls, path: Route) -> None:
        self.calls, self.path = calls, path
        self.outside: dict[str, list[str]] = {}
        self.longest: dict[str, list[str]] = {}
        self.shown: set[str] = set()
        if path.root in calls.file:
            self.visit(path.root)

    def is_beside(self, name: str) -> bool:
        name = name.rsplit(" ", 1)[-1]
        return any(name == rule or (rule[-1] == "*" and name.startswith(rule[:-1])) for rule in self.path.beside)

    def visit(self, function: str) -> None:
        """Finds what the function calls in other files, itself or by way of its own file. Modules call in no circle."""
        if function in self.longest:
            return
        seen, todo, outside = {function}, [function], set()
        while todo:
            for name in self.calls.called[todo.pop()] - seen:
                if self.is_beside(name):
                    continue
                if self.calls.file[name] == self.calls.file[function]:
                    seen.add(name)
                    todo.append(name)
                else:
                    outside.add(name)
        self.outside[function] = sorted(outside, key=lambda name: (self.calls.file[name], name))
        self.longest[function] = []
        for name in self.outside[function]:
            self.visit(name)
        rest = max((self.longest[name] for name in self.outside[function]), key=len, default=[])
        self.longest[function] = [self.calls.file[function], *rest]

    def lines(self, functions: list[str], depth: int = 0) -> list[str]:
        """One line for each file, with the functions by which it is entered. Its callees stand below it once."""
        file = self.calls.file[functions[0]]
        key = f"{file} {' '.join(functions)}"
        below: dict[str, set[str]] = {}
        for function in functions:
            for name in self.outside[function]:
                below.setdefault(self.calls.file[name], set()).add(name)
        again = key in self.shown and below
        self.shown.add(key)
        result = [f"{'  ' * depth}{file}: {', '.join(functions)}{' (see above)' if again else ''}"]
        if not again:
            for other in sorted(below, key=lambda name: (-len(self.longest[min(below[name])]), name)):
                result += self.lines(sorted(below[other]), depth + 1)
        return result

    def text(self) -> str:
        path = self.longest[self.path.root]
        beside: dict[str, list[str]] = {}
        for name, when in self.path.beside.items():
            beside.setdefault(when, []).append(f"`{name}`")
        rows = [f"- {when}: {', '.join(names)}" for when, names in beside.items()]
        return "\n".join(
            [
                f"The longest path of {self.path.name} crosses {len(path)} files, and the test allows "
                f"{self.path.files}:",
                f"{' → '.join(f'`{file}`' for file in path)}.",
                "",
                "```",
                *self.lines([self.path.root]),
                "```",
                "",
                "In these cases the path also calls other functions:",
                "",
                *rows,
            ]
        )


def section(name: str, text: str) -> tuple[int, int]:
    """Where the section of that name lies in the document, without its marks."""
    found = re.search(rf"<!-- call tree: {re.escape(name)} -->\n(.*?)<!-- end of call tree -->", text, re.DOTALL)
    return found.span(1) if found else (-1, -1)


def check(root: Path, calls: Calls, paths: list[Route], write: bool) -> list[str]:
    document = root / DOCUMENT
    told: list[str] = []
    for path in paths:
        tree = Tree(calls, path)
        text = document.read_text()
        start, end = section(path.name, text)
        if path.root not in calls.file or start < 0:
            missing = DOCUMENT if start < 0 else "the objects"
            told.append(f"{path.name}: not in {missing}")
            continue
        files = tree.longest[path.root]
        if len(files) > path.files:
            told.append(f"{path.name}: a path crosses {len(files)} files, of at most {path.files}: {' '.join(files)}")
        if write:
            document.write_text(text[:start] + tree.text() + "\n" + text[end:])
        elif text[start:end] != tree.text() + "\n":
            told.append(f"{DOCUMENT}: the call tree of {path.name} is of another state: run calltree.py --write")
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--objects", type=Path, nargs="+", required=True, help="where a build left the objects")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help="the repository")
    parser.add_argument("--write", action="store_true", help="write the trees into the document")
    arguments = parser.parse_args()
    told = check(arguments.root, Calls(arguments.root, arguments.objects), PATHS, arguments.write)
    print("\n".join(told), end="\n" if told else "")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
