"""The views of `tslab top` and `tslab stats`, from figures that are larger than any that healthy programs have."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
import segments
from rich.text import Text

from tslab.figures import Document, document
from tslab.process import Process
from tslab.reporters.quantities import bytes_text
from tslab.reporters.screen import Column, fit, shorten_middle
from tslab.reporters.summary import summary
from tslab.segment import of_bytes, read_layout, read_snapshot
from tslab.top import VIEWS, Seen, Top, screen

SIZES = [(80, 24), (100, 30), (200, 50)]
SECOND_NS = 10**9
TIB = 1 << 40
NAME = "/a/long/path/\\xff\\x1b[31m/program-whose-name-does-not-end-for-a-long-time --with=options"
NUMBERS = {view.name: number for number, view in enumerate(VIEWS)}


def look(tables: dict[str, list[dict[str, Any]]], second: int = 1) -> Document:
    tables = {"process": [{}], **tables}
    now = 1_700_000_000 * SECOND_NS + second * SECOND_NS
    raw = bytes(segments.make(segments.published(), tables, number=second, pid=os.getpid(), realtime_ns=now))
    layout = read_layout(of_bytes(raw), len(raw))
    process = Process(os.getpid(), "sleeping", NAME, 0, 0, frozenset(), os.getpid(), 0, False)
    return document(layout, read_snapshot(of_bytes(raw), layout), process)


def seen(*documents: Document) -> Top:
    top = Top(pid=os.getpid())
    one = Seen(documents[0])
    for found in documents:
        found["age_ns"] = 0
        one.take(found, None)
    top.seen[os.getpid()] = one
    return top


def rows_of(top: Top, name: str) -> list[Any]:
    return top.shown(VIEWS[NUMBERS[name]])


def huge(second: int = 1) -> Document:
    label = {"opened": 10**12, "open": 10**9, "live_bytes": TIB, "committed_bytes": 2 * TIB, "allocations": 10**15}
    epoch = {"live_bytes": TIB, "committed_bytes": 3 * TIB, "live_blocks": 10**12, "threads_inside": 1234,
             "budget_bytes": 9 * TIB, "slabs": 10**9, "slabs_pinned": 10**8, "label": "x" * 63}  # fmt: skip
    size = {"allocations": 10**15, "frees": 10**14, "live_blocks": 9 * 10**14, "live_bytes": 3 * TIB, "slabs": 10**9,
            "slab_take_attempts": 10**13, "slab_take_cas_retries": 10**12}  # fmt: skip
    path = {"wall_ns_sum": 10**18, "wall_ns_max": 10**17, "buckets": [0] * 20 + [10**13] + [0] * 26 + [10**12]}
    return look(
        {
            "process": [{"live_bytes": 7 * TIB, "in_use_bytes": 15 * TIB, "allocations": 2**63, "live_blocks": 10**12}],
            "class": [size | {"object_size": 16 << i} for i in range(40)],
            "label": [label | {"label": f"a-label-of-many-tenants-{i}"} for i in range(300)],
            "epoch": [epoch | {"epoch": 2**62 + i, "state": 1 + i % 2, "age_ns": 10**17} for i in range(500)],
            "path": [path | {"name": name, "entries": 10**14 * second} for name in ("fast", "map", "slab")],
            "lock": [{"name": "pages", "fast": 10**15 * second, "contended": 10**14 * second, "wait_ns": 10**18}],
            "profile": [{"interval_bytes": 4096, "samples": 9, "live_samples": 9}],
            "site": [
                {"site": i, "stack": f"{i:x}000", "live_bytes": TIB + i, "live_blocks": 10**12, "error_bytes": 1 << 33}
                for i in range(2, 300)
            ],
        },
        second,
    )


def uncut(lines: list[Text], width: int, height: int) -> None:
    """Every line fits, and an ellipsis never ends a figure: only names and sentences are shortened."""
    assert len(lines) <= height
    for line in lines:
        assert line.cell_len <= width, line.plain
        assert not re.search(r"(?<![\w-])[\d.,]+\w?…", line.plain), line.plain


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_views_of_huge_figures_fit(width: int, height: int) -> None:
    top = seen(huge(), huge(2))
    for number in range(1, len(VIEWS)):
        top.view = number
        lines = screen(top, width, height)
        uncut(lines, width, height)
        assert len(rows_of(top, VIEWS[number].name)) >= 1
        assert any("▼" in line.plain for line in lines)
    uncut(summary(huge(), None, [], width, height), width, height)


def test_contention_has_the_loops_that_retry() -> None:
    def at(second: int) -> Document:
        row = {"object_size": 64}
        for number, name in enumerate(("take", "push", "adopt"), 1):
            failed = "failures" if name == "adopt" else "cas_retries"
            row |= {f"slab_{name}_attempts": 100 * second, f"slab_{name}_{failed}": 10 * number * second}
        return look({"class": [row, {"object_size": 96, "slab_take_attempts": 5}]}, second)

    rows = rows_of(seen(at(1), at(2)), "contention")
    assert [(row["what"], row["tries"], row["fails"], row["now"], row["waiting"]) for row in rows] == [
        ("CAS: adopt 64", 100, 30, 0.3, None),
        ("CAS: free 64", 100, 20, 0.2, None),
        ("CAS: malloc 64", 100, 10, 0.1, None),
    ]


def test_call_sites_and_how_they_change() -> None:
    def at(second: int) -> Document:
        sites = [
            {"site": 2, "stack": "11000", "live_bytes": 3 << 20, "live_blocks": 3, "allocated_bytes": 9 << 20},
            {"site": 3, "stack": "12000", "live_bytes": second << 20, "error_bytes": 1 << 18},
        ]
        return look({"profile": [{"interval_bytes": 4096}], "site": sites}, second)

    top = seen(at(1), at(2))
    top.view = NUMBERS["sites"]
    rows = rows_of(top, "sites")
    assert [(row["name"], row["live"], row["change"], row["share"]) for row in rows] == [
        ("0x11000", 3 << 20, 0, 0.6), ("0x12000", 2 << 20, 60 << 20, 0.4),
    ]  # fmt: skip
    assert any("CALL SITE" in line.plain for line in screen(top, 80, 24))


def test_without_a_profile_the_view_says_how_to_get_one() -> None:
    top = seen(look({}))
    top.view = NUMBERS["sites"]
    said = " ".join(line.plain for line in screen(top, 80, 24))
    assert "tslab profile --interval=512K PID" in said
    assert "(docs/profile.md)" in said


def test_a_profile_that_lies_ends_nothing() -> None:
    top = seen(look({"profile": [{"interval_bytes": 1}], "site": [{"site": 2, "stack": "no address"}]}))
    top.view = NUMBERS["sites"]
    assert any("is no address" in line.plain for line in screen(top, 80, 24))


def test_names_that_differ_at_their_ends_stay_different() -> None:
    assert shorten_middle("tenant-1234567", 14) == "tenant-1234567"
    assert shorten_middle("tenant-1234567", 9) == "tena…4567"
    column = Column("LABEL", lambda row: row[0], text=True, ends=True)
    fitted = fit([column], [("a-long-name-1",), ("a-long-name-2",)], 8)
    assert [fitted.row((f"a-long-name-{n}",)).plain for n in (1, 2)] == ["a-lo…e-1", "a-lo…e-2"]


def test_labels_of_epochs_that_differ_at_their_ends_stay_different() -> None:
    label = "the-label-of-a-tenant-whose-name-does-not-end-for-a-long-time-"
    top = seen(look({"epoch": [{"epoch": 9 + i, "state": 1, "label": f"{label}{i}"} for i in range(2)]}))
    top.view = NUMBERS["epochs"]
    shown = [line.plain for line in screen(top, 80, 24)]
    assert sum(re.search(r"^the-.*….*-time-[01] ", line) is not None for line in shown) == 2, "\n".join(shown)


def test_tebibytes_are_said_as_such() -> None:
    assert [bytes_text(size) for size in (1023 << 30, TIB, 7 * TIB)] == ["1023.0 GiB", "1.0 TiB", "7.0 TiB"]
