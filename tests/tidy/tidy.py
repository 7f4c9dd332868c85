#!/usr/bin/env python3
"""Checks the rules of CONTRIBUTING.md that a program can check, and prints a line for each place that breaks one.

usage: tidy.py [--objects DIRECTORY...] [--root DIRECTORY]

The rules of text need the source alone. The rules of calls (no call to a higher floor, no circle of modules) need the
objects that a build left in these directories: symbols say what calls what, text does not. Exit status 1: a rule is
broken.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FLOORS = ["base", "os", "pages", "slab", "heap", "epoch", "process", "stats", "runtime", "malloc"]
COLUMNS = 120
FUNCTION_LINES = 50
SUBJECT_COLUMNS, SUBJECTS = 72, 100  # of the newest commits


def sources(root: Path, *folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(path for path in (root / folder).rglob("*") if path.suffix in {".c", ".h", ".cc", ".hpp"})


def floor_of(module: str) -> int:
    return FLOORS.index(module.split("/", 1)[0])


# ---- rules of text ---------------------------------------------------------------------------------------------------


def long_lines(root: Path) -> Iterator[str]:
    for path in sources(root, "src", "include", "bench", "tests", "examples", "demo"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if len(line) > COLUMNS:
                yield f"{path.relative_to(root)}:{number}: {len(line)} columns, {COLUMNS} are allowed: break the line"


NO_FUNCTION = re.compile(
    r"[\s#/*}]|.*=|namespace|.*\bextern \"C\"|(typedef |static )?(const )?(struct|union|enum)\b[^()]*\{$"
)


def bodies(text: str) -> Iterator[tuple[int, list[str]]]:
    """The number of the line that opens each function, and the lines from there to its closing brace.

    A function opens at a line in the first column that ends with "{" and has a parenthesis, and closes at a "}" in the
    first column.
    """
    lines = text.splitlines()
    first = None
    for at, line in enumerate(lines):
        head_ends = line.endswith(") {") and line.startswith(" ")  # it began on a line before
        if first is None and (head_ends or (line.endswith("{") and not NO_FUNCTION.match(line))):
            first = at
        if first is not None and line.startswith("}"):
            yield first + 1, lines[first : at + 1]
            first = None


def functions(root: Path) -> Iterator[str]:
    for path in sources(root, "src"):
        for number, body in bodies(path.read_text()):
            where = f"{path.relative_to(root)}:{number}"
            if len(body) > FUNCTION_LINES:
                yield f"{where}: a function of {len(body)} lines, {FUNCTION_LINES} are allowed: split it"
            for at, line in enumerate(body):
                if re.match(r"\s*#\s*(if|ifdef|ifndef|else|elif)\b", line):
                    yield f"{path.relative_to(root)}:{number + at}: {line.strip()} inside a function: move it outside"


def includes(root: Path) -> Iterator[str]:
    headers: dict[str, set[str]] = {}
    modules: dict[str, set[str]] = {}
    for path in sources(root, "src"):
        module = str(path.relative_to(root / "src"))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            name = re.match(r'#include "(\w+/[\w.]+)"', line)
            if not name or name[1].split("/", 1)[0] not in FLOORS:
                continue
            if module.split("/", 1)[0] in FLOORS and floor_of(name[1]) > floor_of(module):
                yield f"src/{module}:{number}: includes {name[1]} of a higher floor"
            if module.endswith(".h") and name[1] != module:
                headers.setdefault(module, set()).add(name[1])
            includer, included = (file.rsplit(".", 1)[0] for file in (module, name[1]))
            if included != includer:
                modules.setdefault(includer, set()).add(included)
    for circle in circles(headers):
        yield f"headers that include each other: {', '.join(sorted(circle))}"
    for circle in circles(modules) if not circles(headers) else []:
        yield f"modules that include each other: {', '.join(sorted(circle))}"


def rare_names(root: Path) -> Iterator[str]:
    """Each function that cmake/rare.ld names exists; a name ends with * where the compiler may append to it."""
    text = "".join(path.read_text() for path in sources(root, "src"))
    words = set(re.findall(r"\w+", text))
    for name in re.findall(r"\.text\.(\w+)(\*?)", (root / "cmake" / "rare.ld").read_text()):
        if name[0] == "unlikely":
            continue
        found = any(word.startswith(name[0]) for word in words) if name[1] else name[0] in words
        if not found:
            yield f"cmake/rare.ld: no function is named {name[0]}{name[1]}: delete the name"


def undocumented(root: Path) -> Iterator[str]:
    """Each public function has a comment above it, or stands in a group of lines below one, in one of the headers."""
    documented: set[str] = set()
    bare: dict[str, str] = {}
    for path in sources(root, "include"):
        commented = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            name = re.match(r"\w[\w\s*]*\b(tslab_)(?:optional_)?(\w+)\(", line)
            if line.rstrip().endswith("*/") or line.lstrip().startswith("//"):
                commented = True
            elif not line.strip():
                commented = False
            elif name and commented:
                documented.add(name[2])
            elif name:
                bare[name[2]] = f"{path.relative_to(root)}:{number}: tslab_{name[2]} has no comment: say what it does"
    yield from (line for name, line in bare.items() if name not in documented)


VERSIONS = {
    "CMakeLists.txt": r"^project\(.*\bVERSION ([\d.]+)",
    "tools/pyproject.toml": r'^version = "([\d.]+)"',
    "docs/assets/version.svg": r"<text[^>]*>([\d.]+)</text>",
    "README.md": r"^\[!\[Version ([\d.]+)\]",
}


def versions(root: Path) -> Iterator[str]:
    """The library and the command are released together, and the README's badge says which version they have."""
    found = {name: re.search(pattern, (root / name).read_text(), re.M) for name, pattern in VERSIONS.items()}
    said = {name: match[1] if match else "no version" for name, match in found.items()}
    for name, version in said.items():
        if version != said["CMakeLists.txt"]:
            yield f"CMakeLists.txt has {said['CMakeLists.txt']}, {name} has {version}: give both the same version"


RETIRED_IN_NAMES = {
    *("part", "parts", "depot", "lifetime", "lifetimes", "tally", "tallies", "doings", "spare", "spares"),
    *("gather", "homeless", "bury", "buried"),
}
RETIRED_IN_TEXT = re.compile(r"\b(depots?|tally|tallies|doings|homeless|forsak\w+)\b", re.I)
NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)


def retired_words(root: Path) -> Iterator[str]:
    """No name of the source has a word that another one took the place of; no text has those that mean nothing else."""
    for path in sources(root, "src", "include"):
        code = NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), path.read_text())
        for number, line in enumerate(code.splitlines(), 1):
            for name in re.findall(r"[A-Za-z_]\w*", line):
                for word in RETIRED_IN_NAMES.intersection(name.lower().split("_")):
                    where = f"{path.relative_to(root)}:{number}"
                    yield f"{where}: {name} has the retired word {word}: docs/glossary.md has today's"
    for path in [*sources(root, "src", "include", "tests"), *sorted((root / "docs").rglob("*.md"))]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if word := RETIRED_IN_TEXT.search(line):
                yield f"{path.relative_to(root)}:{number}: the word {word[0]} is retired: docs/glossary.md has today's"


RELATIVE_SUBJECT = re.compile(
    r"(?:^|[.;:]\s)\s*"
    r"((?:who|whom|whoever|whose|what|whatever|whether|whichever|so many|so much)\b(?!\()[^.;:?]*)(\??)",
    re.I,
)


C_MARK = re.compile(r"^\s*(/\*+|\*(?!/)|//+[/!]?)|\*/$", re.M)
HASH_MARK = re.compile(r"^\s*#[:?!]?", re.M)
HASH_COMMENT = re.compile(r"(?:^[ \t]*#[^\n]*\n?)+|(?<=[ \t])#[ :][^\n]*", re.M)


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Where each comment of a file begins, and its words, with spaces in place of its marks."""
    text = path.read_text()
    of_c = path.suffix in {".c", ".h", ".cc", ".hpp", ".rs"}
    for comment in (NOT_CODE if of_c else HASH_COMMENT).finditer(text):
        if not comment[0].startswith('"'):
            mark = C_MARK if of_c else HASH_MARK
            yield comment.start(), mark.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), comment[0])
    if path.suffix == ".py":
        yield from docstrings(text)


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Where each docstring of a Python file begins, and its words, with spaces in place of its quotes."""
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            said = node.body[0]
            source = "".join(lines[said.lineno - 1 : said.end_lineno])
            yield len("".join(lines[: said.lineno - 1])), source.replace('"', " ")


def commented(root: Path) -> Iterator[Path]:
    yield from sources(root, "src", "include", "bench", "tests", "tools", "examples", "demo")
    for folder in ("bench", "tests", "tools", "examples", "demo", "cmake", "rust"):
        yield from sorted(path for path in (root / folder).rglob("*") if path.suffix in {".py", ".rs", ".sh"})
    yield from (path for path in (root / "dev", root / "CMakeLists.txt") if path.exists())


def relative_subjects(root: Path) -> Iterator[str]:
    """No sentence of a comment or a docstring begins with a free relative ("Who holds it ..."): its subject names the
    actor. Questions may begin so."""
    for path in commented(root):
        text = path.read_text()
        for at, words in comments(path):
            for sentence in RELATIVE_SUBJECT.finditer(words):
                if sentence[2]:
                    continue
                line = text.count("\n", 0, at + sentence.start(1)) + 1
                start = " ".join(sentence[1].split()[:4])
                yield f'{path.relative_to(root)}:{line}: a sentence begins with "{start}": name the actor'


# Each function that releases a lock, with those that take it. A function of the left side may release a lock that its
# caller took; no other function may.
RELEASES = {
    "lock_release": {"lock_take", "lock_try", "lock_take_within", "take_gate", "heap_lock", "lock_heap_of"},
    "arena_unlock": {"arena_lock"},
    "epoch_unlock": {"epoch_lock", "handle_lock_quiet"},
    "epoch_release": {"epoch_take", "epoch_own", "handle_take_quiet"},
    "unlock_owner": {"lock_owner"},
    "arena_walk_on": {"arena_walk"},  # without the lock once there is no next run
    "arena_walk_end": {"arena_walk"},
    "publish_after_fork_parent": {"publish_before_fork"},
    "release_one": {"take_one", "lock_take_over"},  # each_lock calls these, and the next with its taker
    "release_taken": {"take_one"},
    "release_some": {"take_all"},
    "release_all": {"take_all", "take_over_all"},
    "end_hold": {"hold_all"},
    "after_fork_parent": {"before_fork"},  # libc's fork calls both
}

CALL = re.compile(r"\b(\w+)\(")
# A function that releases a lock, as an argument of another call.
PASSED = re.compile(rf"\b({'|'.join(RELEASES)})\b(?!\()")


def argument(text: str, at: int) -> str:
    """The first argument of the call whose parenthesis opens at `at`."""
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] in "([") - (text[end] in ")]")
        if depth == 0 or (depth == 1 and text[end] == ","):
            return text[at + 1 : end].strip()
    return ""


def locks(root: Path) -> Iterator[str]:
    """A function releases a lock only below the place where it took that lock, under the same name."""
    for path in sources(root, "src"):
        code = NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), path.read_text())
        for number, body in bodies(code):
            function = (CALL.search(body[0]) or CALL.search(code.splitlines()[number - 2]) or [None, ""])[1]
            if function in RELEASES:
                continue
            text = "\n".join(body)
            for call in CALL.finditer(text, text.index("{")):
                takers = RELEASES.get(call[1])
                if takers is None:
                    continue
                lock = argument(text, call.end() - 1)
                before = list(CALL.finditer(text, 0, call.start()))
                took = any(
                    taker[1] in takers
                    and (
                        argument(text, taker.end() - 1) == lock
                        or re.search(rf"(?<![\w.>]){re.escape(lock)} = $", text[: taker.start()])
                    )
                    for taker in before
                )
                if not took:
                    line = number + text.count("\n", 0, call.start())
                    where = f"{path.relative_to(root)}:{line}"
                    yield f"{where}: {function or 'a function'} releases {lock}, which it did not take"
            for passed in PASSED.finditer(text, text.index("{")):
                if not any(re.search(rf"\b{taker}\b", text[: passed.start()]) for taker in RELEASES[passed[1]]):
                    line = number + text.count("\n", 0, passed.start())
                    where = f"{path.relative_to(root)}:{line}"
                    yield f"{where}: {function or 'a function'} passes {passed[1]} on, but none that takes the lock"


# ---- rules of calls --------------------------------------------------------------------------------------------------


# Names of libc's that the library uses as every program does, and also defines for the program.
NAMES_OF_LIBC = {
    ("runtime/interpose", "malloc"): "compares its address with the library's own, and does not call it",
    ("runtime/scavenger", "pthread_create"): "makes its thread as any library does; interpose passes that call on",
}


def calls(root: Path, objects: list[Path]) -> dict[str, dict[str, set[str]]]:
    """For each module, the modules that it calls and by which names. A weak name counts, too."""
    defined: dict[str, str] = {}
    wanted: dict[str, set[str]] = {}
    for path in sorted(path for folder in objects for path in folder.rglob("src/**/*.o")):
        source = str(path).split("/src/")[-1].removesuffix(".o")
        if not (root / "src" / source).exists():  # it was built before the source went
            continue
        module = source.rsplit(".", 1)[0]
        wanted[module] = set()
        for line in subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines():
            kind, name = line.split()[-2:]
            if kind in "Uw" and (module, name) not in NAMES_OF_LIBC:
                wanted[module].add(name)
            elif kind in "TDBRVWC":
                defined[name] = module
    graph: dict[str, dict[str, set[str]]] = {module: {} for module in wanted}
    for module, names in wanted.items():
        for name in names & defined.keys():
            if defined[name] != module:
                graph[module].setdefault(defined[name], set()).add(name)
    return graph


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of two or more nodes that reach each other."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for node in graph.get(todo.pop(), set()) - seen:
                seen.add(node)
                todo.append(node)
        return seen

    reach = {node: reached(node) for node in graph}
    found: list[set[str]] = []
    for node in graph:
        circle = {other for other in reach[node] if other in reach and node in reach[other]} | {node}
        if len(circle) > 1 and circle not in found:
            found.append(circle)
    return found


def calls_upward(graph: dict[str, dict[str, set[str]]]) -> Iterator[str]:
    for module, called in sorted(graph.items()):
        for other, names in sorted(called.items()):
            if floor_of(other) > floor_of(module):
                yield f"src/{module}: calls {', '.join(sorted(names))} of src/{other}, a higher floor"


def calls_in_circles(graph: dict[str, dict[str, set[str]]]) -> Iterator[str]:
    for circle in circles({module: set(called) for module, called in graph.items()}):
        yield f"modules that call each other: {', '.join(sorted(circle))}"


def subjects(root: Path) -> Iterator[str]:
    """The subjects of the newest commits fit where tools show them. Without a repository there is nothing to check."""
    if not (root / ".git").exists():
        return
    log = ["git", "-C", str(root), "log", "--no-merges", f"-{SUBJECTS}", "--format=%h %s"]
    for line in subprocess.run(log, capture_output=True, text=True, check=False).stdout.splitlines():
        commit, subject = line.split(" ", 1)
        if len(subject) > SUBJECT_COLUMNS:
            yield f"commit {commit}: its subject has {len(subject)} columns, {SUBJECT_COLUMNS} are allowed"


def broken(root: Path, objects: list[Path]) -> Iterator[str]:
    of_text = (long_lines, functions, includes, locks, rare_names, retired_words, relative_subjects)
    for rule in (*of_text, undocumented, versions, subjects):
        yield from rule(root)
    if objects:
        graph = calls(root, objects)
        if not graph:
            yield f"{', '.join(map(str, objects))}: no objects of src here: build the library first"
        yield from calls_upward(graph)
        yield from calls_in_circles(graph)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--objects", type=Path, nargs="+", default=[], help="where a build left the objects of the library"
    )
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help="the repository")
    arguments = parser.parse_args()
    lines = list(broken(arguments.root, arguments.objects))
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
