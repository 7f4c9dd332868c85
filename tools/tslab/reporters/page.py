"""docs/benchmarking.md and docs/benchmarking-tables.md: a page to read, and the tables of the same run."""

from __future__ import annotations

import statistics
from pathlib import Path

from tslab.reporters import charts, sections, tables
from tslab.reporters.families import FAMILIES, Family, Standing, best_peer, standing
from tslab.result import Envelope, Key, Result

PAGE, TABLES, PICTURES = "benchmarking.md", "benchmarking-tables.md", "benchmarks"
HEAD = ("what", "rows", "to {}", "to each row's best peer", "to the one best peer")
MOST_LOSSES = 3
INTERVAL_ROUNDS = 6  # with fewer, the least and the greatest value hold less than 95 %


def write(result: Result, folder: Path) -> None:
    """Both documents and a picture for each family; a picture without its family goes."""
    standings = [standing(result, family) for family in FAMILIES]
    drawn = {each.family.name: charts.family(result, each.family) for each in standings}
    sections.replace(folder / TABLES, "table", tables.markdown(result))
    sections.replace(folder / PAGE, "summary", summary(result, [each for each in standings if each.rows]))
    pictures = folder / PICTURES
    pictures.mkdir(exist_ok=True)
    for old in pictures.glob("*.svg"):
        old.unlink()
    for name, chart in drawn.items():
        if chart:
            (pictures / f"{name}.svg").write_text(chart.alone, encoding="utf-8")


def summary(result: Result, standings: list[Standing]) -> str:
    lines = [_origin(result), "", *_table(result, standings)]
    for each in standings:
        lines += ["", *_family(result, each)]
    return "\n".join(lines) + "\n"


def _origin(result: Result) -> str:
    machine, runs = result.data["machine"], result.data["runs"]
    load = statistics.median(run["load"] for run in runs)
    peers = ", ".join(f"{a['name']} {a['version']}" for a in result.data["allocators"] if not a["missing"])
    weak = (
        ""
        if result.data["rounds"] >= INTERVAL_ROUNDS
        else (" So few rounds give no 95 % interval: the least and the greatest ratio stand for it; verdicts are weak.")
    )
    return (
        f"Measured on {machine['cpu']}, {machine['cores']} cores, {machine['kernel']}, commit {machine['commit']}, "
        f"{result.data['created'][:10]}: {result.data['rounds']} interleaved rounds of {len(result.data['cases'])} "
        f"cases, {result.data['minutes']:.0f} minutes, the machine's load {load:.1f} in the median. {peers}.{weak}"
    )


def _table(result: Result, standings: list[Standing]) -> list[str]:
    head = " | ".join(HEAD).format(result.baseline)
    return [
        f"| {head} |",
        "|---|---|---:|---:|---|",
        *("| " + " | ".join(_row(result, each)) + " |" for each in standings),
    ]


def _row(result: Result, each: Standing) -> list[str]:
    best = best_peer(result, each)
    return [
        f"[{each.family.title}](#{_anchor(each.family)})",
        each.words,
        f"{each.to_baseline:.2f}" if each.to_baseline else "–",
        f"{each.to_best:.2f}" if each.to_best else "–",
        f"{best[1]:.2f} {best[0]}" if best else "–",
    ]


def _anchor(family: Family) -> str:
    return "".join(c for c in family.title.lower().replace(" ", "-") if c.isalnum() or c == "-")


def _family(result: Result, each: Standing) -> list[str]:
    family, lost = each.family, each.lost
    lines = [
        f"### {family.title}",
        "",
        family.stands_for,
        "",
        f"![{family.title}: each allocator's ratio, row by row]({PICTURES}/{family.name}.svg)",
        "",
    ]
    if not lost:
        return [*lines, "No row is lost."]
    shown = "; ".join(_loss(result, key, envelope) for key, envelope in lost[:MOST_LOSSES])
    more = f"; and {len(lost) - MOST_LOSSES} more" if len(lost) > MOST_LOSSES else ""
    return [*lines, f"**Lost** ({len(lost)} of {len(each.rows)} rows): {shown}{more}.", "", f"**Why:** {family.why}"]


def _loss(result: Result, key: Key, envelope: Envelope) -> str:
    """The ratio; both figures where the peer's is 0, to which nothing has a ratio."""
    ratio = envelope.ratio
    if ratio.point == 0:
        figures = (tables.value_text(key, result.cell(key, name)) for name in (result.ours, envelope.peer))
        return f"`{key.name}` ({key.metric}) {next(figures)}, {envelope.peer} {next(figures)}"
    return (
        f"`{key.name}` ({key.metric}) {tables.ratio_text(ratio.point)} of {envelope.peer} "
        f"({tables.interval_text(ratio)})"
    )
