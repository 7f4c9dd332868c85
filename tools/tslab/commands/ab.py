"""Compare two builds, or one build in two environments, and judge the difference.

  tslab ab A B [options] -- COMMAND

A and B are each a library (a path, or a name such as tslab, glibc, mimalloc3), NAME=VALUE settings separated by
commas, or both: `build/release/libtslab.so,TSLAB_CACHE=64K`. Settings alone mean the library of --library.
COMMAND is a workload's name with its options, or any command; its whole time is then what counts.
"""

from __future__ import annotations

import argparse
import datetime
import shlex
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tslab import calibrate, given, ledger, machine, profile, project, stepping
from tslab.arms import Arm, Fingerprints, check_knobs, check_preload, parse_arm, steering_variables
from tslab.errors import LabError
from tslab.experiment import Experiment, Outcome
from tslab.profile import Profile
from tslab.reach import Reach, reach
from tslab.reporters import verdicts
from tslab.runner import Program, find_program
from tslab.stats import TRIMMED, Kind, Verdict, verdict_of

MINUTES = 5.0


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("arms", nargs="*", metavar="A B", help="the two sides, the baseline first")
    parser.add_argument(
        "--kind",
        choices=[kind.value for kind in Kind],
        default=Kind.FEATURE.value,
        help="what the change is for: threshold 1.0 %%, 0.5 %% or 3.0 %% (default: %(default)s)",
    )
    parser.add_argument(
        "--budget", type=given.minutes, metavar="MINUTES", help=f"time for the runs (default: {MINUTES:g})"
    )
    parser.add_argument("--metric", help="what is judged (default: the workload's throughput, a command's time)")
    parser.add_argument("--variant", default="", help="part of the row's variant, where a workload prints several rows")
    parser.add_argument("--library", default=project.TSLAB, help="for sides that are settings only (default: tslab)")
    parser.add_argument("--preset", default="release", help="whose build the names mean (default: release)")
    parser.add_argument("--predict", default="", metavar="PERCENT", help="what you expect, printed beside the result")
    parser.add_argument(
        "--count-with",
        action="append",
        default=[],
        metavar="OPTION",
        help="option for the run that counts instructions, to make it small (repeatable)",
    )
    parser.add_argument("--record", metavar="WHAT", help="append the result to bench/LEDGER.md; needs --why")
    parser.add_argument("--why", default="", help="the reason for the change, for the ledger")
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="measure this laboratory itself: A/A comparisons and injected slowdowns (an hour)",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    place = project.find(arguments.preset)
    if arguments.calibrate:
        return calibrate.run(place, console, arguments.budget or calibrate.MINUTES)
    if len(arguments.arms) != 2:
        raise LabError("two sides are needed: tslab ab A B -- COMMAND")
    if arguments.record and not arguments.why:
        raise LabError("--record needs --why: a ledger row without its reason helps nobody later")
    program = find_program(arguments.program, place.workloads)
    known = place.known()
    base = parse_arm(arguments.library, known).library if _settings_only(arguments.arms) else None
    a, b = (parse_arm(text, known, fallback=base) for text in arguments.arms)
    fingerprints = Fingerprints((a, b))
    for arm in (a, b):
        check_knobs(arm)
        check_preload(arm, program.command)
    console.print(f"A        {a.name}\nB        {b.name}\nrun      {shlex.join(program.command)}")
    _tell_dropped(console)
    reached = reach(a, b, counter(program, tuple(arguments.count_with), console), program.is_workload)
    for line in reached.lines():
        console.print(line)
    reached.refuse_if_unreached()
    kind = Kind(arguments.kind)
    if reached.bound < kind.threshold:
        console.print(
            f"         [bold yellow]no gain of {100 * kind.threshold:.1f} % is possible:[/] "
            f"this run can show harm, or its absence, but cannot end in GO"
        )
    console.print(
        f"rule     the mean of the rounds' changes without the {TRIMMED:.0%} at each end; verdict by its 95 % interval "
        f"and ±{100 * kind.threshold:.1f} %"
    )
    experiment = Experiment(
        program, a, b, kind, 60 * (arguments.budget or MINUTES), arguments.metric, arguments.variant
    )
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("rounds", total=None, left="")
        outcome = experiment.run(
            lambda done, total, left: bar.update(
                task, total=total, completed=done, left=f"{done}/{total}, about {left:.0f} s left"
            )
        )
    fingerprints.check()
    _print(console, outcome, reached, arguments.predict)
    if arguments.record:
        ledger.record(place.ledger, _entry(arguments, place, program, outcome, reached))
        console.print(f"recorded {place.ledger}")
    return 0


def counter(program: Program, options: tuple[str, ...], console: Console) -> Callable[[Arm], Profile]:
    """Counts by callgrind, and one instruction at a time where that ends early."""

    def count(arm: Arm) -> Profile:
        try:
            return profile.callgrind(program, arm, options)
        except profile.EndedEarly as error:
            console.print(f"         {error}; single-stepping instead")
            return stepping.count(program, arm, options)

    return count


def _settings_only(arms: list[str]) -> bool:
    return any(all("=" in item for item in arm.split(",")) for arm in arms)


def _tell_dropped(console: Console) -> None:
    dropped = [name for name in steering_variables() if not name.startswith("TSLAB_")]
    if dropped:
        console.print(f"dropped  {', '.join(dropped)} of your environment: both sides run without")


def _print(console: Console, outcome: Outcome, reached: Reach, predicted: str) -> None:
    wanted = outcome.wanted_rounds or "more than can be run"
    console.print(
        f"rounds   {outcome.planned_rounds} of {wanted} that the noise asks for, "
        f"{outcome.seconds:.0f} s; steal {outcome.pressure.steal_pct:.1f} %, load {outcome.pressure.load:.2f}"
    )
    console.print(f"metric   {outcome.metric}" + (f", predicted {predicted} %" if predicted else ""))
    control = outcome.control
    console.print(
        f"A/A      {verdicts.percent(control.change.point)} ± {100 * control.change.half_width:.1f} %: "
        f"{control.verdict.value}"
    )
    peaks = [f"{side} {bytes_ / 2**20:.1f} MiB" for side, bytes_ in outcome.peak_rss.items() if bytes_]
    if peaks:
        console.print(f"peak RSS {', '.join(peaks)}")
    if reached.per_call[0]:
        change = reached.instructions
        word = verdict_of(change, outcome.kind.threshold)
        console.print(
            f"instructions a call: {reached.per_call[0]:.2f} to {reached.per_call[1]:.2f}, "
            f"{verdicts.percent(change.point)}: [{verdicts.COLOURS[word]}]{word.value}[/]"
        )
    verdicts.print_judgement(console, outcome.judgement, outcome.kind, "rounds")
    if outcome.withheld:
        console.print(
            f"verdict  [{verdicts.COLOURS[Verdict.UNDECIDED]}]UNDECIDED[/]: withheld, since A against itself "
            f"came out as {control.verdict.value} in the same run; run again on a quieter machine"
        )


def _entry(
    arguments: argparse.Namespace, place: project.Project, program: Program, outcome: Outcome, reached: Reach
) -> ledger.Entry:
    change = outcome.judgement.change
    a, b = reached.per_call
    return ledger.Entry(
        date=datetime.date.today().isoformat(),
        what=arguments.record,
        why=arguments.why,
        workload=program.name,
        metric=outcome.metric,
        predicted=f"{arguments.predict} %" if arguments.predict else "none",
        measured=verdicts.percent(change.point),
        interval=verdicts.interval(change),
        rounds=str(outcome.judgement.n),
        instructions=f"{a:.2f} to {b:.2f}" if a else "not counted",
        verdict=outcome.verdict.value,
        commit=machine.commit(place.root),
    )
