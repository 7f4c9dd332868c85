"""The report: one HTML file that needs no network, with every chart, the tables behind them, and what went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from tslab.reporters import charts, tables
from tslab.result import MEMORY, TIME, Result


@dataclass(frozen=True)
class Figure:
    """A headline of the summary card."""

    value: str
    label: str
    good: bool | None = None


def write(result: Result, target: Path, sources: Sequence[Path]) -> None:
    environment = Environment(
        loader=PackageLoader("tslab", "reporters"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    drawn = [(entry, entry.draw(result)) for entry in charts.ENTRIES]
    page = environment.get_template("report.html.j2").render(
        result=result,
        machine=result.data["machine"],
        sources=[path.name for path in sources],
        summary=summary(result),
        charts=[(entry, chart, Markup(chart.svg) if chart else None) for entry, chart in drawn],
        matrices=[
            (title.format(result.baseline), *tables.matrix(result, category))
            for category, title in tables.TITLES.items()
        ],
        losses=[
            (
                key.name,
                key.metric,
                envelope.peer,
                tables.ratio_text(envelope.ratio.point),
                tables.interval_text(envelope.ratio),
            )
            for key, envelope in result.losses()
        ],
        failures=failures(result),
        steal=max((run["steal_pct"] for run in result.data["runs"]), default=0.0),
        load=max((run["load"] for run in result.data["runs"]), default=0.0),
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page, encoding="utf-8")


def summary(result: Result) -> list[Figure]:
    figures = []
    ours = result.ours if result.ours in result.measured else None
    for category, better in ((TIME, "as fast as"), (MEMORY, "the memory thrift of")):
        mean = result.overall(ours, category) if ours else None
        if mean and ours != result.baseline:
            figures.append(
                Figure(
                    f"{mean[0]:.2f} ×", f"{better} {result.baseline}, geometric mean of {mean[1]} cases", mean[0] >= 1
                )
            )
        envelope = result.overall_envelope(category)
        if ours and envelope:
            figures.append(
                Figure(
                    f"{envelope[0]:.2f} ×",
                    f"{better} the best peer of each case ({envelope[1]} cases)",
                    envelope[0] >= 1,
                )
            )
    behind = result.losses()
    total = sum(result.envelope(key) is not None for key in result.rows())
    if total:
        figures.append(
            Figure(f"{total - len(behind)} of {total}", "rows level with their best peer or ahead", not behind)
        )
    figures.append(
        Figure(
            str(len(result.measured)),
            "allocators measured" + (f", {len(result.missing)} missing" if result.missing else ""),
        )
    )
    figures.append(Figure(str(result.data["rounds"]), "interleaved rounds"))
    return figures


def failures(result: Result) -> list[tuple[str, str, str]]:
    found = [(name, "all workloads", f"missing: {reason}") for name, reason in result.missing.items()]
    seen = set()
    for run in result.data["runs"]:
        if run["status"] != "ok" and (run["allocator"], run["case"]) not in seen:
            seen.add((run["allocator"], run["case"]))
            found.append((run["allocator"], run["case"], f"{run['status']}: {run['note']}"))
    return found
