"""Draws the tide: resident memory over time in a terminal of 80 by 24, as SVG by matplotlib, and as a page.

A series is a list of points (bytes resident, bytes live); all series have the same number of points.
"""

from __future__ import annotations

import html
import io
import textwrap
from collections.abc import Mapping, Sequence

MIB = 1 << 20
ROWS, COLUMNS = 14, 66
Points = Sequence[tuple[int, int]]
COLOURS = ("#7a8291", "#2e933c", "#2274a5", "#e4572e", "#a3174a", "#c99700")


def letters(names: Sequence[str]) -> dict[str, str]:
    """A letter for each series: its first one that no other has."""
    found: dict[str, str] = {}
    for name in names:
        spare = (letter for letter in name + "123456789" if letter.isalnum() and letter not in found.values())
        found[name] = next(spare).upper() if name == names[-1] else next(spare)
    return found


def terminal(series: Mapping[str, Points], load: Sequence[int]) -> list[str]:
    """At most 20 lines of at most 80 columns. The shade is what is live; a later series hides an earlier one."""
    marks = letters(list(series))
    length = len(next(iter(series.values())))
    top = max(point[0] for points in series.values() for point in points) or 1
    columns = min(COLUMNS, length)
    grid = [[" "] * columns for _ in range(ROWS)]

    def place(value: int) -> int:
        return ROWS - 1 - min(ROWS - 1, int(value * ROWS / (top * 1.001)))

    for column in range(columns):
        at = column * length // columns
        for row in range(place(next(iter(series.values()))[at][1]) + 1, ROWS):
            grid[row][column] = "░"
        for name, points in series.items():
            grid[place(points[at][0])][column] = marks[name]
    lines = ["MiB resident above the start" + " " * 10 + "shade: live"]
    for row, cells in enumerate(grid):
        label = f"{top / MIB * (ROWS - row) / ROWS:8.0f}" if row % 3 == 0 else " " * 8
        lines.append(f"{label} |{''.join(cells)}".rstrip())
    turn = len(load) * columns // length
    lines.append(" " * 9 + "+" + "-" * turn + "+" + "-" * max(0, columns - turn - 1))
    lines.append(" " * 10 + "load rises, stays, falls".ljust(turn) + "low tide")
    lines.append(" " * 10 + "  ".join(f"{mark} {name}" for name, mark in marks.items()))
    return lines


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 79)


def svg(series: Mapping[str, Points], turn: int) -> str | None:
    """The picture; None where matplotlib is not installed. The text stays text, so that it can be found and read."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 (the chart in the terminal does without)
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        return None
    with mpl.rc_context({"svg.fonttype": "none", "font.family": "sans-serif", "svg.hashsalt": "tide"}):
        figure = Figure(figsize=(8.5, 3.6), layout="constrained")
        axis = figure.subplots()
        ends = []
        for (name, points), colour in zip(series.items(), COLOURS, strict=False):
            ours = name in list(series)[-2:]
            values = [point[0] / MIB for point in points]
            axis.plot(values, color=colour, linewidth=2.6 if ours else 1.6, label=name)
            ends.append((values[-1], name, colour))
        live = [point[1] / MIB for point in next(iter(series.values()))]
        axis.fill_between(range(len(live)), live, color="#d9dde5", linewidth=0, label="live blocks")
        axis.axvline(turn - 1, color="#9aa1ad", linewidth=0.8, linestyle=":")
        axis.set_xlim(0, len(live) - 1)
        axis.set_ylim(bottom=0)
        axis.set_ylabel("MiB resident")
        axis.set_xticks([turn / 2, (turn + len(live)) / 2], ["load rises, stays, falls", "low tide"])
        axis.tick_params(axis="x", length=0)
        axis.spines[["top", "right"]].set_visible(False)
        for value, name, colour in spread(ends, top=axis.get_ylim()[1]):
            where = ("axes fraction", "data")
            axis.annotate(name, (1.01, value), xycoords=where, color=colour, va="center", fontsize=9)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None}, facecolor="white")
    text = out.getvalue()
    return text[text.index("<svg") :]


def spread(ends: Sequence[tuple[float, str, str]], top: float) -> list[tuple[float, str, str]]:
    """The labels' heights, moved up where two would lie on each other."""
    placed: list[tuple[float, str, str]] = []
    for value, name, colour in sorted(ends):
        least = placed[-1][0] + top * 0.075 if placed else 0
        placed.append((max(value, least), name, colour))
    return placed


def page(drawn: str, lines: Sequence[str], words: str) -> str:
    """One file that needs no network."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>temporal-slab: high tide and low</title>
<style>
  body {{ margin: 0 auto; max-width: 60rem; padding: 2rem 1.25rem; background: #fff; color: #1d2330;
         font: 16px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }}
  svg {{ display: block; height: auto; max-width: 100%; }}
  pre {{ overflow-x: auto; font-size: .85rem; }}
</style>
</head>
<body>
<h1>High tide and low</h1>
<p>Resident memory of one server under several allocators while its load rises, stays, falls, and after.</p>
{drawn}
<pre>{html.escape(chr(10).join(lines))}</pre>
<p>{html.escape(words)}</p>
</body>
</html>
"""
