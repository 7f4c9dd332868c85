"""The views of `tslab top`, their order, and the effect of keys. This module touches no terminal."""

from __future__ import annotations

import textwrap
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.text import Text

from tslab.commands import ps
from tslab.commands.profile import name_of
from tslab.commands.ps import NOW_NS
from tslab.errors import Unreadable
from tslab.figures import RESIDENT, Document, ratio
from tslab.findings import findings
from tslab.looks import Look
from tslab.rates import Between, same_life
from tslab.reporters.quantities import (
    share_text,
    short_bytes,
    short_count,
    short_interval,
    short_rate,
    short_time,
    signed,
)
from tslab.reporters.screen import Column, finding_line, fit, joined, shorten, sparkline
from tslab.reporters.summary import CLASSES, class_rows
from tslab.sites import HOW_TO_START, Site, by_name, profile_of
from tslab.symbolize import Symbolizer

Rows = list[Any]
HISTORY = 240
MINUTE_S = 60.0
HELP = (
    "1 to 6, Tab   the views: processes, classes, epochs, tails, contention, sites",
    "↑ ↓ j k       choose a row; Page keys, Home and End go further",
    "Enter         look into the chosen process; Backspace goes back to all",
    "← →           sort by another column; r turns the order",
    "/             show only rows that contain a text; Enter keeps it, Esc drops it",
    "Space         pause, and go on",
    "+ -           look more often, or less",
    "q             leave",
)


@dataclass
class Seen:
    """The record of one process: its last two different publications, and live and resident memory over time."""

    document: Document
    before: Document | None = None
    live: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    resident: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    at: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))  # of these, on CLOCK_MONOTONIC
    symbolizer: Symbolizer | None = None  # of this execution, once its call sites were looked at

    def take(self, document: Document, before: Document | None) -> None:
        if not same_life(self.document, document):
            self.symbolizer = None
            self.live.clear()
            self.resident.clear()
            self.at.clear()
            self.before = before
        elif document.get("snapshot") != self.document.get("snapshot"):
            self.before = self.document
        elif self.before is None:
            self.before = before
        self.document = document
        self.live.append(document["process"].get("live_bytes", 0))
        self.resident.append(document["process"].get(RESIDENT, 0))
        self.at.append(time.monotonic())

    def change(self) -> float | None:
        """How live memory changed within the last minute that was watched, per minute; None for a single look."""
        first = next(index for index, at in enumerate(self.at) if at >= self.at[-1] - MINUTE_S)
        seconds = self.at[-1] - self.at[first]
        return (self.live[-1] - self.live[first]) * MINUTE_S / seconds if seconds > 0 else None

    @property
    def between(self) -> Between | None:
        """None where nothing is published now, so that nothing happens."""
        fresh = self.document.get("age_ns", 0) < NOW_NS
        return Between(self.before, self.document) if self.before and fresh else None


# ---- views -----------------------------------------------------------------------------------------------------------


def _epochs(seen: Seen) -> Rows:
    return list(seen.document["epochs"])


def _tails(seen: Seen) -> Rows:
    between = seen.between
    rows = [dict(row) for row in seen.document["paths"] if row.get("entries")]
    slow = sum(row.get("wall_ns_sum", 0) for row in rows if row["name"] != "fast")
    for row in rows:
        row["rate"] = between.rate("entries", "paths", row["name"]) if between else 0.0
        row["share"] = None if row["name"] == "fast" or not slow else row.get("wall_ns_sum", 0) / slow
    return rows


# The loops of a class, with the counters of their tries and of their failures.
_CAS = (
    ("malloc", "slab_take_attempts", "slab_take_cas_retries"),
    ("free", "slab_push_attempts", "slab_push_cas_retries"),
    ("adopt", "slab_adopt_attempts", "slab_adopt_failures"),
)


def _contention(seen: Seen) -> Rows:
    between, document = seen.between, seen.document
    seconds = (between.seconds if between else None) or 0.0
    rows: Rows = []

    def add(what: str, section: str, key: object, row: Document, tried: str, failed: str, waited: str | None) -> None:
        grown = between.grown if between and seconds else (lambda *_: 0)
        fails, tries = grown(failed, section, key), grown(tried, section, key)
        total = row.get(tried, 0) + (row.get(failed, 0) if waited is not None else 0)
        whole = tries + fails if waited is not None else tries
        rows.append({
            "what": what, "tries": whole / seconds if seconds else 0.0, "fails": fails / seconds if seconds else 0.0,
            "now": fails / whole if whole else None, "ever": row.get(failed, 0) / total if total else None,
            "total": row.get(failed, 0),
            "waiting": grown(waited, section, key) / 1e9 / seconds if waited and seconds else None,
        })  # fmt: skip

    for row in document["locks"]:
        if row.get("fast") or row.get("contended"):
            add(f"lock: {row['name']}", "locks", row["name"], row, "fast", "contended", "wait_ns")
    for row in document["classes"]:
        size = row["object_size"]
        for name, tried, failed in _CAS:
            if row.get(failed):
                add(f"CAS: {name} {size:,}", "classes", size, row, tried, failed, None)
    return rows


def _sites(seen: Seen) -> Rows:
    """Raises Unreadable for a profile that fails a check."""
    held = _held_by_name(seen, seen.document)
    between = seen.between
    seconds = between.seconds if between else None
    earlier = {name: site.live_bytes for name, site in _held_by_name(seen, between.before)} if between else {}
    total = sum(site.live_bytes for _, site in held)
    return [
        {
            "name": name, "live": site.live_bytes, "held": site.held, "blocks": site.live_blocks,
            "share": ratio(site.live_bytes, total), "allocated": site.allocated_bytes,
            "change": (site.live_bytes - earlier.get(name, 0)) * MINUTE_S / seconds if seconds else None,
        }
        for name, site in held
    ]  # fmt: skip


def _held_by_name(seen: Seen, document: Document) -> list[tuple[str, Site]]:
    if not document["profiles"]:
        return []
    profile = profile_of(document)
    symbolizer = seen.symbolizer = seen.symbolizer or Symbolizer(document["pid"])
    symbolizer.learn(address for site in profile.sites for address in site.stack)
    return by_name(profile, lambda site: name_of(site, symbolizer))


def _pinned(row: Document) -> float | None:
    return row.get("slabs_pinned", 0) / row["slabs"] if row.get("slabs") else None


def _budget(row: Document) -> str:
    return short_bytes(row["budget_bytes"]) if row.get("budget_bytes") else "none"


EPOCHS = (
    Column("LABEL", lambda row: row.get("label", "") or "(none)", text=True, ends=True),
    Column("STATE", lambda row: {1: "open", 2: "closing"}.get(row.get("state", 0), "?"), rank=1),
    Column("AGE", lambda row: short_time(row.get("age_ns")), rank=1, value=lambda row: row.get("age_ns", 0)),
    Column("LIVE", lambda row: short_bytes(row.get("live_bytes", 0)), value=lambda row: row.get("live_bytes", 0)),
    Column(
        "HELD", lambda row: short_bytes(row.get("committed_bytes", 0)), rank=2,
        value=lambda row: row.get("committed_bytes", 0),
    ),
    Column("PINNED", lambda row: share_text(_pinned(row)), rank=3, value=_pinned),
    Column("INSIDE", lambda row: short_count(row.get("threads_inside", 0)), rank=4,
           value=lambda row: row.get("threads_inside", 0)),
    Column("BLOCKS", lambda row: short_count(row.get("live_blocks", 0)), rank=5,
           value=lambda row: row.get("live_blocks", 0)),
    Column("BUDGET", _budget, rank=6, value=lambda row: row.get("budget_bytes", 0)),
    Column("EPOCH", lambda row: str(row["epoch"]), rank=7, value=lambda row: row["epoch"]),
)  # fmt: skip


def _time(name: str) -> Callable[[Document], str]:
    return lambda row: short_time(row["derived"].get(name))


def _time_value(name: str) -> Callable[[Document], float]:
    return lambda row: row["derived"].get(name) or 0


TAILS = (
    Column("PATH", lambda row: row["name"], text=True),
    Column("CALLS/S", lambda row: short_rate(row["rate"]), rank=3, value=lambda row: row["rate"] or 0),
    Column("SLOW TIME", lambda row: share_text(row["share"]), rank=2, value=lambda row: row["share"] or 0),
    Column("P50", _time("p50_ns"), rank=1, value=_time_value("p50_ns")),
    Column("P99", _time("p99_ns"), value=_time_value("p99_ns")),
    Column("P99.9", _time("p999_ns"), rank=4, value=_time_value("p999_ns")),
    Column("LONGEST", lambda row: short_time(row.get("wall_ns_max")), value=lambda row: row.get("wall_ns_max", 0)),
    Column("FOR LOCKS", lambda row: share_text(row["derived"]["lock_wait_share"]), rank=5,
           value=lambda row: row["derived"]["lock_wait_share"] or 0),
    Column("MEAN WAIT", _time("mean_wait_ns"), rank=6, value=_time_value("mean_wait_ns")),
    Column("CALLS", lambda row: short_count(row["entries"]), rank=7, value=lambda row: row["entries"]),
)  # fmt: skip

CONTENTION = (
    Column("WHAT", lambda row: row["what"], text=True),
    Column("TRIES/S", lambda row: short_rate(row["tries"]), rank=3, value=lambda row: row["tries"]),
    Column("FAILED/S", lambda row: short_rate(row["fails"]), value=lambda row: row["fails"]),
    Column("RATE", lambda row: share_text(row["now"]), value=lambda row: row["now"] or 0),
    Column("WAITING", lambda row: "–" if row["waiting"] is None else f"{row['waiting']:.2f}", rank=2,
           value=lambda row: row["waiting"] or 0),
    Column("EVER", lambda row: share_text(row["ever"]), rank=4, value=lambda row: row["ever"] or 0),
    Column("FAILED", lambda row: short_count(row["total"]), rank=5, value=lambda row: row["total"]),
)  # fmt: skip


def _change(row: Document) -> str:
    return "–" if row["change"] is None else signed(short_bytes(row["change"]), row["change"])


SITES = (
    Column("LIVE", lambda row: short_bytes(row["live"]), value=lambda row: row["live"]),
    Column("95 % RANGE", lambda row: short_interval(row["held"]), rank=2,
           value=lambda row: row["held"].most if row["held"] else None),
    Column("SHARE", lambda row: share_text(row["share"]), rank=3, value=lambda row: row["share"]),
    Column("CHANGE/MIN", _change, rank=1, value=lambda row: row["change"]),
    Column("BLOCKS", lambda row: short_count(row["blocks"]), rank=4, value=lambda row: row["blocks"]),
    Column("ALLOCATED", lambda row: short_bytes(row["allocated"]), rank=5, value=lambda row: row["allocated"]),
    Column("CALL SITE", lambda row: row["name"], text=True, least=30),
)  # fmt: skip


@dataclass(frozen=True)
class View:
    name: str
    columns: tuple[Column, ...]
    sort: str  # the column's title
    rows: Callable[[Seen], Rows] | None  # None: of all processes


VIEWS = (
    View("processes", ps.COLUMNS, "LIVE", None),
    View("classes", CLASSES, "LIVE", lambda seen: class_rows(seen.document, seen.between)),
    View("epochs", EPOCHS, "LIVE", _epochs),
    View("tails", TAILS, "SLOW TIME", _tails),
    View("contention", CONTENTION, "FAILED/S", _contention),
    View("sites", SITES, "LIVE", _sites),
)


# ---- what the keys change --------------------------------------------------------------------------------------------


@dataclass
class Top:
    pid: int | None = None
    view: int = 0
    every_s: float = 1.0
    paused: bool = False
    help: bool = False
    typing: bool = False
    filter: str = ""
    chosen: int = 0
    turned: bool = False
    done: bool = False
    message: str = ""
    refused: str = ""  # the check that the figures of the view failed
    sorts: dict[int, str] = field(default_factory=dict)
    seen: dict[int, Seen] = field(default_factory=dict)
    rows: list[ps.Row] = field(default_factory=list)
    page: int = 10

    def key(self, key: str) -> None:
        if self.typing:
            self._type(key)
        elif self.help:
            self.help = False
        elif key in ("q", "Q"):
            self.done = True
        elif key in ("h", "?"):
            self.help = True
        elif key == "/":
            self.typing, self.filter = True, ""
        elif key == " ":
            self.paused = not self.paused
        elif key in "123456" and len(key) == 1:
            self._show(int(key) - 1)
        elif key == "tab":
            self._show((self.view + 1) % len(VIEWS))
        elif key in ("left", "right"):
            self._sort(1 if key == "right" else -1)
        elif key == "r":
            self.turned = not self.turned
        elif key in ("+", "="):
            self.every_s = max(0.25, self.every_s / 2)
        elif key == "-":
            self.every_s = min(60.0, self.every_s * 2)
        elif key in ("enter", "backspace", "escape"):
            self._enter(key)
        else:
            self._move(key)

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.typing = False
            self.filter = "" if key == "escape" else self.filter
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1:
            self.filter += key
        self.chosen = 0

    def _show(self, view: int) -> None:
        if view and self.pid is None:
            shown = self.shown(VIEWS[0])
            self.pid = shown[min(self.chosen, len(shown) - 1)].pid if shown and not self.view else None
        if view and self.pid is None:
            self.message = "choose a process first: ↑ ↓ and Enter"
            return
        self.view, self.chosen, self.turned, self.filter, self.message = view, 0, False, "", ""

    def _enter(self, key: str) -> None:
        if key == "enter" and self.view == 0:
            shown = self.shown(VIEWS[0])
            if shown:
                self.pid = shown[min(self.chosen, len(shown) - 1)].pid
                self._show(1)
        elif key == "escape" and self.filter:
            self.filter = ""
        elif key != "enter" and self.view:
            self._show(0)
            self.pid = None

    def _move(self, key: str) -> None:
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -self.page, "pagedown": self.page, "home": -(10**6),
                 "end": 10**6}  # fmt: skip
        count = len(self.shown(VIEWS[self.view]))
        self.chosen = max(0, min(count - 1, self.chosen + steps.get(key, 0)))

    def _sort(self, step: int) -> None:
        titles = [column.title for column in VIEWS[self.view].columns]
        here = titles.index(self.sorts.get(self.view, VIEWS[self.view].sort))
        self.sorts[self.view] = titles[(here + step) % len(titles)]

    def _of_process(self, rows: Callable[[Seen], Rows]) -> Rows:
        seen, self.refused = self.seen.get(self.pid or 0), ""
        try:
            return rows(seen) if seen else []
        except Unreadable as error:
            self.refused = str(error)
            return []

    def shown(self, view: View) -> Rows:
        """The rows of a view: those that the filter lets through, in order."""
        if view.rows is None:
            rows: Rows = list(self.rows)
        else:
            rows = self._of_process(view.rows)
        if self.filter:
            words = self.filter.casefold()
            rows = [row for row in rows if any(words in column.cell(row).casefold() for column in view.columns)]
        title = self.sorts.get(self.view, view.sort)
        column = next(column for column in view.columns if column.title == title)
        value = column.value or column.cell
        largest_first = column.value is not None
        keyed = [((own is None, own), row) for row in rows for own in (value(row),)]
        known = [pair for pair in keyed if not pair[0][0]]
        known.sort(key=lambda pair: pair[0][1], reverse=largest_first != self.turned)
        return [row for _, row in known] + [row for pair, row in keyed if pair[0]]


# ---- the screen ------------------------------------------------------------------------------------------------------


def screen(top: Top, width: int, height: int) -> list[Text]:
    view = VIEWS[top.view]
    lines = [_title(top, width), *_memory(top, width)]
    foot = _foot(top, width)
    if top.help:
        body = [Text(shorten(line, width)) for line in HELP]
    else:
        body = _table(top, view, width, max(2, height - len(lines) - len(foot)))
    blank = [Text("")] * max(0, height - len(lines) - len(body) - len(foot))
    return [*lines, *body, *blank, *foot][:height]


def _title(top: Top, width: int) -> Text:
    line = Text(no_wrap=True)
    for index, view in enumerate(VIEWS):
        line.append(f" {index + 1} {view.name} ", "reverse" if index == top.view else "")
    state = " paused " if top.paused else f"every {top.every_s:g} s"
    room = width - line.cell_len - len(state)
    if room > 0:
        line.append(" " * room)
        line.append(state, "black on yellow" if top.paused else "dim")
    return line


def _memory(top: Top, width: int) -> list[Text]:
    """Live against resident memory, both to the same scale, and the worst finding.

    Magenta is the one colour of the usual palettes that can be read on black and on white.
    """
    if top.view == 0:
        own = list(top.seen.values())
        name = f"{len(top.rows)} processes"
    else:
        own = [seen for pid, seen in top.seen.items() if pid == top.pid]
        name = f"{top.pid} " + (ps.short_command(own[0].document.get("command", "")) if own else "")
        if own and own[0].document["state"] in ("gone", "ended"):
            name = f"it has ended; these are its last figures: {name}"
    live, resident = _sums([seen.live for seen in own]), _sums([seen.resident for seen in own])
    bars = max(8, width - 20)
    most = max([*live[-bars:], *resident[-bars:], 1.0])
    lines = [Text(shorten(name, width), style="bold", no_wrap=True)]
    for title, values, style in (("live", live, "magenta"), ("resident", resident, "")):
        size = short_bytes(values[-1]) if values else "–"
        lines.append(Text.assemble(f"{title:<9}{size:>7}  ", (sparkline(values, bars, most), style), no_wrap=True))
    if top.view and own:
        worst = findings([Look(own[0].document, None)])[:1]
        lines += [finding_line(finding, width) for finding in worst]
    return lines


def _sums(series: Sequence[deque[float]]) -> list[float]:
    """The sums at each of the last looks; a process that came later counts from there on."""
    length = max(map(len, series), default=0)
    return [sum(own[len(own) - back] for own in series if len(own) >= back) for back in range(length, 0, -1)]


def _table(top: Top, view: View, width: int, height: int) -> list[Text]:
    rows = top.shown(view)
    if not rows:
        return [Text(line, style="italic") for line in textwrap.wrap(_nothing(top), width)][:height]
    top.chosen = max(0, min(top.chosen, len(rows) - 1))
    top.page = max(1, height - 1)
    first = max(0, min(top.chosen - top.page // 2, len(rows) - top.page))
    sort = top.sorts.get(top.view, view.sort)
    one_user = view.rows is not None or len({row.user for row in rows}) <= 1
    columns = [
        replace(column, title=f"{column.title}{'▲' if top.turned else '▼'}", rank=0) if column.title == sort else column
        for column in view.columns
        if column.title != "USER" or not one_user
    ]
    fitted = fit(columns, rows, width)
    lines = [fitted.head()]
    for index, row in enumerate(rows[first : first + top.page], first):
        line = fitted.row(row)
        if index == top.chosen:
            line.pad_right(max(0, width - line.cell_len))
            line.stylize("reverse")
        lines.append(line)
    return lines


def _nothing(top: Top) -> str:
    if top.filter:
        return f"no row contains '{top.filter}'"
    if top.refused:
        return top.refused
    return {
        0: "no process that you may read has figures: start one with `tslab run -- COMMAND`",
        2: "no epoch is open",
        4: "no lock was taken yet",
        5: f"no heap profile: {HOW_TO_START}",
    }.get(top.view, "nothing yet")


def _foot(top: Top, width: int) -> list[Text]:
    if top.typing:
        return [Text(shorten(f"/{top.filter}▏  Enter keeps it, Esc drops it", width), style="bold")]
    if top.message:
        return [Text(shorten(top.message, width), style="black on yellow")]
    parts = [f"filter '{top.filter}'"] if top.filter else []
    parts += ["↑↓ Enter choose", "←→ r sort", "/ filter", "Space pause", "? keys", "q leave"]
    return [Text(joined(parts, width)[0], style="dim")]
