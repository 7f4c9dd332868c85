"""A process on one screen: its findings, its memory and calls, the largest classes and labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from tslab import process as processes
from tslab.figures import RESIDENT, Document
from tslab.findings import Finding, slab_bytes
from tslab.rates import Between
from tslab.reporters.figures import count, header, size
from tslab.reporters.quantities import (
    bytes_text,
    rate_text,
    share_text,
    short_bytes,
    short_count,
    signed,
)
from tslab.reporters.screen import Column, finding_line, fit, joined, shorten

MOST_FINDINGS = 3
MOST_ROWS = 10  # of a table where the screen does not say how much room there is
LARGE = "large"  # instead of a size: all blocks above the largest class


def summary(
    found: Document, before: Document | None, problems: Sequence[Finding], width: int, height: int | None
) -> list[Text]:
    """`height` is None where there is no screen to fit."""
    lines = [Text(shorten(line, width), style="bold" if index == 0 else "") for index, line in enumerate(_head(found))]
    lines += _problems(problems, width, found)
    lines += [Text(line) for line in overview(found, width)]
    between = Between(before, found) if before else None
    lines += [Text(line) for line in now(found, between, width)]
    tables = [
        (title, columns, rows)
        for title, columns, rows in (
            ("classes by live bytes", CLASSES, class_rows(found, between)),
            ("labels of epochs by live bytes", LABELS, label_rows(found, between)),
        )
        if rows
    ]
    rows_left = None if height is None else height - len(lines) - sum(2 for _ in tables) - 1
    shares = _shares([len(rows) for _, _, rows in tables], rows_left)
    more = []
    for (title, columns, rows), share in zip(tables, shares, strict=True):
        fitted = fit(columns, rows[:share], width)
        if share:
            lines += [Text(title, style="italic"), fitted.head(), *map(fitted.row, rows[:share])]
        if len(rows) > share:
            more.append(_more(len(rows) - share, title.split()[0]))
    lines += [Text(line, style="dim") for line in joined([*more, "paths, epochs, locks, threads: --all"], width)]
    return lines if height is None else lines[:height]


def _more(number: int, what: str) -> str:
    singular = {"classes": "class", "labels": "label", "findings": "finding"}
    return f"{number:,} more {singular[what] if number == 1 else what}"


def _shares(wanted: list[int], room: int | None) -> list[int]:
    """How many rows each table gets: as many as it has, and half each where there is not enough room."""
    if room is None:
        return [min(own, MOST_ROWS) for own in wanted]
    shares = [min(own, max(0, room) // max(1, len(wanted))) for own in wanted]
    for index, own in enumerate(wanted):
        shares[index] += max(0, min(own - shares[index], room - sum(shares)))
    return shares


def _head(found: Document) -> list[str]:
    """One line; the second one of the header only where the figures are old or the process is gone."""
    first, second, *rest = header(found)
    saved = found.get("state") == processes.FILE
    return [f"{first} · {second.partition(' · ')[0]}" if saved else first, *rest]


def _problems(problems: Sequence[Finding], width: int, found: Document) -> list[Text]:
    lines = [finding_line(finding, width) for finding in problems[:MOST_FINDINGS]]
    if problems:
        hidden = len(problems) - MOST_FINDINGS
        more = f"{_more(hidden, 'findings')}, and what to do: " if hidden > 0 else "what to do: "
        where = f"tslab doctor {found['pid']}" if found.get("state") != processes.FILE else "tslab doctor FILE"
        lines.append(Text(shorten(f"  {more}{where}", width), style="dim"))
    return lines


def overview(found: Document, width: int) -> list[str]:
    total, derived = found["process"], found["process"]["derived"]
    resident = size(total, RESIDENT) if total.get(RESIDENT) else "–"
    memory = [
        f"live {size(total, 'live_bytes')} in {count(total, 'live_blocks')} blocks",
        f"in use {size(total, 'in_use_bytes')}, {share_text(derived['live_share_of_in_use'])} live",
        f"resident {resident}", f"free {size(total, 'free_dirty_bytes')}", f"cached {size(total, 'cached_bytes')}",
        f"reserve {size(total, 'reserve_bytes')}", f"given back {size(total, 'returned_bytes')}",
    ]  # fmt: skip
    calls = [
        f"{short_count(total.get('allocations', 0))} allocations", f"{short_count(total.get('frees', 0))} frees",
        f"{share_text(derived['slow_share'])} slow", f"locks contended {share_text(derived['lock_contention_rate'])}",
    ]  # fmt: skip
    epochs = [
        f"{count(total, 'epochs_open')} open", f"{count(total, 'epochs_closing')} closing",
        f"{short_count(total.get('epochs_opened', 0))} opened", f"recycled {size(total, 'bytes_recycled')}",
    ]  # fmt: skip
    lines = [*_block("memory", memory, width), *_block("calls", calls, width)]
    return lines + _block("epochs", epochs, width) if total.get("epochs_opened") else lines


def _block(name: str, parts: Sequence[str], width: int) -> list[str]:
    """The parts beside their name, under each other where one line is too short."""
    return [f"{name if index == 0 else '':<8}{line}" for index, line in enumerate(joined(parts, width - 8))]


def now(found: Document, between: Between | None, width: int) -> list[str]:
    """Rates between the last two looks, or between the last two publications."""
    if between is None or not between.seconds:
        return []
    calls, frees = between.grown("allocations"), between.grown("frees")
    live = between.change("live_bytes") / between.seconds
    slow = share_text(between.grown("slow_allocations") / calls if calls else None)
    parts = [
        f"{rate_text(calls / between.seconds)} allocations", f"{rate_text(frees / between.seconds)} frees",
        f"{slow} slow", f"live {signed(bytes_text(live), live)}/s",
        f"given back {bytes_text(between.grown('returned_bytes') / between.seconds)}/s",
    ]  # fmt: skip
    if found["process"].get("epochs_opened"):
        parts.append(f"{rate_text(between.grown('epochs_opened') / between.seconds)} epochs")
    return _block("now", parts, width)


# ---- the two tables --------------------------------------------------------------------------------------------------


def class_rows(found: Document, between: Between | None) -> list[Document]:
    total = found["process"]
    rows = [dict(row) for row in found["classes"] if row.get("allocations") or row.get("slabs")]
    for row in rows:
        row["size"], row["held"] = row["object_size"], slab_bytes(row)
        row["rate"] = between.rate("live_bytes", "classes", row["object_size"]) if between else None
    if total.get("large_live_blocks"):
        live = total.get("large_live_bytes", 0)
        rows.append({
            "size": LARGE, "live_blocks": total["large_live_blocks"], "live_bytes": live, "held": live,
            "rate": between.rate("large_live_bytes") if between else None, "derived": {},
        })  # fmt: skip
    return sorted(rows, key=lambda row: -row.get("live_bytes", 0))


def label_rows(found: Document, between: Between | None) -> list[Document]:
    rows = [dict(row) for row in found["labels"] if row.get("opened", 1)]
    for row in rows:
        row["rate"] = between.rate("live_bytes", "labels", row["label"]) if between else None
        row["opens"] = between.rate("opened", "labels", row["label"]) if between else None
    return sorted(rows, key=lambda row: -row.get("live_bytes", 0))


def _share_of_held(row: Document) -> str:
    return share_text(row.get("live_bytes", 0) / row["held"]) if row.get("held") else "–"


def rate_of_bytes(row: Document) -> str:
    rate = row.get("rate")
    return "–" if rate is None else "0" if rate == 0 else signed(short_bytes(rate), rate)


def _share(name: str) -> dict[str, Any]:
    return {
        "cell": lambda row: share_text(row["derived"].get(name)),
        "value": lambda row: row["derived"].get(name),
    }


def _value(name: str) -> Any:
    return lambda row: row.get(name)


CLASSES = (
    Column(
        "SIZE", lambda row: row["size"] if row["size"] == LARGE else f"{row['size']:,}",
        value=lambda row: 1 << 40 if row["size"] == LARGE else row["size"],
    ),
    Column("LIVE", lambda row: short_bytes(row.get("live_bytes", 0)), value=_value("live_bytes")),
    Column("BLOCKS", lambda row: count(row, "live_blocks"), rank=1, value=_value("live_blocks")),
    Column("LIVE/S", rate_of_bytes, rank=3, value=_value("rate")),
    Column("HELD", lambda row: short_bytes(row["held"]), rank=2, value=_value("held")),
    Column("LIVE/HELD", _share_of_held, rank=2, value=lambda row: row.get("live_bytes", 0) / (row["held"] or 1)),
    Column(
        "ALLOCS", lambda row: short_count(row["allocations"]) if "allocations" in row else "–", rank=4,
        value=_value("allocations"),
    ),
    Column("SLOW", **_share("slow_share"), rank=5),
    Column(
        "REMOTE", lambda row: short_count(row["remote_frees"]) if "remote_frees" in row else "–", rank=6,
        value=_value("remote_frees"),
    ),
    Column("CONTENDED", **_share("lock_contention_rate"), rank=7),
)  # fmt: skip

LABELS = (
    Column("LABEL", lambda row: row.get("label", "") or "(none)", text=True, ends=True),
    Column("LIVE", lambda row: short_bytes(row.get("live_bytes", 0))),
    Column("LIVE/S", rate_of_bytes, rank=3),
    Column("HELD", lambda row: short_bytes(row.get("committed_bytes", 0)), rank=2),
    Column("OPEN", lambda row: count(row, "open"), rank=1),
    Column("OPENED", lambda row: short_count(row.get("opened", 0)), rank=4),
    Column("RECYCLED", lambda row: short_bytes(row.get("bytes_recycled", 0)), rank=5),
    Column("REFUSED", lambda row: short_count(row.get("refused", 0)), rank=6),
    Column("SLOW", lambda row: share_text(row["derived"].get("slow_share")), rank=7),
    Column("CONTENDED", lambda row: share_text(row["derived"].get("lock_contention_rate")), rank=8),
)
