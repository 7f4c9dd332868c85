#!/usr/bin/env python3
"""Each rule of tidy.py is broken once in a small tree of files, and must be told at its line."""

import subprocess
import tempfile
import unittest
from pathlib import Path

import calltree
import tidy

SHORT = "int short_one(void) { return 1; }\n"
LONG = "int long_one(void) {\n" + "  step();\n" * tidy.FUNCTION_LINES + "}\n"


class Rules(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("cmake/rare.ld", "*(.text.short_one .text.shor* .text.unlikely)\n")
        self.write("src/base/one.c", SHORT)
        self.write("CMakeLists.txt", "project(temporal-slab VERSION 1.2.3 LANGUAGES C)\n")
        self.write("tools/pyproject.toml", 'version = "1.2.3"\n')
        self.write("docs/assets/version.svg", "<svg><text>version</text><text>1.2.3</text></svg>\n")
        self.write("README.md", "[![Version 1.2.3](docs/assets/version.svg)](CHANGELOG.md)\n")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def assert_told(self, *patterns: str, objects: Path | None = None) -> None:
        lines = list(tidy.broken(self.root, [objects] if objects else []))
        self.assertEqual(len(lines), len(patterns), "\n".join(lines))
        for line, pattern in zip(lines, patterns, strict=True):
            self.assertRegex(line, pattern)

    def tree_told(self, *beside: str, files: int = 3, write: bool = False) -> list[str]:
        route = calltree.Route("a path", "a", files, dict.fromkeys(beside, "rarely"))
        return calltree.check(self.root, calltree.Calls(self.root, [self.root / "objects"]), [route], write)

    def compile(self, name: str, text: str) -> None:
        self.write(f"src/{name}.c", text)
        out = self.root / "objects" / "src" / f"{name}.c.o"
        out.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["gcc", "-w", "-c", "-o", out, self.root / "src" / f"{name}.c"], check=True)

    def test_nothing_is_told_of_what_is_right(self) -> None:
        self.assert_told()

    def test_a_long_line(self) -> None:
        self.write("bench/a.c", "int a;\n" + "/" * 121 + "\n")
        self.assert_told(r"^bench/a.c:2: 121 columns")

    def test_a_long_function(self) -> None:
        self.write("src/base/two.c", SHORT + "\n" + LONG)
        self.assert_told(r"^src/base/two.c:3: a function of 52 lines")

    def test_a_long_function_whose_head_spans_lines(self) -> None:
        self.write("src/base/two.c", LONG.replace("(void)", "(int a,\n             int b)"))
        self.assert_told(r"^src/base/two.c:2: a function of 52 lines")

    def test_a_long_table_is_no_function(self) -> None:
        self.write("src/base/two.c", "static const int table[] = {\n" + "  1,\n" * 60 + "};\n")
        self.write("src/base/three.h", "struct three {\n" + "  int a;\n" * 60 + "};\n")
        self.assert_told()

    def test_a_condition_inside_a_function(self) -> None:
        self.write("src/base/two.c", "int f(void) {\n#if A\n  g();\n#endif\n}\n#if B\n#endif\n")
        self.assert_told(r"^src/base/two.c:2: #if A inside a function")

    def test_an_include_upward(self) -> None:
        self.write("src/os/two.c", '#include "os/two.h"\n#include "heap/refill.h"\n')
        self.assert_told(r"^src/os/two.c:2: includes heap/refill.h of a higher floor")

    def test_headers_that_include_each_other(self) -> None:
        self.write("src/os/a.h", '#include "os/b.h"\n')
        self.write("src/os/b.h", '#include "os/a.h"\n')
        self.assert_told(r"^headers that include each other: os/a.h, os/b.h")

    def test_modules_that_include_each_other(self) -> None:
        self.write("src/epoch/a.c", '#include "epoch/a.h"\n#include "epoch/b.h"\n')
        self.write("src/epoch/b.c", '#include "epoch/b.h"\n#include "epoch/a.h"\n')
        self.write("src/epoch/a.h", "")
        self.write("src/epoch/b.h", "")
        self.assert_told(r"^modules that include each other: epoch/a, epoch/b$")

    def test_a_lock_that_another_function_took(self) -> None:
        self.write("src/epoch/two.c", "int a(void) {\n  b();\n  lock_release(&a->lock);\n}\n")
        self.assert_told(r"^src/epoch/two.c:3: a releases &a->lock, which it did not take$")

    def test_a_lock_that_is_taken_only_later(self) -> None:
        self.write("src/epoch/two.c", "int a(void) {\n  epoch_unlock(e);\n  epoch_lock(e);\n}\n")
        self.assert_told(r"^src/epoch/two.c:2: a releases e, which it did not take$")

    def test_another_lock_than_was_taken(self) -> None:
        self.write("src/epoch/two.c", "int a(void) {\n  gate = epoch_take(e);\n  epoch_release(f, gate);\n}\n")
        self.assert_told(r"^src/epoch/two.c:3: a releases f, which it did not take$")

    def test_a_release_by_a_function_that_is_passed_on(self) -> None:
        self.write("src/epoch/two.c", "int a(void) {\n  each_lock(lock_release);\n}\n")
        self.assert_told(r"^src/epoch/two.c:2: a passes lock_release on, but none that takes the lock$")

    def test_locks_that_are_released_where_they_were_taken(self) -> None:
        self.write(
            "src/epoch/two.c",
            "int a(struct epoch *e) {\n  struct lock *guard = heap_lock(h);\n  lock_take(&b[f(1, 2)].lock);\n"
            "  handle_lock_quiet(e);\n  epoch_unlock(e); /* lock_release(it) */\n  lock_release(&b[f(1, 2)].lock);\n"
            "  lock_release(guard);\n}\n"
            "void epoch_unlock(int e) { lock_release(e); }\n",
        )
        self.assert_told()

    def test_a_rare_function_that_is_gone(self) -> None:
        self.write("cmake/rare.ld", "*(.text.gone .text.gone_too*)\n")
        self.assert_told(r"no function is named gone:", r"no function is named gone_too\*:")

    def test_a_retired_word(self) -> None:
        self.write("src/base/two.c", "/* a spare part */\nint depot_size(void) { return 1; }\n")
        self.write("docs/words.md", "Each thread has a depot.\n")
        self.assert_told(
            r"^src/base/two.c:2: depot_size has the retired word depot", r"^docs/words.md:1: the word depot is retired"
        )

    def test_a_sentence_that_begins_with_a_free_relative(self) -> None:
        self.write("src/base/two.c", "/* Frees it. Who holds the lock\n * waits. What else? what() is. */\nint a;\n")
        self.write("src/base/three.h", "/* three\n *\n * Threads: whoever\n * comes. */\nint b; /* whether it is */\n")
        self.write("include/tslab/a.hpp", "// Whatever is free goes.\nint c; // The lock, which it holds; so much\n")
        self.assert_told(
            r'^src/base/three.h:3: a sentence begins with "whoever comes": name the actor$',
            r'^src/base/three.h:5: a sentence begins with "whether it is": name the actor$',
            r'^src/base/two.c:1: a sentence begins with "Who holds the lock": name the actor$',
            r'^include/tslab/a.hpp:1: a sentence begins with "Whatever is free goes": name the actor$',
            r'^include/tslab/a.hpp:2: a sentence begins with "so much": name the actor$',
        )

    def test_a_free_relative_in_any_tree_that_is_checked(self) -> None:
        c, rust, script = "int a; /* What it is. */\n", "/// Whether it is.\nfn a() {}\n", "a=1\t# what it is\n"
        places = {
            **{"bench/a.c": c, "tests/a.c": c, "tools/a.c": c, "examples/a.c": c, "demo/a.c": c},
            **{f"{folder}/b.py": script for folder in ("bench", "tests", "tools", "examples", "demo")},
            **{"cmake/a.sh": "# It is.\n# Who calls it waits.\n", "rust/a.rs": rust, "dev": script},
        }
        for place, text in places.items():
            self.write(place, text)
        lines = {"cmake/a.sh": 2}
        told = [rf'^{place}:{lines.get(place, 1)}: a sentence begins with "(?i:wh)' for place in places]
        self.assert_told(*told)

    def test_a_free_relative_in_a_docstring(self) -> None:
        self.write("tests/a.py", 'a = """Who is it."""\n\n\ndef b():\n    """It is.\n\n    What it is.\n    """\n')
        self.assert_told(r'^tests/a.py:7: a sentence begins with "What it is": name the actor$')

    def test_a_public_function_without_a_comment(self) -> None:
        self.write("include/tslab/tslab.h", "/* 2 */\nint tslab_a(void);\nint tslab_b(void);\n\nint tslab_c(void);\n")
        self.write("include/tslab/optional.h", "int tslab_optional_a(void);\n")
        self.assert_told(r"^include/tslab/tslab.h:5: tslab_c has no comment")

    def test_versions_that_differ(self) -> None:
        self.write("tools/pyproject.toml", 'version = "1.2.4"\n')
        self.write("docs/assets/version.svg", "<svg><text>version</text><text>1.2.5</text></svg>\n")
        self.write("README.md", "malloc\n")
        self.assert_told(
            r"^CMakeLists.txt has 1.2.3, tools/pyproject.toml has 1.2.4: give both the same version$",
            r"^CMakeLists.txt has 1.2.3, docs/assets/version.svg has 1.2.5: give both the same version$",
            r"^CMakeLists.txt has 1.2.3, README.md has no version: give both the same version$",
        )

    def test_a_long_subject_of_a_commit(self) -> None:
        git = ["git", "-C", str(self.root), "-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run([*git, "init", "-q"], check=True)
        for columns in (72, 73):
            subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x" * columns], check=True)
        self.assert_told(r"^commit \w+: its subject has 73 columns, 72 are allowed$")

    def test_a_call_upward(self) -> None:
        self.compile("os/low", "void high(void); void low(void) { high(); }")
        self.compile("heap/high", "void high(void) {}")
        self.assert_told(r"^src/os/low: calls high of src/heap/high, a higher floor", objects=self.root / "objects")

    def test_a_circle_of_calls(self) -> None:
        self.compile("heap/a", "void b(void); void a(void) { b(); }")
        self.compile("heap/b", "void c(void); void b(void) { c(); }")
        self.compile("heap/c", "void a(void); void c(void) { a(); }")
        self.assert_told(r"^modules that call each other: heap/a, heap/b, heap/c$", objects=self.root / "objects")

    def test_a_call_tree_that_is_old_and_a_path_that_is_long(self) -> None:
        self.compile("malloc/a", "void b(void); static void own(void) { b(); } void a(void) { own(); }")
        self.compile("heap/b", "void c(void); void rare(void); void b(void) { c(); rare(); }")
        self.compile("os/c", "void c(void) {}")
        self.compile("slab/rare", "void c(void); void rare(void) { c(); }")
        self.write("docs/design.md", "Above.\n<!-- call tree: a path -->\n<!-- end of call tree -->\nBelow.\n")
        self.assertRegex("".join(self.tree_told("rare")), r"^docs/design.md: .* a path is of another state")
        self.assertEqual(self.tree_told("rare", write=True), [])
        self.assertEqual(self.tree_told("rare"), [])
        text = (self.root / "docs" / "design.md").read_text()
        self.assertIn("malloc/a.c: a\n  heap/b.c: b\n    os/c.c: c\n```", text)
        self.assertIn("- rarely: `rare`\n", text)
        self.assertTrue(text.startswith("Above.\n") and text.endswith("Below.\n"))
        self.assertRegex(self.tree_told()[0], r"^a path: a path crosses 4 files, of at most 3: malloc/a.c heap/b.c ")
        self.compile("heap/b", "void c(void); void b(void) { }")
        self.assertEqual(len(self.tree_told("rare")), 1)

    def test_a_build_that_is_not_there(self) -> None:
        self.assert_told(r"no objects of src here: build the library first", objects=self.root / "nowhere")


if __name__ == "__main__":
    unittest.main()
