#!/usr/bin/env python3
"""Each mistake that atomics.py is there for is made in a copy of the source or of the table, and must be told."""

import re
import unittest

import atomics

SOURCES = atomics.load(atomics.ROOT)
TABLE = (atomics.ROOT / atomics.TABLE).read_text()
PUSH_ORDER = "new, memory_order_release, memory_order_relaxed"


def replaced(file: str, old: str, new: str) -> dict[str, str]:
    text = SOURCES[file]
    assert text.count(old) == 1, f"{file} has changed: {old} is there {text.count(old)} times"
    return SOURCES | {file: text.replace(old, new)}


class Mistakes(unittest.TestCase):
    def assert_told(self, errors: list[str], *patterns: str) -> None:
        self.assertEqual(len(errors), len(patterns), "\n".join(errors))
        for error, pattern in zip(errors, patterns, strict=True):
            self.assertRegex(error, pattern)

    def test_nothing_is_told_of_what_is_right(self) -> None:
        program = atomics.Program(SOURCES)
        self.assert_told(atomics.compare(program, TABLE) + atomics.check_fast(program, TABLE, set()))

    def test_a_removed_row(self) -> None:
        table = re.sub(r"^\| `run\.word` .*\n", "", TABLE, flags=re.M)
        self.assert_told(
            atomics.compare(atomics.Program(SOURCES), table),
            r"src/\w+/\w+\.[ch]:\d+: `run.word` is not in docs/atomics.md: add a row that says whether it is",
        )

    def test_a_row_for_nothing(self) -> None:
        table = TABLE + "| `run.ghost` | pages/pages | telemetry | load relaxed | a sum |\n"
        self.assert_told(atomics.compare(atomics.Program(SOURCES), table), r"nothing in src accesses `run.ghost`")

    def test_a_wrong_order_in_the_table(self) -> None:
        row = re.search(r"^\| `started` .*\n", TABLE, re.M)
        assert row
        table = TABLE.replace(row[0], row[0].replace("store release", "store relaxed"))
        self.assert_told(
            atomics.compare(atomics.Program(SOURCES), table),
            r"`started` has the orders 'load acquire, store release' in the source, and '.*store relaxed' here",
        )

    def test_a_weakened_order_in_the_source(self) -> None:
        program = atomics.Program(replaced("src/slab/slab.h", PUSH_ORDER, PUSH_ORDER.replace("release", "relaxed")))
        self.assert_told(atomics.compare(program, TABLE), r"`run.word` has the orders")

    def test_one_weakened_order_of_several(self) -> None:
        old = "atomic_load_explicit(&all_counters, memory_order_acquire)"
        file = next(name for name, text in SOURCES.items() if text.count(old) == 1)
        again = old + "; (void)" + old  # one more, acquire too: the table's count is wrong as well
        weaker = old.replace("acquire", "relaxed")
        for new, orders in ((weaker, "load acquire ×3, load relaxed"), (again, "load acquire ×5")):
            program = atomics.Program(replaced(file, old, new))
            self.assert_told(atomics.compare(program, TABLE), rf"`all_counters` has the orders '{orders}")

    def test_a_removed_fence(self) -> None:
        program = atomics.Program(replaced("src/heap/bump.c", "  FENCE_ALL();\n", ""))
        self.assert_told(atomics.compare(program, TABLE), r"nothing in src accesses `unless_halted\(\)`")

    def test_a_weakened_helper(self) -> None:
        """The accesses of a function through its parameter count for each caller."""
        old = "__atomic_store_n(&count->then, value, __ATOMIC_RELEASE)"
        program = atomics.Program(replaced("src/heap/tcache.c", old, old.replace("RELEASE", "RELAXED")))
        self.assert_told(atomics.compare(program, TABLE), r"`count.then` has the orders")
        old = "atomic_fetch_add_explicit(counter, by, memory_order_relaxed)"
        program = atomics.Program(replaced("src/heap/counters.h", old, "*counter += by"))
        self.assertIn("`label.*` has the orders", "\n".join(atomics.compare(program, TABLE)))

    def test_a_plain_access(self) -> None:
        old = "atomic_store_explicit(&e->scope_ended, false, memory_order_relaxed)"
        program = atomics.Program(replaced("src/epoch/epoch.c", old, "e->scope_ended = false"))
        self.assert_told(atomics.compare(program, TABLE), r"`epoch.scope_ended` has the orders '.*store seq_cst ×2'")

    def test_a_new_object(self) -> None:
        old = "static _Atomic uint64_t misuses;"
        new = old + "\nstatic _Atomic int fresh;\nint look(void);\nint look(void) { return fresh; }"
        program = atomics.Program(replaced("src/heap/misuse.c", old, new))
        self.assert_told(atomics.compare(program, TABLE), r"src/heap/misuse.c:\d+: `fresh` is not in docs/atomics.md")

    def test_an_access_that_cannot_be_told(self) -> None:
        old = "static _Atomic uint64_t misuses;"
        new = old + "\nint look(void);\nint look(void) { return __atomic_load_n(nowhere(), __ATOMIC_RELAXED); }"
        program = atomics.Program(replaced("src/heap/misuse.c", old, new))
        told = r"src/heap/misuse.c:\d+: cannot tell which object `nowhere\(\)`"
        self.assert_told(atomics.compare(program, TABLE), told)

    def test_telemetry_in_the_fast_paths_file(self) -> None:
        lines = {
            "counter_add_release(&heap->bins[class].refills, 1);": ["bin.refills"],
            "heap->bins[class].refills++;": ["bin.refills"],
            "heap->counters->refills[class].served[0]++;": [r"refill_counters\.\*"],
            "heap->counters->paths[0].samples++;": [r"path_times\.\*"],
            "shared_add(&labels[0].samples, 1);": [r"label\.\*", "shared_add"],
            "misuses++;": ["misuses"],
        }
        old = "  fast_count_pop(heap, class);\n"
        program = atomics.Program(replaced(atomics.FAST, old, old + "\n".join(lines) + "\n"))
        names = [f"`{name}` is telemetry, and used in the fast path's file" for told in lines.values() for name in told]
        errors = atomics.check_fast(program, TABLE, set())
        self.assertEqual(len(errors), len(names), "\n".join(errors))
        for name in names:
            self.assertRegex("\n".join(errors), name)

    def test_telemetry_in_a_function_that_the_fast_path_runs(self) -> None:
        old = "INLINE void *inline_malloc(size_t size) {\n"
        program = atomics.Program(replaced("src/malloc/malloc_inline.h", old, f"{old}  current_heap->served++;\n"))
        self.assert_told(atomics.check_fast(program, TABLE, set()))
        self.assert_told(
            atomics.check_fast(program, TABLE, {("malloc_inline.h", "inline_malloc")}),
            r"src/malloc/malloc_inline.h:\d+: `heap.served` is telemetry, and used in inline_malloc\(\)",
        )

    def test_locked_instructions_and_fences(self) -> None:
        listing = ["malloc(64)", "   1  cmp rdi,0x500", "   2  lock add DWORD PTR [rdx],0x1  load, store", "   3  ret"]
        self.assert_told(atomics.check_listing(listing, "x"), r"x: the fast path executes `lock add DWORD PTR")
        for text in ("xchg QWORD PTR [rax],rdx", "mfence", "lfence", "dmb ish", "ldaxr x0, [x1]", "swpal x0, x1, [x2]"):
            self.assertEqual(len(atomics.check_listing([f"   1  {text}"], "x")), 1, text)
        for text in ("xchg ax,ax", "mov rax,QWORD PTR [rdx]", "ldr x0, [x1]", "str x0, [x1]", "stp x0, x1, [sp]"):
            self.assertEqual(atomics.check_listing([f"   1  {text}"], "x"), [], text)


if __name__ == "__main__":
    unittest.main()
