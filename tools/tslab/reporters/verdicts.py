"""Verdicts in a terminal. Every figure stands with its interval; the word comes last, after what it was drawn from."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from tslab.stats import Interval, Judgement, Kind, Summary, Verdict

COLOURS = {
    Verdict.GO: "bold green",
    Verdict.NO_GO: "bold red",
    Verdict.NEUTRAL: "bold cyan",
    Verdict.UNDECIDED: "bold yellow",
}


def percent(fraction: float, digits: int = 2) -> str:
    return f"{100 * fraction:+.{digits}f} %"


def interval(change: Interval) -> str:
    return f"{percent(change.low)} … {percent(change.high)}"


def number(value: float) -> str:
    """Four significant digits at least, thousands apart: 41.87, 53 136 246."""
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 10000 else f"{value:#.4g}"


def print_summaries(console: Console, sides: Mapping[str, Summary]) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("", "runs", "mean", "median", "sd", "CV", "range / mean"):
        table.add_column(title, justify="left" if not title else "right")
    for name, side in sides.items():
        table.add_row(
            name,
            str(side.n),
            number(side.mean),
            number(side.median),
            number(side.sd),
            f"{100 * side.cv:.1f} %",
            f"{100 * side.range_over_mean:.1f} %",
        )
    console.print(table)


def print_judgement(console: Console, judgement: Judgement, kind: Kind, unit: str) -> None:
    change = judgement.change
    console.print(
        f"change   {percent(change.point)} ± {100 * change.half_width:.1f} %   "
        f"(95 % interval {interval(change)}, t = {judgement.t:.2f}, {judgement.n} {unit})"
    )
    console.print(
        f"reach    {judgement.n} {unit} find a change of {100 * judgement.resolves:.1f} % nine times in ten; "
        f"the threshold for '{kind.value}' is {100 * kind.threshold:.1f} %"
    )
    console.print(f"verdict  [{COLOURS[judgement.verdict]}]{judgement.verdict.value}[/]{advice(judgement, unit)}")


def advice(judgement: Judgement, unit: str) -> str:
    if judgement.verdict is not Verdict.UNDECIDED:
        return ""
    if judgement.runs_needed is None:
        return ": no affordable number of runs decides a change this close to the threshold"
    return f": about {judgement.runs_needed} {unit} would decide, if the true change is the measured one"
