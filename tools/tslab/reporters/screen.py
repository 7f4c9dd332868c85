"""Tables and lines that fit the screen: columns are dropped, text is shortened, and no figure is ever cut."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from tslab.findings import Finding, Severity

GAP = 2
# Each names both its colours, so that it can be read on dark screens and on light ones.
SEVERITY_STYLES = {
    Severity.NOTICE: "black on cyan",
    Severity.WARNING: "black on yellow",
    Severity.CRITICAL: "bold white on red",
}
_LEAST_TEXT = 8


@dataclass(frozen=True)
class Column:
    """`rank` 0 stays for ever; the highest rank is dropped first. Only `text` may be shortened."""

    title: str
    cell: Callable[[Any], str]
    rank: int = 0
    text: bool = False
    value: Callable[[Any], Any] | None = None  # the value to sort by; the cell where there is none
    least: int = _LEAST_TEXT  # of a text: as short as it may become
    ends: bool = False  # of a text: shortened in its middle, because names of one kind differ at their ends


@dataclass(frozen=True)
class Fitted:
    columns: tuple[Column, ...]
    widths: tuple[int, ...]
    dropped: tuple[str, ...]

    def line(self, cells: Sequence[str], style: str = "") -> Text:
        parts = [
            _padded(cell, width, column.ends) if column.text else cell.rjust(width)
            for column, width, cell in zip(self.columns, self.widths, cells, strict=True)
        ]
        return Text((" " * GAP).join(parts).rstrip(), style=style, no_wrap=True)

    def head(self) -> Text:
        return self.line([column.title for column in self.columns], "bold")

    def row(self, row: Any) -> Text:
        return self.line([column.cell(row) for column in self.columns])


def fit(columns: Sequence[Column], rows: Sequence[Any], width: int) -> Fitted:
    """Drops the columns of the highest rank until the rest fits; the last text column takes what is left over."""
    kept = list(columns)
    cells = {column: [column.title, *(column.cell(row) for row in rows)] for column in columns}
    wanted = {column: max(map(cell_len, cells[column])) for column in columns}
    least = {column: min(wanted[column], column.least) if column.text else wanted[column] for column in columns}

    def needs(sizes: dict[Column, int]) -> int:
        return sum(sizes[column] for column in kept) + GAP * (len(kept) - 1)

    while needs(least) > width and any(column.rank for column in kept):
        last = max(range(len(kept)), key=lambda index: (kept[index].rank, index))
        del kept[last]
    spare = width - needs(least)
    widths = []
    for column in kept:
        more = min(wanted[column] - least[column], max(0, spare))
        spare -= more
        widths.append(least[column] + more)
    dropped = tuple(column.title for column in columns if column not in kept)
    return Fitted(tuple(kept), tuple(widths), dropped)


def shorten(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…"


def shorten_middle(text: str, width: int) -> str:
    """Both ends of a text that is too long, with three dots between them."""
    if cell_len(text) <= width:
        return text
    room = width - 1 - width // 2
    back = ""
    while cell_len(longer := text[-len(back) - 1 :]) <= room:
        back = longer
    return shorten(text, width - cell_len(back)) + back


def _padded(cell: str, width: int, ends: bool) -> str:
    shown = shorten_middle(cell, width) if ends else shorten(cell, width)
    return shown + " " * (width - cell_len(shown))


def joined(parts: Sequence[str], width: int, indent: str = "") -> list[str]:
    """Parts with a dot between them, on as many lines as they need; no part is broken."""
    lines: list[str] = []
    for part in parts:
        if lines and cell_len(lines[-1]) + 3 + cell_len(part) <= width:
            lines[-1] += f" · {part}"
        else:
            lines.append((indent if lines else "") + part)
    return lines


def finding_line(finding: Finding, width: int) -> Text:
    """One line: as many whole words as it has room for."""
    tag = f" {finding.severity.name.lower()} "
    room = width - len(tag) - 1
    says = textwrap.shorten(finding.says, room, placeholder=" …") if cell_len(finding.says) > room else finding.says
    return Text.assemble((tag, SEVERITY_STYLES[finding.severity]), " ", says, no_wrap=True)


def finding_lines(finding: Finding, width: int) -> list[Text]:
    """The whole of it, with what to do, wrapped between words."""
    tag = f" {finding.severity.name.lower()} "
    first, *rest = textwrap.wrap(finding.says, width - len(tag) - 1) or [""]
    indent = " " * 4
    lines = [Text.assemble((tag, SEVERITY_STYLES[finding.severity]), " ", first)]
    if rest:
        lines += [Text(f"{indent}{line}") for line in textwrap.wrap(" ".join(rest), width - len(indent))]
    lines += [
        Text(f"{indent}{line}", style="italic")
        for line in textwrap.wrap(f"→ {finding.advice.strip()}", width - len(indent), subsequent_indent="  ")
    ]
    return lines


def sparkline(values: Sequence[float], width: int, most: float | None = None) -> str:
    """The last `width` values as bars of eight heights, the lowest at 0."""
    marks = "▁▂▃▄▅▆▇█"
    shown = list(values)[-width:]
    top = most if most is not None else max(shown, default=0)
    return "".join(marks[min(7, max(0, int(value / top * 7.999)))] if top > 0 else marks[0] for value in shown)


def show(console: Console, lines: Sequence[Text]) -> None:
    for line in lines:
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def redraw(console: Console, lines: Sequence[Text], first: bool) -> None:
    """In place: each line is written over the old one, and what is left below is wiped, so nothing flickers."""
    if not console.is_terminal:
        if not first:
            console.print()
        show(console, lines)
        return
    with console.capture() as capture:
        show(console, list(lines)[: console.height - 1])
    body = capture.get().replace("\n", "\x1b[K\n")
    console.file.write(("\x1b[2J" if first else "") + "\x1b[H" + body + "\x1b[J")
    console.file.flush()
