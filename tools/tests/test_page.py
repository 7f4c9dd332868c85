"""The page of `tslab export` in a real browser, as wide as a telephone and as a desk: clicked, measured, and by axe."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import segments
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from test_export import ROWS, serving

from tslab import process, served

WIDTHS = (390, 1280)
SCHEMES: tuple[Any, ...] = ("light", "dark")
CHARTS = ("memory", "open", "contention", "slow")
TABLES = ("epochs", "classes", "tails", "locks")


@pytest.fixture
def page_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """The address of a page on two processes, this one and another, whose number comes with it."""
    monkeypatch.setattr(process, "DIRECTORY", str(tmp_path))
    other = subprocess.Popen(["sleep", "120"])
    monkeypatch.setattr(served, "published", lambda: [os.getpid(), other.pid])
    try:
        put(tmp_path, os.getpid(), 64 << 20)
        put(tmp_path, other.pid, 3 << 30)
        with serving() as base:
            yield base, other.pid
    finally:
        other.kill()
        other.wait()


def put(folder: Path, pid: int, live: int) -> None:
    rows = ROWS | {"process": [ROWS["process"][0] | {"live_bytes": live, "in_use_bytes": 2 * live, "epochs_open": 3}]}
    rows["class"] = [row | {"live_bytes": 1 << 20, "live_blocks": 12345678} for row in ROWS["class"]]
    now = time.time_ns()
    how: dict[str, Any] = {"pid": pid, "started_ns": now, "realtime_ns": now, "monotonic_ns": time.monotonic_ns()}
    (folder / f"tslab.{pid}").write_bytes(segments.make(segments.published(), rows, **how))


@contextmanager
def opened(browser: Browser, address: str, width: int) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": width, "height": 900})
    try:
        page = context.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.goto(address)
        expect(page.locator("#memory svg")).to_be_visible()
        yield page
        assert wrong == []
    finally:
        context.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_and_axe_finds_nothing_serious(browser: Browser, page_at: tuple[str, int], width: int) -> None:
    with opened(browser, page_at[0], width) as page:
        page.wait_for_timeout(2200)  # a second look: lines, not points
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for name in CHARTS:
            assert page.locator(f"#{name} svg path").count() >= 1, name
        for name in TABLES:
            assert page.locator(f"#{name} td").count() >= 2, name
        assert page.evaluate(CUT) == []
        label = page.locator("#epochs td", has_text="request").bounding_box()
        assert label and label["height"] < 30  # one line: a word is not broken
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            found = Axe().run(page).response["violations"]
            serious = [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")]
            assert serious == [], scheme
            if folder := os.environ.get("TEST_SCREENSHOTS"):
                page.screenshot(path=f"{folder}/page-{width}-{scheme}.png", full_page=True)


# Texts of charts that end outside their chart, and headings and keys that end outside their card.
CUT = """() => [...document.querySelectorAll('svg text, .key span, h2, p')].filter(text => {
  const own = text.getBoundingClientRect(), box = (text.closest('svg') || text.closest('section') || document.body)
    .getBoundingClientRect();
  return own.width > 0 && (own.left < box.left - 1 || own.right > box.right + 1);
}).map(text => text.textContent)"""


@pytest.mark.parametrize("width", WIDTHS)
def test_it_is_clicked(browser: Browser, page_at: tuple[str, int], width: int) -> None:
    base, other = page_at
    with opened(browser, base, width) as page:
        key = page.locator("#memory .key")
        expect(key).to_contain_text("live 64.0 MiB")
        page.select_option("#which", str(other))
        expect(key).to_contain_text("live 3.0 GiB")
        pause = page.locator("#pause")
        pause.click()
        expect(pause).to_have_text("Go on")
        expect(pause).to_have_attribute("aria-pressed", "true")
        put(Path(process.DIRECTORY), other, 5 << 30)
        page.wait_for_timeout(2500)
        expect(key).to_contain_text("live 3.0 GiB")
        pause.click()
        expect(key).to_contain_text("live 5.0 GiB")


def test_it_says_that_nothing_runs(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "published", list)
    with serving() as base, opened_empty(browser, base) as page:
        expect(page.locator("#said")).to_contain_text("No process runs under temporal-slab")


@contextmanager
def opened_empty(browser: Browser, address: str) -> Iterator[Page]:
    page = browser.new_page()
    page.goto(address)
    yield page
    page.close()
