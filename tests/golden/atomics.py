#!/usr/bin/env python3
"""Every atomic access of the source against docs/atomics.md, and that the fast path has none but for correctness.

    tests/golden/atomics.py                        the source against the table
    tests/golden/atomics.py --tracer FASTPATH --library LIBTSLAB
                                                   the fast path, too, as tests/golden/run traces it
    tests/golden/atomics.py --list                 print each object with its module, orders and places; compare nothing

An object is `struct.field`, or a variable. Accesses are found by their text, so that what one configuration leaves out
counts as well. A function or macro that accesses what a parameter points to is followed to its callers. A plain access
of an object declared _Atomic is sequentially consistent, and counted as such. An access whose object cannot be told is
an error. Plain accesses to objects that are not _Atomic are a race detector's work. `*pointer` of a local pointer to
one that is _Atomic is not seen.
"""

import argparse
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TABLE = "docs/atomics.md"
FAST = "src/heap/fast.h"
KINDS = ("correctness", "telemetry")

# ---- the source, cut up ----------------------------------------------------------------------------------------------


def blank(text: str) -> str:
    """Comments and what strings hold become blanks, so that offsets and line numbers stay."""

    def fill(match: re.Match[str]) -> str:
        found = match[0]
        if found[0] in "\"'":
            return found[0] + " " * (len(found) - 2) + found[-1]
        return re.sub(r"[^\n]", " ", found)

    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', fill, text, flags=re.S)


def closing(text: str, at: int) -> int:
    """Of the bracket at `at`; the end of the text when there is none."""
    depth = 0
    for i in range(at, len(text)):
        if text[i] in "([{":
            depth += 1
        elif text[i] in ")]}":
            depth -= 1
            if depth == 0:
                return i
    return len(text)


def split(text: str, separator: str = ",") -> list[tuple[int, str]]:
    """At separators outside brackets: offset and text of each piece."""
    pieces, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == separator and depth == 0:
            pieces.append((start, text[start:i]))
            start = i + 1
    return [*pieces, (start, text[start:])]


@dataclass
class Field:
    type: str  # of the struct that it is or points to; "" for none
    atomic: bool = False
    pointer: bool = False


@dataclass(frozen=True)
class Function:
    """Or a function-like macro."""

    file: str
    name: str
    head: int
    start: int  # of its parameters
    end: int
    parameters: tuple[str, ...]
    macro: bool


@dataclass
class Source:
    text: str
    macros: list[tuple[int, int]] = field(default_factory=list)  # where their definitions lie
    functions: list[Function] = field(default_factory=list)
    words: dict[str, list[int]] = field(default_factory=dict)  # where each stands, but as a field

    def __post_init__(self) -> None:
        for match in re.finditer(r"(?<![\w.>])[A-Za-z_]\w*", self.text):
            self.words.setdefault(match[0], []).append(match.start())

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1


@dataclass(frozen=True)
class Access:
    object: str
    module: str  # where the object is declared
    order: str  # as in "load acquire"
    file: str
    line: int


BUILTIN = re.compile(
    r"\b(?:__atomic_|atomic_)(load|store|exchange|compare_exchange|fetch_\w+?|test_and_set|clear)"
    r"(?:_n|_strong|_weak)?(?:_explicit)?\s*\("
)
COUNTERS = {"counter_add", "counter_max", "shared_add", "shared_max"}  # their counts are telemetry
FENCE = re.compile(r"\b(?:(FENCE_STORES|FENCE_ALL)\(\)|(?:__)?atomic_(thread|signal)_fence\(\s*(\w+)\s*\))")
RACING = {"LOAD_RACING": "load racing", "STORE_RACING": "store racing"}
WEAK = re.compile(r" (relaxed|racing)(/relaxed)?$")
ORDER = re.compile(r"(?:memory_order|__ATOMIC)_(\w+)")
FUNCTION = re.compile(r"^(?!#|typedef|(?:struct|enum) \w* ?\{)[A-Za-z_][^;{}=#]*?\b(\w+)(\()", re.M)
STRUCT = re.compile(r"\b(struct|union)\s*(\w*)[^;{}()=]*\{")
QUALIFIERS = r"(?:\s|const\b|_Atomic\b|volatile\b|HIDDEN\b|extern\b|static\b)*"
LINK = re.compile(r"(->|\.)\s*(\w+)")


class Unknown(Exception):
    """An access whose object cannot be told."""


class Program:
    def __init__(self, texts: dict[str, str]) -> None:
        self.sources = {name: Source(blank(text)) for name, text in sorted(texts.items())}
        self.structs: dict[str, dict[str, Field]] = {}
        self.modules: dict[str, str] = {}  # of a struct
        self.globals: dict[tuple[str, str], str] = {}  # (file or "", variable): its struct
        self.atomics: dict[tuple[str, str], str] = {}  # (file or "", variable declared _Atomic): its module
        self.returns: dict[str, str] = {}  # the struct that a function returns
        for name, source in self.sources.items():
            self.find_macros(name, source)
            self.find_structs(name, source)
            self.find_functions(name, source)
        for name, source in self.sources.items():
            self.find_globals(name, source)
        self.accesses: list[Access] = []
        self.errors: list[str] = []
        self.spans: dict[str, list[tuple[int, int]]] = defaultdict(list)  # text that is the object of a known access
        self.accessors: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)  # parameter and order
        for macro, order in RACING.items():
            self.accessors["", macro].append((0, order))
        self.find_accesses()
        self.find_plain()

    # -- declarations --

    @staticmethod
    def module_of(file: str) -> str:
        return re.sub(r"^src/|\.\w+$", "", file)

    def find_macros(self, file: str, source: Source) -> None:
        for match in re.finditer(r"^#define (\w+)(\([\w, .]*\))?((?:\\\n|.)*)", source.text, re.M):
            source.macros.append(match.span())
            if match[2]:
                names = tuple(name.strip() for name in match[2][1:-1].split(","))
                start, end = match.start(2), match.end()
                source.functions.append(Function(file, match[1], match.start(), start, end, names, True))

    def in_macro(self, source: Source, at: int) -> bool:
        return any(start <= at < end for start, end in source.macros)

    def find_structs(self, file: str, source: Source) -> None:
        for match in STRUCT.finditer(source.text):
            open_at = match.end() - 1
            end = closing(source.text, open_at)
            tag = match[2]
            if not tag:
                after = re.match(r"\s*(\w+)", source.text[end + 1 :])
                tag = f"{file}:{after[1]}" if after and match[1] == "struct" else ""
            if tag:
                tag = tag if file.endswith(".h") or ":" in tag else f"{file}:{tag}"
                self.structs[tag] = self.fields_of(file, source.text[open_at + 1 : end])
                self.modules[tag] = self.module_of(file)

    def tag_in(self, file: str, tag: str) -> str:
        """A struct of a .c file is that file's own."""
        return f"{file}:{tag}" if f"{file}:{tag}" in self.structs else tag

    def fields_of(self, file: str, body: str) -> dict[str, Field]:
        fields: dict[str, Field] = {}
        for _, declaration in split(body, ";"):
            nested = STRUCT.search(declaration)
            if nested:
                end = closing(declaration, nested.end() - 1)
                names = re.match(r"\s*(\w+)", declaration[end + 1 :])
                if names:
                    fields[names[1]] = Field(self.tag_in(file, nested[2] or f"{file}:{names[1]}"))
                else:
                    fields |= self.fields_of(file, declaration[nested.end() : end])
                continue
            of = re.search(r"\bstruct (\w+)", declaration)
            pieces = [piece for _, piece in split(re.sub(r"ALIGNED\(\w+\)", "", declaration))]
            for piece in pieces:
                name = re.search(r"(\w+)\s*(?:\[[^;]*\]|:\s*\d+)?\s*$", piece)
                if name:
                    struct = self.tag_in(file, of[1]) if of else ""
                    fields[name[1]] = Field(struct, "_Atomic" in pieces[0], "*" in piece)
        return fields

    def find_functions(self, file: str, source: Source) -> None:
        for match in FUNCTION.finditer(source.text):
            if self.in_macro(source, match.start()):
                continue
            end = closing(source.text, match.start(2))
            head = source.text[match.start() : match.start(2)]
            returned = re.search(r"\bstruct (\w+)", head)
            if returned:
                tag = self.tag_in(file, returned[1])
                self.returns.setdefault(match[1], tag)
                self.returns[f"{file}:{match[1]}"] = tag
            elif re.search(r"\bpagemap_entry\b", head):
                self.returns[match[1]] = "pagemap_entry"
            body = re.match(r"[^;{]*\{", source.text[end + 1 :])
            if not body:
                continue
            parameters = []
            for _, piece in split(source.text[match.start(2) + 1 : end]):
                name = re.search(r"(\w+)\s*(?:\[\w*\])?\s*$", piece)
                parameters.append(name[1] if name else "")
            start, last = match.start(2), closing(source.text, end + body.end())
            source.functions.append(Function(file, match[1], match.start(), start, last, tuple(parameters), False))

    def find_globals(self, file: str, source: Source) -> None:
        text = re.sub(r"^#.*", lambda line: " " * len(line[0]), source.text, flags=re.M)
        for start, end in [*source.macros, *((f.head, f.end + 1) for f in source.functions if not f.macro)]:
            text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
        for _, declaration in split(text, ";"):
            declared = re.sub(r"\s= .*", "", declaration, flags=re.S)
            nested = STRUCT.search(declared)
            after = declared[closing(declared, nested.end() - 1) + 1 :] if nested else declared
            after = re.sub(r"(?:_Atomic|ALIGNED|__attribute__)\(.*?\)+|\[.*?\]", "", after)
            if "(" in after or not after.strip():
                continue  # a function's, or a struct's alone
            scope = file if "static" in declared and file.endswith(".c") else ""
            for name, found in self.fields_of(file, declared).items():
                self.globals[scope, name] = found.type
                if found.atomic:
                    self.atomics[scope, name] = self.module_of(file)

    # -- which object an expression names --

    def function_at(self, file: str, at: int) -> Function | None:
        found = [f for f in self.sources[file].functions if f.start <= at <= f.end]
        return max(found, key=lambda f: f.start, default=None)

    def local_struct(self, function: Function, name: str, at: int) -> str:
        """The struct that a parameter or local is, or points to."""
        text = self.sources[function.file].text[function.start : at]
        result = ""
        for match in re.finditer(r"\b(?:struct (\w+)|tslab_\w+(?= [*\w]))", text):
            rest = text[match.end() :]
            end = re.search(r";|\{", rest)
            statement = rest[: end.start()] if end else rest
            for _, piece in split(self.until_closing(statement)):
                declarator = re.match(r"[\s*]*(?:const |_Atomic )*(\w+)\s*(?:=|\[|$)", piece)
                if declarator and declarator[1] == name:
                    result = self.tag_in(function.file, match[1]) if match[1] else match[0]
        return result

    @staticmethod
    def until_closing(text: str) -> str:
        depth = 0
        for i, c in enumerate(text):
            depth += (c in "([{") - (c in ")]}")
            if depth < 0:
                return text[:i]
        return text

    def initializer(self, function: Function, name: str, at: int) -> str:
        """Returns the initial value of a local pointer."""
        text = self.sources[function.file].text[function.start : at]
        found = ""
        for match in re.finditer(rf"\*+\s*{name} = ", text):
            rest = self.sources[function.file].text[function.start + match.end() :]
            end = re.search(r"[;,]", re.sub(r"\([^()]*\)", lambda m: " " * len(m[0]), rest))
            found = rest[: end.start()] if end else ""
        return found

    @staticmethod
    def strip(expression: str) -> str:
        """Without casts, subscripts, arguments, address-of and outer parentheses."""
        text = " ".join(expression.split())
        while True:
            before = text
            text = text.strip().lstrip("&*").strip()
            text = re.sub(r"^\((?:const |_Atomic )*(?:struct \w+|\w+_t|void|char|size_t) ?\**\)", "", text)
            if text.startswith("(") and closing(text, 0) == len(text) - 1:
                text = text[1:-1]
            if text == before:
                break
        out, i = "", 0
        while i < len(text):
            if text[i] == "[":
                i = closing(text, i) + 1
            elif text[i] == "(" and out and (out[-1].isalnum() or out[-1] == "_"):
                out += "()"
                i = closing(text, i) + 1
            else:
                out += text[i]
                i += 1
        return out.strip()

    def struct_of(self, expression: str, file: str, at: int) -> str:
        """The struct that it is, or points to; "" when that is none or not known."""
        text = self.strip(expression)
        if cast := re.match(r"^\(\(struct (\w+) \*\)", " ".join(expression.split())):
            return self.tag_in(file, cast[1])
        last = next(reversed([*LINK.finditer(text)]), None)
        if last and last.end() == len(text):
            fields = self.structs.get(self.struct_of(text[: last.start()], file, at), {})
            return fields[last[2]].type if last[2] in fields else ""
        text = re.split(r" [-+] ", text)[0]
        if text.endswith("()"):
            return self.returns.get(f"{file}:{text[:-2]}", self.returns.get(text[:-2], ""))
        function = self.function_at(file, at)
        local = self.local_struct(function, text, at) if function else ""
        return local or self.globals.get((file, text), self.globals.get(("", text), ""))

    def objects(self, expression: str, file: str, at: int) -> list[tuple[str, str]]:
        """Objects, each with its module. A parameter of the function around is ("", name)."""
        flat = " ".join(expression.split())
        if " ? " in flat and " : " in flat and "->" not in flat.split(" ? ")[0].split("(")[0]:
            return [o for piece in flat.split(" ? ", 1)[1].split(" : ") for o in self.objects(piece, file, at)]
        if re.search(r"\(pagemap_entry \*\)", flat):
            return [("pagemap", self.module_of("src/pages/pages.h"))]
        text = self.strip(expression)
        last = next(reversed([*LINK.finditer(text)]), None)
        if last:
            struct = self.struct_of(text[: last.start()], file, at)
            fields = self.structs.get(struct, {})
            if last[2] not in fields:
                raise Unknown
            inner = fields[last[2]].type
            name = struct.split(":")[-1]
            if inner in self.structs and not fields[last[2]].pointer:  # all of it, word by word
                return [(f"{inner}.*", self.modules[inner])]
            return [(f"{name}.{last[2]}", self.modules[struct])]
        function = self.function_at(file, at)
        if text.endswith("()"):
            return self.returned(text[:-2], file)
        if function and text in function.parameters:
            return [("", text)]
        if function and re.search(rf"\bpagemap_entry \*{text}\b", self.sources[file].text[function.start : at]):
            return [("pagemap", self.module_of("src/pages/pages.h"))]
        if function and (value := self.initializer(function, text, at)):
            return self.objects(value, file, at)
        if function and re.search(rf"static _Atomic [^;]*\b{text}\b", self.sources[file].text[function.start : at]):
            return [(text, self.module_of(file))]
        for scope in (file, ""):
            if (scope, text) in self.atomics:
                return [(text, self.atomics[scope, text])]
        if (file, text) in self.globals:
            return [(text, self.module_of(file))]
        raise Unknown

    def returned(self, name: str, file: str) -> list[tuple[str, str]]:
        """Returns the objects whose addresses the function's return statements take."""
        if self.returns.get(name) == "pagemap_entry":
            return [("pagemap", self.module_of("src/pages/pages.h"))]
        for function in self.sources[file].functions:
            if function.name != name or function.macro:
                continue
            found = []
            text = self.sources[file].text[function.start : function.end]
            for match in re.finditer(r"\breturn ([^;]*);", text):
                found += self.objects(match[1], file, function.start + match.start(1))
            if found:
                return found
        raise Unknown

    # -- accesses --

    def note(self, expression: str, order: str, file: str, at: int) -> bool:
        """Records the access; for one through a parameter, that its function is an accessor. True when that is new."""
        source = self.sources[file]
        try:
            objects = self.objects(expression, file, at)
        except Unknown:
            self.errors.append(
                f"{file}:{source.line(at)}: cannot tell which object `{' '.join(expression.split())}` is: access it by "
                "`variable` or `struct->field`, or teach tests/golden/atomics.py this form"
            )
            return False
        new = False
        for name, module in objects:
            if name:
                self.accesses.append(Access(name, module, order, file, source.line(at)))
                continue
            function = self.function_at(file, at)
            assert function
            scope = file if file.endswith(".c") else ""
            self.accessors[scope, function.name].append((function.parameters.index(module), order))
            new = True
        return new

    def arguments(self, source: Source, open_at: int) -> list[tuple[int, str]]:
        end = closing(source.text, open_at)
        return [(open_at + 1 + offset, text) for offset, text in split(source.text[open_at + 1 : end])]

    @staticmethod
    def order_of(what: str, arguments: list[tuple[int, str]]) -> str:
        flat = [re.sub(r"\(.*\)", "", text) for _, text in arguments[1:]]
        orders = [" or ".join(ORDER.findall(text)) for text in flat if ORDER.search(text)]
        what = {"compare_exchange": "cas"}.get(what, what)
        return f"{what} {'/'.join(orders) or 'seq_cst'}".lower()

    def find_accesses(self) -> None:
        for file, source in self.sources.items():
            for match in BUILTIN.finditer(source.text):
                arguments = self.arguments(source, match.end() - 1)
                at, expression = arguments[0]
                self.spans[file].append((at, at + len(expression)))
                if file == "src/base/attr.h" and self.in_macro(source, at):
                    continue  # LOAD_RACING and STORE_RACING: known by their names
                self.note(expression, self.order_of(match[1], arguments), file, at)
            for match in FENCE.finditer(source.text):
                function = self.function_at(file, match.start())
                if self.in_macro(source, match.start()):
                    continue
                name = function.name if function else "?"
                order = {"FENCE_STORES": "fence release", "FENCE_ALL": "fence seq_cst"}.get(match[1] or "")
                order = order or f"{match[2]} fence {ORDER.findall(match[3])[0].lower()}"
                self.accesses.append(Access(f"{name}()", self.module_of(file), order, file, source.line(match.start())))
            for function in source.functions:
                if function.macro and "place" in function.parameters:
                    body = source.text[function.start : function.end]
                    if file != "src/base/attr.h" and re.search(r"\(\s*place = (?!=)", body):
                        at = function.parameters.index("place")
                        self.accessors[file if file.endswith(".c") else "", function.name].append((at, "store seq_cst"))
        done: set[tuple[str, str, int, str]] = set()
        while True:  # accessors of accessors
            todo = {(s, n, p, o) for (s, n), uses in self.accessors.items() for p, o in uses} - done
            if not todo:
                break
            done |= todo
            for scope, name, parameter, order in sorted(todo):
                self.follow(scope, name, parameter, order)

    def follow(self, scope: str, name: str, parameter: int, order: str) -> None:
        """Every call of an accessor is an access."""
        for file, source in self.sources.items():
            own = [f for f in source.functions if f.name == name]
            if (scope and file != scope) or (not scope and own and file.endswith(".c")):
                continue  # another function by that name
            for start in source.words.get(name, ()):
                at = start + len(name)
                if source.text[at] != "(" or any(f.start == at for f in own) or self.is_declaration(source, start):
                    continue
                arguments = self.arguments(source, at)
                if parameter < len(arguments):
                    at, expression = arguments[parameter]
                    self.spans[file].append((at, at + len(expression)))
                    self.note(expression, order, file, at)

    @staticmethod
    def is_declaration(source: Source, at: int) -> bool:
        before = source.text[source.text.rfind("\n", 0, at) + 1 : at]
        return bool(before) and not before[0].isspace() and "{" not in before and "#define" not in before

    def chain_start(self, text: str, at: int) -> int:
        """Where the expression starts whose `.` or `->` is at `at`."""
        i = at
        while i > 0:
            c = text[i - 1]
            if c in ")]":
                depth = 0
                while i > 0:
                    i -= 1
                    depth += (text[i] in ")]") - (text[i] in "([")
                    if depth == 0:
                        break
            elif c.isalnum() or c in "_.":
                i -= 1
            elif c == ">" and i > 1 and text[i - 2] == "-":
                i -= 2
            else:
                break
        return i

    def mentions(self, file: str, names: set[str], start: int, end: int) -> Iterator[tuple[int, int, str]]:
        """Where `x.name` or `x->name` stands: start and end of the expression, and the name."""
        text = self.sources[file].text
        for match in re.finditer(r"(?:->|\.)(\w+)", text[start:end]):
            if match[1] in names:
                first = self.chain_start(text, start + match.start())
                if first < start + match.start():
                    yield first, start + match.end(), match[1]

    def find_plain(self) -> None:
        """Objects declared _Atomic that are used as if they were not: those accesses are sequentially consistent."""
        names = {name for fields in self.structs.values() for name, f in fields.items() if f.atomic}
        for file, source in self.sources.items():
            text = source.text
            places = []
            for start, end, name in self.mentions(file, names, 0, len(text)):
                struct = self.struct_of(text[start : end - len(name)].rstrip(".->"), file, start)
                if not struct and all(f[name].atomic for f in self.structs.values() if name in f):
                    self.note(text[start:end], "plain", file, start)
                if self.structs.get(struct, {}).get(name, Field("")).atomic:
                    places.append((start, end))
            for scope, name in self.atomics:
                if scope in ("", file):
                    for at in source.words.get(name, ()):
                        if self.function_at(file, at):
                            places.append((at, at + len(name)))
            for start, end in places:
                if text[:start].endswith("&") or any(a <= start and end <= b for a, b in self.spans[file]):
                    continue
                function = self.function_at(file, start)
                if function and function.macro and file == "src/base/attr.h":
                    continue
                after = text[end:].lstrip()
                after = after[closing(after, 0) + 1 :].lstrip() if after.startswith("[") else after
                stored = re.match(r"=(?!=)", after)
                changed = re.match(r"\+\+|--|[-+|&^]=", after)
                line_start = text.rfind("\n", 0, start) + 1
                if re.match(r"\s*(?:static |extern )*.*_Atomic", text[line_start:start]):
                    continue  # its declaration
                what = "store" if stored else "rmw" if changed else "load"
                self.note(text[start:end], f"{what} seq_cst", file, start)


def load(root: Path) -> dict[str, str]:
    files = [*root.glob("src/*/*.[ch]"), *root.glob("src/*/*.cc")]
    return {str(path.relative_to(root)): path.read_text() for path in files}


# ---- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    object: str
    module: str
    kind: str
    orders: str
    why: str
    line: int


def read_table(text: str) -> tuple[list[Row], list[str]]:
    rows, errors = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not re.match(r"\| `", line):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if len(cells) != 5 or not all(cells):
            errors.append(f"{TABLE}:{number}: a row is: | `object` | module | kind | orders | why |")
            continue
        row = Row(cells[0].strip("`"), cells[1], cells[2], cells[3], cells[4], number)
        if row.kind not in KINDS:
            errors.append(f"{TABLE}:{number}: `{row.object}` is '{row.kind}': choose correctness or telemetry")
        rows.append(row)
    return rows, errors


def row_of(rows: dict[tuple[str, str], Row], name: str, module: str) -> Row | None:
    return rows.get((name, module)) or rows.get((f"{name.partition('.')[0]}.*", module))


def orders_text(accesses: list[Access]) -> str:
    """Orders that are more than relaxed are counted, so that one of several cannot be weakened unnoticed."""
    counts = Counter(access.order for access in accesses)
    parts = []
    for order, count in sorted(counts.items()):
        weak = WEAK.search(order)
        parts.append(order if weak or count == 1 else f"{order} ×{count}")
    return ", ".join(parts)


def group(accesses: list[Access], rows: dict[tuple[str, str], Row]) -> dict[tuple[str, str], list[Access]]:
    groups: dict[tuple[str, str], list[Access]] = defaultdict(list)
    for access in accesses:
        row = row_of(rows, access.object, access.module)
        groups[(row.object, row.module) if row else (access.object, access.module)].append(access)
    return groups


def compare(program: Program, table: str) -> list[str]:
    listed, errors = read_table(table)
    rows: dict[tuple[str, str], Row] = {}
    for row in listed:
        if (row.object, row.module) in rows:
            errors.append(f"{TABLE}:{row.line}: `{row.object}` of {row.module} has two rows: keep one")
        rows[row.object, row.module] = row
    groups = group(program.accesses, rows)
    for key, accesses in sorted(groups.items()):
        found = rows.get(key)
        first = accesses[0]
        orders = orders_text(accesses)
        if not found:
            errors.append(
                f"{first.file}:{first.line}: `{key[0]}` is not in {TABLE}: add a row that says whether it is "
                f"correctness or telemetry, and why its order is enough: | `{key[0]}` | {key[1]} | ? | {orders} | ? |"
            )
        elif found.orders != orders:
            places = ", ".join(f"{a.file}:{a.line}" for a in accesses if not WEAK.search(a.order))
            errors.append(
                f"{TABLE}:{found.line}: `{key[0]}` has the orders '{orders}' in the source, and '{found.orders}' here: "
                "if the change is right, write the former and look whether the reason still holds; else mend the "
                f"source (beyond relaxed: {places or 'nowhere'})"
            )
    for key, row in rows.items():
        if key not in groups:
            errors.append(f"{TABLE}:{row.line}: nothing in src accesses `{row.object}` of {row.module}: remove the row")
    return program.errors + errors


# ---- the fast path ---------------------------------------------------------------------------------------------------

LOCKED = re.compile(
    r"lock |xchg [^#]*\[|[mls]fence|"  # x86-64; lfence waits for all that came before
    r"(?:dmb|dsb|isb|ldx\w+|ldax\w+|stx\w+|stlx\w+|cas\w*|swp\w*|ld(?:add|clr|eor|set|[su]max|[su]min)\w*|"
    r"st(?:add|clr|eor|set|[su]max|[su]min)\w*)\b"
)


def check_listing(lines: list[str], name: str) -> list[str]:
    errors = []
    for line in lines:
        match = re.match(r"\s*\d+  (.*)", line)
        if match and LOCKED.match(match[1]):
            errors.append(
                f"{name}: the fast path executes `{' '.join(match[1].split())}`: an atomic read-modify-write or a "
                "fence belongs on a slow path; find what brought it here with tests/golden/run --list"
            )
    return errors


def check_fast(program: Program, table: str, executed: set[tuple[str, str]]) -> list[str]:
    """`executed`: file name and function, of those whose instructions the fast path runs."""
    rows = {(row.object, row.module): row for row in read_table(table)[0]}
    telemetry = [row for row in rows.values() if row.kind == "telemetry"]
    names = {row.object.split(".")[1] for row in telemetry if "." in row.object and not row.object.endswith("*")}
    whole = {row.object for row in telemetry if row.object.endswith(".*")}
    for tag, fields in program.structs.items():
        if f"{tag.split(':')[-1]}.*" in whole:
            names |= set(fields)
    variables = {row.object for row in telemetry if re.fullmatch(r"\w+", row.object)} | COUNTERS
    regions: list[tuple[str, int, int, str]] = []
    for file, source in program.sources.items():
        if file == FAST:
            regions.append((file, 0, len(source.text), "the fast path's file"))
            continue
        for function in source.functions:
            if (Path(file).name, function.name) in executed:
                regions.append((file, function.start, function.end, f"{function.name}(), which the fast path runs"))
    errors = []

    def report(at: int, file: str, what: str, where: str) -> None:
        errors.append(
            f"{file}:{program.sources[file].line(at)}: `{what}` is telemetry, and used in {where}: count it on a slow "
            "path, or derive it when it is read"
        )

    for file, start, end, where in regions:
        text = program.sources[file].text
        for first, last, name in program.mentions(file, names, start, end):
            struct = program.struct_of(text[first : last - len(name)].rstrip(".->"), file, first)
            holders = [struct] if struct else [tag for tag, fields in program.structs.items() if name in fields]
            found = [row_of(rows, f"{tag.split(':')[-1]}.{name}", program.modules.get(tag, "")) for tag in holders]
            for each in found:
                if each and each.kind == "telemetry":
                    report(first, file, each.object, where)
        for name in variables:
            for at in program.sources[file].words.get(name, ()):
                if start <= at < end:
                    report(at, file, name, where)
    return errors


def golden() -> ModuleType:
    """tests/golden/run, which is a program of its own."""
    loader = SourceFileLoader("golden_run", str(HERE / "run"))
    spec = spec_from_loader("golden_run", loader)
    assert spec
    module = module_from_spec(spec)
    sys.modules["golden_run"] = module
    loader.exec_module(module)
    return module


def trace(tracer: Path, library: Path) -> tuple[set[tuple[str, str]], list[str]]:
    """Functions that the traced calls execute, inlined ones too, and the listing of their instructions."""
    run = golden()
    paths = run.trace(tracer, library)
    addresses = sorted({word for path in paths.values() for word in path if word != run.OUTSIDE})
    lines = run.output_of("addr2line", "-f", "-i", "-s", "-e", library, *addresses).splitlines()
    executed = {(place.split(":")[0], name) for name, place in zip(lines[::2], lines[1::2], strict=True)}
    if ("fast.h", "fast_pop") not in executed or ("fast.h", "fast_push") not in executed:
        run.fail(f"{library.name} does not say which functions its instructions are of: build it with -g")
    return executed, run.report(tracer, library)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tracer", type=Path)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--list", action="store_true", help="print what the source has, compare nothing")
    arguments = parser.parse_args()
    if bool(arguments.tracer) != bool(arguments.library):
        parser.error("--tracer and --library go together")
    program = Program(load(ROOT))
    if arguments.list:
        for key, accesses in sorted(group(program.accesses, {}).items()):
            print(f"| `{key[0]}` | {key[1]} | ? | {orders_text(accesses)} | ? |")
            for access in accesses:
                print(f"    {access.file}:{access.line}: {access.order}")
        print("\n".join(program.errors))
        return
    path = ROOT / TABLE
    if not path.exists():
        sys.exit(f"atomics: {path} does not exist: it is part of the source")
    table = path.read_text()
    executed: set[tuple[str, str]] = set()
    listing: list[str] = []
    if arguments.tracer:
        executed, listing = trace(arguments.tracer.resolve(), arguments.library.resolve())
    errors = compare(program, table) + check_fast(program, table, executed) + check_listing(listing, "this build")
    for file in sorted(HERE.glob("*.txt")):
        errors += check_listing(file.read_text().splitlines(), file.name)
    if errors:
        sys.exit("\n".join(dict.fromkeys(errors)))
    rows = read_table(table)[0]
    kinds = Counter(row.kind for row in rows)
    print(
        f"atomics: {len(rows)} rows, {kinds['correctness']} of correctness and {kinds['telemetry']} of telemetry, for "
        f"{len(program.accesses)} accesses; none of telemetry in {FAST}"
        + (f" or in the {len(executed)} functions that the fast path runs" if executed else "")
    )


if __name__ == "__main__":
    main()
