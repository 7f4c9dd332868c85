"""Tests the laboratory: how often it sees a difference that does not exist, and misses one that does.

One real workload behind a shim (native/slow.c) that adds a known delay to an allocator's malloc. Comparisons of equal
arms must not end as GO or NO-GO; an injected 3 % of time, and an injected 1 % of instructions, must end as NO-GO.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from tslab import machine, profile
from tslab.arms import Arm
from tslab.errors import LabError
from tslab.experiment import Experiment, Outcome
from tslab.project import Project
from tslab.reach import reach
from tslab.reporters import sections
from tslab.runner import Program
from tslab.runner import run as run_once
from tslab.stats import Kind, Verdict, judge_rounds, verdict_of

WORKLOAD = ("random-mixed", "--iterations=8000000")
# Start-up and what the scavenger finds to do differ between two counts: by 0.3 % of 100,000 turns, 0.05 % of these.
COUNT_WITH = ("--iterations=2000000",)
EQUAL, SLOWED, HEAVIER = 60, 20, 20
SLOWDOWN, MORE_INSTRUCTIONS = 0.03, 0.01
# A false verdict is as rare after few rounds as after many; to see 3 % takes intervals of about a percent.
MINUTES, SHARE_OF_EQUAL = 55.0, 0.5
FALSE_AT_MOST, CAUGHT_AT_LEAST = 6, 19


def shim(cache: Path) -> Path:
    """The compiled shim; made again when its source is newer."""
    source, library = Path(__file__).parent / "native" / "slow.c", cache / "libslow.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        cache.mkdir(parents=True, exist_ok=True)
        command = ["cc", "-O2", "-shared", "-fPIC", "-fno-builtin", "-o", str(library), str(source)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise LabError(f"the shim does not compile: {result.stderr.strip()}")
    return library.resolve()


def slowed(library: Path, served_by: Path, turns: int) -> Arm:
    """The shim stands before the allocator in the preload, and finds it as the next definition of malloc."""
    variables = {"SLOW_TURNS": str(turns), "LD_PRELOAD": f"{library}:{served_by}"}
    return Arm(f"{served_by.name} slowed by {turns} turns", library, variables)


def turns_for_time(program: Program, slow_by: Callable[[int], Arm], share: float) -> int:
    """Loop turns that make the workload `share` slower, on the line through two numbers of turns that were measured.

    The line does not pass through zero: a processor runs the first turns beside the malloc's own work, and the last
    costs a mispredicted branch.
    """
    few, many, rounds = 100, 300, 120
    times: dict[int, list[float]] = {0: [], few: [], many: []}
    for number in range(rounds):
        order = (0, few, many, many, few, 0) if number % 2 else (few, many, 0, 0, many, few)
        of_round = [(turns, run_once(program, slow_by(turns)).rows[0].metrics["op_ns"]) for turns in order]
        for turns, values in times.items():
            values.append(sum(ns for measured, ns in of_round if measured == turns))
    cost_few, cost_many = (judge_rounds(times[0], times[turns], share).change.point for turns in (few, many))
    wanted = few + (share - cost_few) * (many - few) / (cost_many - cost_few)
    if cost_many <= cost_few or not few / 4 <= wanted <= 4 * many:
        raise LabError(
            f"{few} turns cost {cost_few:+.1%} and {many} cost {cost_many:+.1%}: no line to find {share:.0%} on; "
            f"calibrate on a quieter machine"
        )
    return round(wanted)


def turns_for_instructions(program: Program, slow_by: Callable[[int], Arm], share: float) -> int:
    """The same by instruction counts, of which one a side is enough."""
    many = 100
    plain, slow = (profile.callgrind(program, slow_by(turns), COUNT_WITH).per_call for turns in (0, many))
    return max(1, round(share * plain / ((slow - plain) / many)))


def run(place: Project, console: Console, minutes: float) -> int:
    program = Program((str(place.workloads / WORKLOAD[0]), *WORKLOAD[1:]), is_workload=True)
    served_by = place.known().get("tslab")
    if served_by is None:
        raise LabError("the calibration runs on temporal-slab's own library: ./dev build first")
    slow_by = partial(slowed, shim(place.cache), served_by)
    started = time.monotonic()
    delay = turns_for_time(program, slow_by, SLOWDOWN)
    weight = turns_for_instructions(program, slow_by, MORE_INSTRUCTIONS)
    console.print(f"{SLOWDOWN:.0%} of time is {delay} turns, {MORE_INSTRUCTIONS:.0%} of instructions {weight}")
    plain = slow_by(0)
    each = minutes * SHARE_OF_EQUAL / EQUAL
    equal = [_compare(program, plain, plain, each, console, f"A/A {i + 1}/{EQUAL}") for i in range(EQUAL)]
    each = minutes * (1 - SHARE_OF_EQUAL) / SLOWED
    slow = [_compare(program, plain, slow_by(delay), each, console, f"3 % {i + 1}/{SLOWED}") for i in range(SLOWED)]
    heavy = []
    for i in range(HEAVIER):
        # Two counts of the same numbers hardly differ, so every try plays other ones.
        options = (*COUNT_WITH, f"--seed={1000 + i}")
        reached = reach(plain, slow_by(weight), partial(profile.callgrind, program, options=options), is_workload=True)
        heavy.append((reached.instructions.point, verdict_of(reached.instructions, Kind.PRUNE.threshold)))
    false = sum(outcome.verdict in (Verdict.GO, Verdict.NO_GO) for outcome in equal)
    caught_time = sum(outcome.verdict is Verdict.NO_GO for outcome in slow)
    caught_count = sum(verdict is Verdict.NO_GO for _, verdict in heavy)
    result: dict[str, Any] = {
        "machine": machine.facts(place.root),
        "workload": " ".join(WORKLOAD),
        "minutes": round((time.monotonic() - started) / 60, 1),
        "equal": _figures(equal) | {"false": false, "of": EQUAL},
        "slower_3_pct": _figures(slow) | {"caught": caught_time, "of": SLOWED, "turns": delay},
        "instructions_1_pct": {
            "caught": caught_count,
            "of": HEAVIER,
            "turns": weight,
            "measured_pct": [round(100 * point, 3) for point, _ in heavy],
        },
    }
    file = place.cache / "calibration.json"
    file.write_text(json.dumps(result, indent=1), encoding="utf-8")
    text = markdown(result)
    console.print(text)
    console.print(f"figures in {file}")
    document = place.root / "docs" / "benchmarking.md"
    if document.exists():
        sections.replace(document, "calibration", text)
        console.print(f"and in {document}")
    good = false <= FALSE_AT_MOST and min(caught_time, caught_count) >= CAUGHT_AT_LEAST
    return 0 if good else 1


def markdown(result: dict[str, Any]) -> str:
    """The figures for docs/benchmarking.md."""
    equal, slow, heavy = result["equal"], result["slower_3_pct"], result["instructions_1_pct"]
    host = result["machine"]
    rows = [
        ("equal arms (A/A)", f"{equal['false']} of {equal['of']} false verdicts", f"at most {FALSE_AT_MOST}", equal),
        ("3 % slower in time", f"{slow['caught']} of {slow['of']} caught", f"at least {CAUGHT_AT_LEAST}", slow),
        ("1 % more instructions", f"{heavy['caught']} of {heavy['of']} caught", f"at least {CAUGHT_AT_LEAST}", heavy),
    ]
    lines = [
        f"`{result['workload']}` on {host['cpu']}, {host['cores']} cores, {host['kernel']}, commit {host['commit']}; "
        f"{result['minutes']} minutes in all.",
        "",
        "| what | result | bar | measured change, median (least … greatest) | interval, median | rounds, median |",
        "|---|---|---|---|---|---|",
    ]
    for what, outcome, bar, figures in rows:
        measured = figures["measured_pct"]
        spread = f"{statistics.median(measured):+.2f} % ({min(measured):+.2f} … {max(measured):+.2f})"
        width = f"± {statistics.median(figures['half_width_pct']):.2f} %" if "half_width_pct" in figures else "counted"
        rounds = f"{statistics.median(figures['rounds']):.0f}" if "rounds" in figures else "one count a side"
        lines.append(f"| {what} | {outcome} | {bar} | {spread} | {width} | {rounds} |")
    return "\n".join(lines)


def _compare(program: Program, a: Arm, b: Arm, minutes: float, console: Console, name: str) -> Outcome:
    outcome = Experiment(program, a, b, Kind.FEATURE, 60 * minutes).run()
    change = outcome.judgement.change
    console.print(
        f"{name}: {100 * change.point:+.2f} % ± {100 * change.half_width:.2f} %, "
        f"{outcome.judgement.n} rounds, {outcome.verdict.value}"
    )
    return outcome


def _figures(outcomes: list[Outcome]) -> dict[str, object]:
    return {
        "verdicts": Counter(outcome.verdict.value for outcome in outcomes),
        "measured_pct": [round(100 * outcome.judgement.change.point, 3) for outcome in outcomes],
        "half_width_pct": [round(100 * outcome.judgement.change.half_width, 3) for outcome in outcomes],
        "rounds": [outcome.judgement.n for outcome in outcomes],
        "withheld": sum(outcome.withheld for outcome in outcomes),
    }
