#!/usr/bin/env python3
"""Every workload in a small form: the rows are whole, the wrong allocator gives none, mistakes are refused.

bench/test_workloads.py FOLDER     where the built workloads are; libtslab.so lies in the folder above
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCES.parent / "tools"))

from tslab import scale  # noqa: E402

FOLDER = Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".").absolute()
LIBRARY = FOLDER.parent / "libtslab.so"

SMALL = {
    "burst": ["--mib=8", "--idle_ms=20"],
    "bursts": ["--pairs=20000"],
    "churn": ["--objects=2000", "--cycles=40"],
    "cliffs": ["--count=3", "--operations=1000", "--idle_ms=5"],
    "contention-sampling": ["--operations=2048"],
    "day": ["--seconds=1", "--mib=2", "--threads=2"],
    "epochs": ["--idle=50", "--used=20", "--mib=1", "--turns=10", "--repeats=3"],
    "fragmentation": ["--mib=1"],
    "fleet": ["--births=5000", "--mib=1"],
    "handover": ["--generations=5", "--blocks=5000"],
    "holes": ["--blocks=20000", "--idle_ms=20"],
    "latency": ["--objects=2000", "--cycles=5"],
    "lifetimes": ["--requests=120", "--batch=10", "--objects=20", "--sessions=100", "--pinned=0.5"],
    "pipeline": ["--batches=16", "--batch=500"],
    "random-mixed": ["--iterations=50000"],
    "remote": ["--ms=20"],
    "replay": [],  # of a trace that setUpModule records
    "request": ["--requests=500"],
    "sampling": ["--pairs=10", "--turns=500"],
    "simple": ["--objects=20000"],
    "threads": ["--pairs=2000", "--repeats=1", "--rounds=3"],
    "trees": ["--nodes=5000", "--turns=2"],
    "zombie-repair": ["--operations=2048"],
}
# These have nothing to measure in an allocator without epochs.
OF_EPOCHS = {"epochs", "sampling"}
MODES = ("malloc", "frees", "destroy", "reset", "batch")
WRONG_ALLOCATOR, WRONG_USE = 4, 2

# A library that takes every call and passes it on: its name is right, the allocator that serves is not.
PASSES_ON = """
#include <stddef.h>
void *__libc_malloc(size_t); void *__libc_calloc(size_t, size_t); void *__libc_realloc(void *, size_t);
void __libc_free(void *);
void *malloc(size_t n) { return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
void free(void *p) { __libc_free(p); }
"""
# One that replaces malloc and free, and forgets the others.
FORGETS = PASSES_ON.replace("void *calloc", "void *forgotten_calloc")


def run(name: str, *options: str, preload: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    if preload:
        environment["LD_PRELOAD"] = str(preload)
    command: list[str | Path] = [FOLDER / name, *SMALL[name], *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def setUpModule() -> None:
    """Records the workload random-mixed for the workload replay."""
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    trace = Path(folder.name) / "small.trace"
    recorder = {"LD_PRELOAD": str(FOLDER / "libtslab-record.so"), "TRACE_RECORD": str(trace)}
    # It ends with a complaint, for the recorder passes its calls on to glibc.
    subprocess.run([FOLDER / "random-mixed", *SMALL["random-mixed"]], env=recorder, capture_output=True, check=False)
    SMALL["replay"] = [f"--trace={trace}"]


def rows(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    if done.returncode != 0:
        raise AssertionError(f"status {done.returncode}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


class Rows(unittest.TestCase):
    def test_every_workload_is_tested(self) -> None:
        built = {path.stem for path in SOURCES.glob("*.c")} - {"lab"}
        self.assertEqual(built, set(SMALL))

    def test_rows_are_whole(self) -> None:
        for name in SMALL:
            with self.subTest(name):
                library = LIBRARY if name in OF_EPOCHS else None
                for row in rows(run(name, "--seed=7", f"--expect={library or 'glibc'}", preload=library)):
                    self.assertEqual((row["workload"], row["seed"]), (name, 7))
                    self.assertGreater(row["metrics"]["peak_rss_bytes"], 0)
                    self.assertGreater(row["metrics"]["end_rss_bytes"], 0)
                    self.assertGreater(row["proof"]["calls"], 0)
                    self.assertEqual(row["proof"]["glibc"], library is None)
                    units = ("_ns", "_bytes", "_per_s", "_pct", "_count", "_ratio")
                    self.assertTrue(all(metric.endswith(units) for metric in row["metrics"]), row["metrics"])

    def test_csv_says_what_json_says(self) -> None:
        (row,) = rows(run("random-mixed"))
        lines = run("random-mixed", "--csv").stdout.splitlines()
        self.assertEqual(lines[0], "workload,variant,seed,metric,value,malloc_from")
        self.assertEqual(len(lines) - 1, len(row["metrics"]))

    def test_options_and_litter_are_in_the_variant(self) -> None:
        (row,) = rows(run("random-mixed", "--slots=64", "--litter=1000"))
        self.assertEqual(row["variant"], "draws=same,slots=64,threads=1,iterations=50000,litter=1000")

    def test_the_same_seed_makes_the_same_calls(self) -> None:
        calls = {rows(run("random-mixed", "--seed=3"))[0]["proof"]["calls"] for _ in range(2)}
        self.assertEqual(len(calls), 1)

    def test_shares_of_the_classes_add_up(self) -> None:
        for draws in ("same", "independent"):
            metrics = rows(run("random-mixed", f"--draws={draws}"))[0]["metrics"]
            self.assertAlmostEqual(sum(v for k, v in metrics.items() if k.startswith("share_")), 100, places=5)


class Figures(unittest.TestCase):
    """Where arithmetic says what must come out."""

    def test_all_of_a_burst_is_live_when_nothing_is_freed(self) -> None:
        metrics = rows(run("burst", "--freed=0"))[0]["metrics"]
        self.assertEqual(metrics["live_bytes"], metrics["taken_bytes"])
        self.assertGreaterEqual(metrics["live_pages_bytes"], metrics["live_bytes"])

    def test_nothing_of_a_burst_is_live_when_all_is_freed(self) -> None:
        metrics = rows(run("burst", "--freed=100"))[0]["metrics"]
        self.assertEqual((metrics["live_bytes"], metrics["live_pages_bytes"]), (0, 0))

    def test_lifetimes_counts_what_lives(self) -> None:
        metrics = rows(run("lifetimes", "--pinned=1", "--life=0"))[0]["metrics"]
        self.assertEqual(metrics["live_count"], 100 + 12)
        metrics = rows(run("lifetimes", "--pinned=1", "--life=3"))[0]["metrics"]
        self.assertEqual(metrics["live_count"], 100 + 3)

    def test_remote_keeps_its_share(self) -> None:
        """The measured part also frees what the rings held before it; in a long one that counts for little."""
        for share in (0, 50, 90):
            metrics = rows(run("remote", f"--share={share}", "--ms=400"))[0]["metrics"]
            self.assertAlmostEqual(metrics["remote_frees_pct"], share, delta=5)

    def test_a_pipeline_frees_all_that_it_allocates(self) -> None:
        """Any number of threads on either side, and batches that do not divide among them."""
        for producers, consumers, depth in ((1, 1, 1), (2, 2, 4), (1, 5, 1), (3, 1, 2)):
            counts = (f"--producers={producers}", f"--consumers={consumers}", f"--depth={depth}", "--batches=17")
            (row,) = rows(run("pipeline", *counts))
            self.assertEqual(row["proof"]["calls"], 17 * 500)
            self.assertGreater(row["metrics"]["frees_per_s"], 0)

    def test_a_tree_is_the_same_in_every_order_of_frees(self) -> None:
        """One seed gives one tree, each node is visited once, and each is freed."""
        for built in ("down", "random"):
            sums = set()
            for frees in ("in", "reverse", "pre", "post", "random"):
                (row,) = rows(run("trees", f"--built={built}", f"--frees={frees}", "--most=200", "--turns=1"))
                self.assertEqual(row["proof"]["calls"], 2 * 5000)
                self.assertGreater(row["metrics"]["node_mean_ns"], 0)
                sums.add(row["metrics"]["first_sum_count"])
            self.assertEqual(len(sums), 1)

    def test_a_chain_hands_all_of_its_blocks_over(self) -> None:
        for chains, passes in ((1, 1), (2, 3), (5, 1)):
            (row,) = rows(run("handover", f"--chains={chains}", f"--passes={passes}"))
            self.assertEqual(row["proof"]["calls"], chains * passes * 5 * 5000)
            self.assertGreater(row["metrics"]["pairs_per_s"], 0)
            self.assertGreater(row["metrics"]["cpu_per_pair_ns"], 0)

    def test_bursts_are_the_same_in_both_orders(self) -> None:
        counts = {
            rows(run("bursts", f"--first={first}", "--longest=100"))[0]["metrics"]["bursts_count"]
            for first in ("oldest", "newest")
        }
        self.assertEqual(len(counts), 1)
        self.assertGreater(counts.pop(), 20000 // 100)

    def test_sampling_takes_one_in_1024(self) -> None:
        metrics = rows(run("simple", "--objects=100000"))[0]["metrics"]
        self.assertEqual(metrics["samples_count"], 100000 // 1024)


class Epochs(unittest.TestCase):
    """Workloads whose blocks are in epochs, under the library that has them."""

    def metrics(self, name: str, *options: str) -> dict[str, float]:
        (row,) = rows(run(name, *options, f"--expect={LIBRARY}", preload=LIBRARY))
        metrics: dict[str, float] = row["metrics"]
        return metrics

    def test_the_cost_of_a_profile_lies_in_its_interval(self) -> None:
        for interval in (0, 4096, 8 << 20):
            metrics = self.metrics("sampling", f"--interval={interval}", "--pairs=50")
            self.assertLessEqual(metrics["cost_least_pct"], metrics["cost_pct"])
            self.assertLessEqual(metrics["cost_pct"], metrics["cost_most_pct"])

    def test_requests_are_served_in_every_mode(self) -> None:
        for mode in MODES:
            for threads in (1, 2):
                with self.subTest(mode, threads=threads):
                    # 3,000 requests of a thread are more than two batches, and leave one unfinished.
                    metrics = self.metrics("request", f"--mode={mode}", f"--threads={threads}", "--requests=3000")
                    self.assertGreater(metrics["requests_per_s"], 0)

    def test_a_request_leaves_nothing_behind(self) -> None:
        """200,000 blocks of 96 to 480 bytes are 55 MiB, were they kept."""
        for mode in MODES:
            with self.subTest(mode):
                metrics = self.metrics("request", f"--mode={mode}", "--requests=10000")
                self.assertLess(metrics["peak_rss_bytes"], 16 << 20)

    def test_isolated_epochs_drain(self) -> None:
        metrics = self.metrics("lifetimes", "--routing=isolated", "--pinned=1")
        self.assertEqual((metrics["closes_count"], metrics["drained_closes_pct"]), (12 - 4, 100))
        self.assertEqual((metrics["mismatched_closes_count"], metrics["retained_slabs_count"]), (0, 0))
        self.assertEqual(metrics["live_count"], 100 + 12)

    def test_mixed_epochs_report_what_they_hold(self) -> None:
        metrics = self.metrics("lifetimes", "--routing=mixed", "--pinned=1")
        self.assertEqual((metrics["drained_closes_pct"], metrics["mismatched_closes_count"]), (0, 0))
        self.assertGreaterEqual(metrics["retained_slabs_count"], 12 - 4)

    def test_late_frees_drain_a_closed_epoch(self) -> None:
        """Blocks live at the close of their epoch, five batches on, and are freed thereafter."""
        metrics = self.metrics("lifetimes", "--routing=isolated", "--lag=50")
        self.assertEqual((metrics["drained_closes_pct"], metrics["mismatched_closes_count"]), (0, 0))
        self.assertLessEqual(metrics["retained_slabs_count"], metrics["closes_count"] * 4)

    def test_each_operation_runs_alone(self) -> None:
        for name in ("open_close", "open_close_10", "destroy_10", "reset_10", "enter_leave_10", "alternate"):
            with self.subTest(name):
                metrics = self.metrics("epochs", f"--run={name}", "--turns=1000")
                self.assertEqual(set(metrics), {"peak_rss_bytes", "end_rss_bytes"})

    def test_each_kind_of_cliff_has_its_figures(self) -> None:
        for kind in scale.KINDS:
            with self.subTest(kind.name):
                form = "epoch" if kind.in_epochs else "malloc"
                metrics = self.metrics("cliffs", f"--kind={kind.name}", f"--of={form}")
                self.assertEqual({cost.metric for cost in kind.costs} - metrics.keys(), set())

    def test_a_tide_goes_out(self) -> None:
        """At high tide all of its blocks are resident; at low tide what stays of them is a small share."""
        metrics = self.metrics("cliffs", "--kind=tide", "--count=300", "--of=epoch")
        self.assertGreater(metrics["high_rss_bytes"], metrics["high_live_bytes"])
        self.assertLess(metrics["low_over_live_bytes"], metrics["high_live_bytes"] / 2)

    def test_figures_of_epochs(self) -> None:
        for beside in (0, 1):
            metrics = self.metrics("epochs", f"--beside={beside}")
            self.assertEqual("two_threads_one_epoch_ratio" in metrics, beside == 0)
            self.assertGreaterEqual(metrics["step_calls_count"], 1)
            self.assertIn("close_over_madvise_ratio", metrics)


class Refusals(unittest.TestCase):
    def library(self, code: str) -> Path:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        folder = Path(holder.name)
        (folder / "it.c").write_text(code)
        subprocess.run(["cc", "-O2", "-w", "-shared", "-fPIC", "-o", folder / "it.so", folder / "it.c"], check=True)
        return folder / "it.so"

    def refused(self, done: subprocess.CompletedProcess[str], status: int, words: str) -> None:
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertIn(words, done.stderr)

    def test_preload_that_does_not_take(self) -> None:
        nowhere = Path("/nowhere/liballoc.so")
        self.refused(run("simple", f"--expect={nowhere}", preload=nowhere), WRONG_ALLOCATOR, "No such file")
        self.refused(run("simple", "--expect=liballoc", preload=nowhere), WRONG_ALLOCATOR, "libc.so")

    def test_wrong_library(self) -> None:
        mine, other = self.library(PASSES_ON), self.library(PASSES_ON)
        self.refused(run("simple", f"--expect={other}", preload=mine), WRONG_ALLOCATOR, "was expected")
        self.refused(run("simple", "--expect=glibc", preload=mine), WRONG_ALLOCATOR, "glibc was expected")

    def test_library_that_passes_calls_on_to_glibc(self) -> None:
        library = self.library(PASSES_ON)
        for name in SMALL.keys() - OF_EPOCHS:
            with self.subTest(name):
                self.refused(run(name, f"--expect={library}", preload=library), WRONG_ALLOCATOR, "served only")

    def test_library_with_half_of_the_family(self) -> None:
        self.refused(run("simple", preload=self.library(FORGETS)), WRONG_ALLOCATOR, "calloc from")

    def test_epochs_of_an_allocator_that_has_none(self) -> None:
        words = "needs tslab_epoch_open, which"
        self.refused(run("epochs"), WRONG_USE, words)
        for mode in MODES[1:]:
            self.refused(run("request", f"--mode={mode}"), WRONG_USE, f"--mode={mode} {words}")
        for routing in ("mixed", "isolated"):
            self.refused(run("lifetimes", f"--routing={routing}"), WRONG_USE, f"--routing={routing} {words}")
        self.refused(run("request", "--mode=mi-heap"), WRONG_USE, "--mode=mi-heap needs mi_heap_new, which")
        self.refused(run("epochs", "--of=mi-heap"), WRONG_USE, "--of=mi-heap needs mi_heap_new, which")
        self.refused(run("cliffs", "--of=epoch"), WRONG_USE, f"--of=epoch {words}")
        self.refused(run("cliffs", "--kind=calls", "--of=mi-heap"), WRONG_USE, "--of=mi-heap needs mi_heap_new, which")

    def test_kinds_of_cliffs_without_a_form(self) -> None:
        for kind, form in (("labels", "malloc"), ("rest", "epoch"), ("turns", "mi-heap")):
            with self.subTest(kind):
                words = f"--kind={kind} has no form --of={form}"
                self.refused(run("cliffs", f"--kind={kind}", f"--of={form}"), WRONG_USE, words)

    def test_mistakes(self) -> None:
        for option, words in {
            "--slots=0": "at least 1",
            "--slots=many": "whole number",
            "--draws=odd": "same|independent",
            "--slotz=3": "unknown option",
            "slots": "not --option=value",
        }.items():
            with self.subTest(option):
                self.refused(run("random-mixed", option), WRONG_USE, words)


if __name__ == "__main__":
    unittest.main()
