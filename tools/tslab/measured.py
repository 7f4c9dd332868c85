"""Numbers measured elsewhere, read from a file: two series of runs, the baseline first.

CSV   a header of two names, then one pair of numbers a line; lines that start with # are comments
JSON  {"baseline": [..], "treatment": [..]}, any two names, in this order
text  a log in which two series stand as "Run 1: 42.93 M ops/s", "Run 2: …", each starting again at 1
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path

from tslab.errors import LabError

_RUN = re.compile(r"\bRun\s+(\d+):\s*(\d[\d,]*(?:\.\d+)?)", re.IGNORECASE)


@dataclass(frozen=True)
class TwoSeries:
    names: tuple[str, str]
    baseline: tuple[float, ...]
    treatment: tuple[float, ...]


def read(path: Path) -> TwoSeries:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"cannot read {path}: {error}") from error
    found = _json(text) if text.lstrip().startswith("{") else _runs(text) or _csv(text)
    if found is None:
        raise LabError(
            f"{path} holds no two series: give a CSV with a header of two names, a JSON object of two lists, "
            f"or a log with 'Run 1: NUMBER' twice"
        )
    for name, values in zip(found.names, (found.baseline, found.treatment), strict=True):
        if len(values) < 2:
            raise LabError(
                f"{path}: series '{name}' has {len(values)} run(s); a verdict needs two or more on each side"
            )
        if not all(1e-100 < value < 1e100 for value in values):  # their squares are finite, too
            raise LabError(f"{path}: series '{name}' has a value that is not above zero, or no number at all")
    return found


def _json(text: str) -> TwoSeries | None:
    try:
        data = json.loads(text)
        (first, a), (second, b) = data.items()
        return TwoSeries((first, second), tuple(map(float, a)), tuple(map(float, b)))
    except (ValueError, TypeError):
        return None


def _runs(text: str) -> TwoSeries | None:
    series: list[list[float]] = []
    for number, value in _RUN.findall(text):
        if int(number) == 1:
            series.append([])
        if series:
            series[-1].append(float(value.replace(",", "")))
    if len(series) != 2:
        return None
    return TwoSeries(("first series", "second series"), tuple(series[0]), tuple(series[1]))


def _csv(text: str) -> TwoSeries | None:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    rows = list(csv.reader(lines))
    if len(rows) < 2 or any(len(row) != 2 for row in rows):
        return None
    names, *pairs = rows
    try:
        # One side may have more runs than the other: its cell is then empty.
        a, b = ([float(pair[side]) for pair in pairs if pair[side].strip()] for side in (0, 1))
    except ValueError:
        return None
    return TwoSeries((names[0].strip(), names[1].strip()), tuple(a), tuple(b))
