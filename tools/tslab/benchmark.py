"""A full run: every case under every allocator, interleaved round by round, into one result that can be judged later.

Within a round the allocators take turns case by case, in an order that order_of() balances over the rounds. Rounds come
in pairs; after each round the run estimates how many more pairs fit the budget.
"""

from __future__ import annotations

import datetime
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tslab import machine
from tslab.arms import Arm, Fingerprints, check_knobs, common_length, steering_variables
from tslab.errors import LabError, NotServed
from tslab.project import TSLAB, Allocator, Project
from tslab.runner import Program, Run, RunFailed, run
from tslab.suite import RUN_LIMIT_S, Case

SCHEMA = "tslab-bench-1"
LEAST_ROUNDS, MOST_ROUNDS = 2, 20
# Which cases also say what became of temporal-slab's slabs, in one run of their own at the end.
LIFECYCLE = ("random-mixed", "churn", "remote", "burst", "request")


@dataclass(frozen=True)
class Record:
    """One run, or the reason why there is none. A row of a workload that prints several is one record each."""

    round: int
    case: str
    workload: str
    variant: str
    allocator: str
    status: str  # ok, crashed, stopped, missing, not-served
    note: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    series: dict[str, list[float]] = field(default_factory=dict)
    malloc_from: str = ""
    steal_pct: float = 0.0
    load: float = 0.0


Progress = Callable[[str, int, int, float], None]  # the case that runs now, done, total, seconds left


class Benchmark:
    def __init__(self, place: Project, cases: Sequence[Case], allocators: Sequence[Allocator], budget_s: float) -> None:
        self._place, self._cases, self._budget_s = place, cases, budget_s
        self._allocators = list(allocators)
        self._arms = {
            a.name: Arm(a.name, a.library.resolve() if a.library else None) for a in allocators if not a.missing
        }
        if not self._arms:
            reasons = "; ".join(f"{a.name}: {a.missing}" for a in allocators)
            raise LabError(f"no allocator to measure ({reasons})")
        self._records: list[Record] = []
        self._given_up: set[tuple[str, str]] = set()
        self._of_round: dict[tuple[str, Program], tuple[Run, machine.Pressure]] = {}

    def run(self, progress: Progress = lambda what, done, total, left: None) -> dict[str, Any]:
        programs = {
            (case.name, name): self._program(case, options)
            for case in self._cases
            for name in self._arms
            if (options := case.options_of(name)) is not None
        }
        if not programs:
            raise LabError(
                f"{', '.join(self._arms)}: nothing to run, these workloads are of epochs and heaps; measure another "
                f"allocator as well"
            )
        for arm in self._arms.values():
            if arm.is_tslab:
                check_knobs(arm)
        pad = common_length(list(self._arms.values()))
        fingerprints = Fingerprints(self._arms.values())
        meter, started = machine.PressureMeter(), time.monotonic()
        per_round = len(programs)
        rounds, done, number = MOST_ROUNDS, 0, 0
        while number < rounds:
            self._of_round.clear()
            for case in self._cases:
                for name in (n for n in order_of(number, list(self._arms)) if (case.name, n) in programs):
                    spent = time.monotonic() - started
                    left = spent / done * (rounds * per_round - done) if number else self._budget_s - spent
                    progress(f"{case.name} · {name}", done, rounds * per_round, left)
                    self._one(number + 1, case, programs[case.name, name], self._arms[name], pad, meter)
                    done += 1
            fingerprints.check()
            number += 1
            spent = time.monotonic() - started
            more = int((self._budget_s - spent) / (spent / number))
            # A pair of rounds that has begun is finished: half of one would favour those that began it.
            pairs = min(MOST_ROUNDS, number + more) // 2
            rounds = max(LEAST_ROUNDS, number + number % 2, 2 * pairs)
        return {
            "schema": SCHEMA,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "minutes": round((time.monotonic() - started) / 60, 1),
            "machine": machine.facts(self._place.root),
            "build": self._place.preset,
            "settings": {name: value for name, value in steering_variables().items() if name.startswith("TSLAB_")},
            "dropped": [name for name in steering_variables() if not name.startswith("TSLAB_")],
            "rounds": rounds,
            "ours": TSLAB,
            "allocators": [
                {
                    "name": a.name,
                    "version": a.version,
                    "library": str(a.library or "the C library"),
                    "missing": a.missing,
                }
                for a in self._allocators
            ],
            "cases": [
                {
                    "name": c.name,
                    "workload": c.workload,
                    "options": list(c.options),
                    "time": list(c.time),
                    "memory": list(c.memory),
                    "routes": [list(route) for route in c.routes],
                    "in_means": c.in_means,
                }
                for c in self._cases
            ],
            "lifecycle": self._lifecycles(programs),
            "runs": [asdict(record) for record in self._records],
        }

    def _program(self, case: Case, options: tuple[str, ...]) -> Program:
        if case.workload == "apps":
            script = self._place.root / "bench" / "apps.py"
            return Program((sys.executable, str(script), *options), is_workload=True, preloads=True)
        binary = self._place.workloads / case.workload
        if not binary.exists():
            raise LabError(f"the workload {binary} is not built: ./dev build {self._place.preset} --all")
        return Program((str(binary), *options), is_workload=True)

    def _one(self, number: int, case: Case, program: Program, arm: Arm, pad: int, meter: machine.PressureMeter) -> None:
        if (case.name, arm.name) in self._given_up:
            return
        try:
            result, pressure = self._run_once(number, program, arm, pad, meter, case.limit_s)
        except NotServed as error:
            self._failed(number, case, arm, "not-served", error)
            return
        except RunFailed as error:
            self._failed(number, case, arm, error.status, error)
            return
        for row in result.rows:
            # Curves of one round are enough to draw, and 8 allocators times 20 rounds of them are not a small file.
            series = {name: _thinned(values) for name, values in row.series.items()} if number == 1 else {}
            self._records.append(
                Record(
                    number,
                    case.name,
                    row.workload,
                    case.comparable(row.variant),
                    arm.name,
                    "ok",
                    "",
                    dict(row.metrics),
                    series,
                    str(row.proof.get("malloc_from", "")),
                    round(pressure.steal_pct, 2),
                    round(pressure.load, 2),
                )
            )

    def _run_once(
        self, number: int, program: Program, arm: Arm, pad: int, meter: machine.PressureMeter, limit_s: int
    ) -> tuple[Run, machine.Pressure]:
        """Cases that differ in their routes only share the runs of the allocators without one, round by round."""
        if (arm.name, program) not in self._of_round:
            meter.read()
            result = run(program, arm, pad_to=pad, timeout_s=limit_s, options=(f"--seed={1000 + number}",))
            self._of_round[arm.name, program] = (result, meter.read())
        return self._of_round[arm.name, program]

    def _failed(self, number: int, case: Case, arm: Arm, status: str, error: Exception) -> None:
        """A failure is a row. A run whose calls the allocator did not serve, or that took too long, is not repeated."""
        self._records.append(Record(number, case.name, case.workload, "", arm.name, status, str(error)))
        if status != "crashed":
            self._given_up.add((case.name, arm.name))

    def _lifecycles(self, programs: dict[tuple[str, str], Program]) -> list[dict[str, Any]]:
        """Temporal-slab's statistics of its slabs at the end of a run of each kind; none of these runs is timed."""
        arm = self._arms.get(TSLAB)
        found: list[dict[str, Any]] = []
        if arm is None:
            return found
        with tempfile.TemporaryDirectory(prefix="tslab-stats-") as folder:
            for case in self._cases:
                if case.workload not in LIFECYCLE or any(entry["workload"] == case.workload for entry in found):
                    continue
                file = Path(folder) / case.workload
                watched = Arm(arm.name, arm.library, {"TSLAB_STATS_AT_EXIT": str(file)})
                try:
                    rows = run(programs[case.name, TSLAB], watched, timeout_s=RUN_LIMIT_S).rows
                except (RunFailed, NotServed):
                    continue
                if file.exists():
                    calls = sum(float(row.proof.get("calls", 0)) for row in rows)
                    found.append(
                        {
                            "workload": case.workload,
                            "case": case.name,
                            "calls": calls,
                            **read_stats(file.read_text(encoding="utf-8")),
                        }
                    )
        return found


def order_of(number: int, names: Sequence[str]) -> list[str]:
    """Returns the order of round `number`, counted from 0: Williams's square, row after row, each row also backwards.

    Two successive rounds are mirror images, so every name has the same mean place in each such pair. As many rounds as
    there are names (twice as many if that number is odd) put every name at every place, and behind every other name,
    equally often. In twice as many rounds as there are names, the odd rounds alone, and the even ones alone, put every
    name at every place once.
    """
    count = len(names)
    row = [(-(place // 2) if place % 2 == 0 else place // 2 + 1) % count for place in range(count)]
    turned = [names[(index + number // 2) % count] for index in row]
    return turned[::-1] if number % 2 else turned


def read_stats(text: str) -> dict[str, float]:
    """The figures of TSLAB_STATS_AT_EXIT: a name and a number a line, and one line a class; classes are summed."""
    figures: dict[str, float] = {}
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if words[0] != "class":
            figures[words[0]] = float(words[1])
            continue
        for name, value in zip(words[2::2], words[3::2], strict=False):
            figures[f"class_{name}"] = figures.get(f"class_{name}", 0.0) + float(value)
    return figures


def _thinned(values: Sequence[float], most: int = 400) -> list[float]:
    step = max(1, -(-len(values) // most))
    return list(values[::step])


def default_output(place: Project) -> Path:
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return place.cache / f"bench-{stamp}-{os.getpid()}.json"
