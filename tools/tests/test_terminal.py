"""ps, stats, doctor and top as a person sees them: in a terminal of 80 x 24, of 100 x 30 and a wide one, by keys, with
nothing cut, on dark screens and on light ones."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import REPOSITORY
from rich.text import Text
from terminal import Terminal, opened

from tslab import preload
from tslab.reporters.quantities import short_bytes, short_count, short_time
from tslab.reporters.screen import Column, fit, joined, sparkline

LIBRARY = Path(os.environ.get("LIBRARY_UNDER_TEST", REPOSITORY / "build" / "release" / "libtslab.so"))

pytestmark = [
    pytest.mark.usefixtures("clean_environment"),
    pytest.mark.skipif(not LIBRARY.exists(), reason="build/release/libtslab.so is not built"),
]

SIZES = [(80, 24), (100, 30), (200, 50)]
# xterm's colours. `default` is the scheme's own.
PALETTE = {
    "black": 0x000000, "red": 0xCD0000, "green": 0x00CD00, "brown": 0xCDCD00, "blue": 0x0000EE, "magenta": 0xCD00CD,
    "cyan": 0x00CDCD, "white": 0xE5E5E5,
}  # fmt: skip
SCHEMES = {"dark": (0xE5E5E5, 0x000000), "light": (0x000000, 0xFFFFFF)}  # of text, and behind it
LEAST_CONTRAST = 4  # web pages ask for 4.5 of small text, and for 3 of bold text and of graphics
PROGRAM = (
    "import random, time\nwhile True:\n    keep = [bytearray(random.randrange(1, 40000)) for _ in range(900)]\n"
    "    time.sleep(.05)"
)


@pytest.fixture(scope="module")
def busy() -> Iterator[int]:
    environment = preload.environment(LIBRARY.resolve(), [])
    child = subprocess.Popen([sys.executable, "-S", "-c", PROGRAM], env=environment)
    segment = Path(f"/dev/shm/tslab.{child.pid}")
    try:
        end = time.monotonic() + 60
        while not segment.exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(1.2)  # a second publication, so that there are rates
        yield child.pid
    finally:
        child.kill()
        child.wait()
        segment.unlink(missing_ok=True)


def uncut(terminal: Terminal, text_starts: str = "") -> None:
    """No figure ends in an ellipsis; behind `text_starts`, which heads the last column, there is text that may."""
    head = next((line for line in terminal.lines if text_starts and text_starts in line), "")
    limit = head.find(text_starts) if head else terminal.screen.columns
    for line in terminal.lines[2:]:  # the first two name a command, which may be longer than any screen
        assert not re.search(r"\d\S?…", line[:limit]), terminal.text


def luminance(colour: int) -> float:
    """Of 0xRRGGBB, as WCAG 2 defines it."""
    parts = [(colour >> shift & 0xFF) / 255 for shift in (16, 8, 0)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def readable(terminal: Terminal) -> None:
    """Each character stands out from what is behind it, in either scheme."""
    pairs = {
        (char.bg, char.fg) if char.reverse else (char.fg, char.bg)
        for line in terminal.screen.buffer.values()
        for char in line.values()
        if char.data.strip()
    }
    for scheme, own in SCHEMES.items():
        for fore, back in pairs:
            colours = PALETTE.get(fore, own[0]), PALETTE.get(back, own[1])
            assert {fore, back} <= {*PALETTE, "default"}, "not one of the eight that every scheme has"
            low, high = sorted(map(luminance, colours))
            assert (high + 0.05) / (low + 0.05) >= LEAST_CONTRAST, f"{fore} on {back}, {scheme}"


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_ps_and_stats_fit(busy: int, columns: int, rows: int) -> None:
    with opened(["ps"], columns, rows) as terminal:
        assert terminal.wait() == 0
        assert any(line.split()[:1] == [str(busy)] for line in terminal.lines), terminal.text
        uncut(terminal, "COMMAND")
        readable(terminal)
    with opened(["stats", str(busy)], columns, rows) as terminal:
        assert terminal.wait() == 0
        assert terminal.lines[0].startswith(f"process {busy}, "), terminal.text  # nothing scrolled away
        for words in ("memory  live", "calls   ", "now     ", "classes by live bytes", "--all"):
            assert words in terminal.text
        assert re.search(r"^ *SIZE +LIVE +BLOCKS", terminal.text, re.MULTILINE)
        uncut(terminal)
        readable(terminal)


def test_every_table_fits_too(busy: int) -> None:
    with opened(["stats", "--all", str(busy)], 80, 200) as terminal:
        assert terminal.wait() == 0
        assert "paths: the ways that calls took" in terminal.text
        uncut(terminal)
        assert "…" not in terminal.text, terminal.text


def test_stats_redraws_in_place(busy: int) -> None:
    with opened(["stats", "--watch", "0.3", str(busy)]) as terminal:
        terminal.until(lambda: "--all" in terminal.text)
        first = terminal.text
        terminal.until(lambda: terminal.text != first and "--all" in terminal.text)
        assert terminal.lines[0].startswith(f"process {busy}, ")
        terminal.resize(100, 30)
        terminal.until(lambda: any(len(line) > 80 for line in terminal.lines))
        os.kill(terminal.pid, signal.SIGINT)
        assert terminal.wait() == 0


@pytest.mark.parametrize(("columns", "rows"), [(60, 40), *SIZES])
def test_doctor_wraps_between_words(busy: int, columns: int, rows: int) -> None:
    with opened(["doctor", str(busy), "--for", "0"], columns, rows) as terminal:
        assert terminal.wait() in (0, 1)
        uncut(terminal)
        readable(terminal)


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_top_by_keys(busy: int, columns: int, rows: int) -> None:
    with opened(["top", "--every", "0.25"], columns, rows) as terminal:

        def until(words: str) -> None:
            terminal.until(lambda: words in terminal.text)
            uncut(terminal, "COMMAND")
            readable(terminal)

        until("COMMAND")
        assert len(terminal.lines[-1]) == 0  # no line scrolled: the last one stays free
        terminal.keys(f"/{busy}\r")
        until(f"filter '{busy}'")
        terminal.keys("\r")
        until("SIZE")
        views = {"3": "no epoch is open", "4": "SLOW TIME", "5": "FAILED/S", "6": "profile.md", "\t": "COMMAND"}
        for key, words in views.items():
            terminal.keys(key)
            until(words)
        terminal.keys(f"/{busy}\r\r")
        until("LIVE▼")
        terminal.keys("\x1b[C")
        until("BLOCKS▼")
        terminal.keys("r")
        until("BLOCKS▲")
        terminal.keys(" ")
        until("paused")
        still = terminal.text
        terminal.pump(0.6)
        assert terminal.text == still
        terminal.keys(" ?")
        until("choose a row")
        terminal.keys("x/zzz\r")
        until("no row contains 'zzz'")
        terminal.keys("\x1b")
        until("BLOCKS▲")
        assert re.search("[▁-█]{2}", terminal.text)
        terminal.resize(60, 20)
        terminal.until(lambda: all(len(line) <= 60 for line in terminal.lines) and "SIZE" in terminal.text)
        terminal.keys("q")
        assert terminal.wait() == 0


def test_top_outlives_its_process(busy: int) -> None:
    environment = preload.environment(LIBRARY.resolve(), [])
    child = subprocess.Popen([sys.executable, "-S", "-c", PROGRAM], env=environment)
    segment = Path(f"/dev/shm/tslab.{child.pid}")
    end = time.monotonic() + 60
    while not segment.exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    with opened(["top", str(child.pid), "--every", "0.25"]) as terminal:
        terminal.until(lambda: "SIZE" in terminal.text)
        child.kill()
        child.wait()
        segment.unlink(missing_ok=True)
        terminal.until(lambda: "it has ended; these are its last figures" in terminal.text)
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.wait() == 128 + signal.SIGTERM


def test_colours_are_left_out_where_they_are_not_wanted(busy: int) -> None:
    plain = subprocess.run(
        [sys.executable, "-m", "tslab.cli", "stats", str(busy)], capture_output=True, text=True, check=True
    ).stdout
    assert "\x1b" not in plain
    assert "classes by live bytes" in plain


# ---- what it is made of ----------------------------------------------------------------------------------------------


def test_columns_are_dropped_and_text_is_shortened() -> None:
    columns = [
        Column("A", lambda row: row[0]),
        Column("B", lambda row: row[1], rank=2),
        Column("C", lambda row: row[2], rank=1),
        Column("TEXT", lambda row: row[3], text=True),
    ]
    row = ("123456", "12", "1234", "a long command line")
    assert fit(columns, [row], 100).dropped == ()
    narrow = fit(columns, [row], 25)
    assert narrow.dropped == ("B",)
    assert narrow.row(row).plain == "123456  1234  a long com…"
    assert fit(columns, [row], 1).dropped == ("B", "C")
    assert isinstance(narrow.head(), Text)
    assert joined(["aa", "bb", "cc"], 7) == ["aa · bb", "cc"]


def test_short_forms() -> None:
    assert [short_bytes(n) for n in (0, 1023, 1024, 1_048_000, 15 << 30)] == ["0", "1.0K", "1.0K", "1.0M", "15.0G"]
    assert [short_count(n) for n in (0, 99_999, 100_000, 515_844_185)] == ["0", "99,999", "100.0k", "515.8M"]
    assert [short_time(n) for n in (None, 0, 2e9, 300e9, 1e15)] == ["–", "0ns", "2s", "5min", "12d"]
    assert sparkline([0, 1, 2, 4], 3) == "▂▄█"
    assert sparkline([0, 0], 5) == "▁▁"
