#!/usr/bin/env python3
"""The recorder and the replayer: each call of a program is in its trace, and is replayed; bad files are refused.

bench/test_traces.py FOLDER     where the built workloads are; libtslab.so lies in the folder above
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCES.parent / "tools"))

from tslab import trace  # noqa: E402
from tslab.errors import LabError  # noqa: E402

FOLDER = Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".").absolute()
LIBRARY = FOLDER.parent / "libtslab.so"
RECORDER = FOLDER / trace.LIBRARY
KILLED = -9
# Of bench/trace/program.c: three threads leave 100 blocks each, and main makes calls of each kind.
CALLS = {"malloc": 300 + 3, "realloc": 3, "calloc": 1, "aligned": 2, "free": 300 + 6}


class WithProgram(unittest.TestCase):
    place: Path
    program: Path

    @classmethod
    def setUpClass(cls) -> None:
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.place = Path(holder.name)
        cls.program = cls.place / "program"
        flags = ["-D_GNU_SOURCE", "-O1", "-fno-builtin", "-pthread", "-w"]
        subprocess.run(["cc", *flags, "-o", cls.program, SOURCES / "trace" / "program.c"], check=True)

    def folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.place))

    def run_program(self, how: str, pattern: Path, status: int = 0, **variables: str) -> None:
        own = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        own |= {"LD_PRELOAD": str(RECORDER), trace.VARIABLE: str(pattern)} | variables
        done = subprocess.run([self.program, how], env=own, capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (status, ""))

    def record(self, how: str, status: int = 0, **variables: str) -> Path:
        """Records the program and returns the one trace that it leaves."""
        folder = self.folder()
        self.run_program(how, folder / "%p.trace", status, **variables)
        (path,) = folder.glob("*.trace")
        return path

    def replay(self, path: Path, *options: str, ours: bool = False) -> subprocess.CompletedProcess[str]:
        own = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        own |= {"LD_PRELOAD": str(LIBRARY)} if ours else {}
        words = [FOLDER / "replay", f"--trace={path}", *options]
        return subprocess.run(words, env=own, capture_output=True, text=True, check=False, timeout=120)

    def metrics(self, path: Path, *options: str, ours: bool = False) -> dict[str, float]:
        done = self.replay(path, *options, ours=ours)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found: dict[str, float] = json.loads(done.stdout)["metrics"]
        return found


def calls_in(path: Path) -> Counter[str]:
    return Counter(event.kind for event in trace.events(path.read_bytes()))


class Recorder(WithProgram):
    def test_each_call_is_recorded_once_and_those_of_a_forked_child_never(self) -> None:
        for how in ("exit", "_exit", "exec"):
            with self.subTest(how):
                path = self.record(how)
                found = trace.facts(path)
                own = calls_in(path)
                self.assertTrue(found.finished)
                self.assertEqual((found.lanes, found.program, found.limited), (2, "program", False))
                self.assertEqual(own["thread_end"], 3)
                # libc's own start and its making of threads call calloc, too.
                for kind, least in CALLS.items():
                    self.assertGreaterEqual(own[kind], least)
                    self.assertLess(own[kind], least + 20)
                self.assertEqual(found.calls, sum(own[kind] for kind in CALLS))

    def test_sizes_alignments_and_touched_pages(self) -> None:
        found = list(trace.events(self.record("exit").read_bytes()))
        aligned = [(event.size, 1 << event.more) for event in found if event.kind == "aligned"]
        self.assertEqual(aligned, [(100, 4096), (128, 64)])
        self.assertEqual([event.size for event in found if event.kind == "realloc"], [1000, 400000, 5000])
        self.assertEqual([event.size for event in found if event.kind == "calloc" and event.size == 63], [63])
        (touched,) = (event for event in found if event.kind == "touched")
        (large,) = (event for event in found if event.size == 400000)
        self.assertEqual((touched.old, touched.more), (large.object, 3))

    def test_objects_are_born_once_and_die_once_after_that(self) -> None:
        born: dict[int, int] = {}
        died: dict[int, int] = {}
        for event in trace.events(self.record("work").read_bytes()):
            if event.object:
                self.assertNotIn(event.object, born)
                born[event.object] = event.clock
            if event.kind in {"free", "realloc"}:
                self.assertNotIn(event.old, died)
                died[event.old] = event.clock
        self.assertEqual(sorted(born), list(range(1, len(born) + 1)))
        self.assertTrue(all(born[number] <= clock for number, clock in died.items()))
        self.assertGreaterEqual(len(born), 200_000)

    def test_a_program_that_is_killed_leaves_an_unfinished_trace(self) -> None:
        found = trace.facts(self.record("kill", KILLED))
        self.assertFalse(found.finished)
        self.assertEqual(found.calls, 300)  # the threads' ends wrote theirs; main's are missing

    def test_the_limit_ends_the_recording_and_the_program_goes_on(self) -> None:
        path = self.record("work", **{trace.LIMIT_VARIABLE: "300000"})
        found = trace.facts(path)
        self.assertEqual((found.finished, found.limited), (True, True))
        self.assertLess(found.bytes, 300_000 + 10 * (32 << 10))
        self.assertEqual(self.metrics(path)["operations_count"], found.calls)

    def test_without_a_process_number_the_first_process_keeps_the_file(self) -> None:
        path = self.folder() / "one.trace"
        self.run_program("exit", path)
        first = path.read_bytes()
        self.run_program("exit", path)
        self.assertEqual(path.read_bytes(), first)

    def test_without_a_setting_nothing_is_recorded(self) -> None:
        self.run_program("exit", Path())


class Replayer(WithProgram):
    def test_the_replay_makes_the_recorded_calls_with_as_many_threads(self) -> None:
        for how, threads in (("exit", 4), ("work", 9)):
            path = self.record(how)
            for ours in (False, True):
                with self.subTest(how, ours=ours):
                    metrics = self.metrics(path, ours=ours)
                    self.assertEqual(metrics["operations_count"], trace.facts(path).calls)
                    self.assertEqual((metrics["threads_count"], metrics["left_out_count"]), (threads, 0))

    def test_the_window_may_be_narrow_or_wide(self) -> None:
        path = self.record("work")
        for window in (64, 1_000_000_000):
            metrics = self.metrics(path, f"--window={window}")
            self.assertEqual(metrics["operations_count"], trace.facts(path).calls)

    def test_live_bytes_are_those_that_were_touched(self) -> None:
        metrics = self.metrics(self.record("exit"))
        blocks = sum(100 + i for i in range(100))
        self.assertLess(abs(metrics["live_peak_bytes"] - max(blocks, 3 * 4096)), 12 << 10)

    def test_a_trace_that_was_cut_is_played_on_request(self) -> None:
        whole = self.record("work").read_bytes()
        path = self.folder() / "cut.trace"
        for length in (len(whole) - 1, len(whole) // 2, len(whole) // 7):
            path.write_bytes(whole[:length])
            found = trace.facts(path)
            self.assertFalse(found.finished)
            done = self.replay(path)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{found.calls} calls", done.stderr)
            metrics = self.metrics(path, "--partial=yes")
            self.assertEqual(metrics["operations_count"] + metrics["left_out_count"], found.calls)

    def refused(self, content: bytes | None, words: str) -> None:
        path = self.folder() / "bad.trace"
        if content is not None:
            path.write_bytes(content)
        done = self.replay(path)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn(words, done.stderr)

    def test_files_that_are_no_traces(self) -> None:
        whole = self.record("exit").read_bytes()
        self.refused(None, "cannot read the trace")
        self.refused(b"", "is not a trace")
        self.refused(b"x" * 5000, "is not a trace")
        self.refused(b"\x1f\x8b" + bytes(500), "compressed: tslab replay reads it")
        self.refused(whole[:8] + struct.pack("<I", 99) + whole[12:], "version 99")
        self.refused(whole[:128], "has no calls")

    def test_a_name_without_a_recording_is_a_row_that_says_so(self) -> None:
        done = subprocess.run([FOLDER / "replay", "--trace=nobody"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no recording 'nobody'", json.loads(done.stdout)["missing"])

    def test_a_damaged_file_is_refused_or_replayed_but_never_crashes(self) -> None:
        whole = self.record("exit").read_bytes()
        path = self.folder() / "damaged.trace"
        for at in range(128, len(whole), len(whole) // 60):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :])
            done = self.replay(path, "--partial=yes")
            self.assertIn(done.returncode, {0, 2}, f"byte {at}: {done.stderr}")
            self.assertEqual(done.returncode == 2, done.stderr != "")


class Files(WithProgram):
    def test_compressed_traces_are_unpacked_as_far_as_they_go(self) -> None:
        raw = self.record("work")
        place = self.folder()
        for name in ("a.trace", "a.trace.gz", "a.trace.xz"):
            trace.pack(raw, place / name)
            trace.unpack(place / name, place / "unpacked")
            self.assertEqual((place / "unpacked").read_bytes(), raw.read_bytes())
        for name in ("a.trace.gz", "a.trace.xz"):
            whole = (place / name).read_bytes()
            (place / name).write_bytes(whole[: len(whole) // 2])
            trace.unpack(place / name, place / "unpacked")
            found = trace.facts(place / "unpacked", place / name)
            self.assertIn("was cut: its first", trace.how_far(found))

    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_a_recording_for_the_suite_is_made_once(self) -> None:
        place = self.folder()
        shutil.copy(RECORDER, place)
        words = [sys.executable, str(SOURCES / "traces.py"), "git", f"--folder={place}"]
        first = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
        self.assertEqual((first.returncode, first.stderr), (0, ""))
        again = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
        self.assertEqual(again.stdout, first.stdout)
        found = trace.facts(place / "traces" / "git.trace")
        self.assertEqual((found.program, found.finished), ("git", True))
        self.assertGreater(found.lanes, 1)

    def test_the_recordings_of_a_folder(self) -> None:
        place = self.folder()
        for how in ("exit", "work"):
            self.run_program(how, place / "%p.trace")
        found = trace.recordings(place)
        self.assertEqual([one.command.split()[-1] for one in found], ["work", "exit"])
        self.assertEqual(trace.choose(found, None), found[0])
        self.assertEqual(trace.choose(found, "program"), found[0])
        self.assertIsNone(trace.choose(found, "other"))
        with contextlib.suppress(LabError):
            trace.facts(self.program)
            self.fail("a program is not a trace")


if __name__ == "__main__":
    unittest.main()
