"""Judge numbers measured elsewhere: GO, NO-GO, NEUTRAL or UNDECIDED, with the interval and the runs needed."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from tslab import measured
from tslab.errors import LabError
from tslab.reporters import verdicts
from tslab.stats import Kind, judge_independent, judge_rounds, summarize


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="CSV, JSON or log with two series of runs, the baseline first")
    parser.add_argument(
        "--kind",
        choices=[kind.value for kind in Kind],
        default=Kind.FEATURE.value,
        help="what the change is for: threshold 1.0 %%, 0.5 %% or 3.0 %% (default: %(default)s)",
    )
    parser.add_argument("--lower-is-better", action="store_true", help="the numbers are times, bytes or instructions")
    parser.add_argument(
        "--rounds",
        action="store_true",
        help="the runs were interleaved: line n of both series was measured side by side",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    series = measured.read(arguments.file)
    if arguments.rounds and len(series.baseline) != len(series.treatment):
        raise LabError(
            f"--rounds needs as many runs on each side; there are {len(series.baseline)} and {len(series.treatment)}"
        )
    judge = judge_rounds if arguments.rounds else judge_independent
    kind = Kind(arguments.kind)
    judgement = judge(series.baseline, series.treatment, kind.threshold, not arguments.lower_is_better)
    summaries = zip(series.names, (summarize(series.baseline), summarize(series.treatment)), strict=True)
    verdicts.print_summaries(console, dict(summaries))
    verdicts.print_judgement(console, judgement, kind, "rounds" if arguments.rounds else "runs on each side")
    return 0
