"""The demo: its chart fits the terminal, its words follow the figures whoever wins, and its server refuses nonsense."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from types import ModuleType

import pytest
from conftest import REPOSITORY

MIB = 1 << 20
SERVER = REPOSITORY / "build" / "release" / "demo" / "tide"
LIBRARY = REPOSITORY / "build" / "release" / "libtslab.so"


@pytest.fixture(scope="module")
def tide() -> ModuleType:
    found = importlib.util.spec_from_file_location("tide", REPOSITORY / "demo" / "tide.py")
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    sys.modules["tide"] = module  # where dataclasses look for it
    found.loader.exec_module(module)
    return module


def result(tide: ModuleType, turns: dict[str, list[float]], ends: dict[str, int]) -> object:
    """Three allocators beside ours, each with a peak of 90 MiB, and at the end as many as `ends` says."""
    watched = {
        name: tide.Run([28, 2800, 28], [(MIB, MIB), (90 * MIB, 80 * MIB), (85 * MIB, MIB)], [(end * MIB, MIB)] * 5)
        for name, end in ends.items()
    }
    p99 = {name: [1000.0] * 3 for name in ends}
    return tide.Result(dict.fromkeys(ends, "1"), {"mimalloc": "no network"}, turns, p99, watched, {}, 2)


def words(tide: ModuleType, ours: float, end: int) -> str:
    names = ("glibc", "jemalloc", tide.OURS, tide.EPOCHS)
    turns = {name: [100.0, 100.0, 100.0] for name in names} | {tide.OURS: [ours, ours, ours]}
    said: str = tide.words(result(tide, turns, {"glibc": 85, "jemalloc": 10, tide.OURS: end, tide.EPOCHS: 4}))
    return said


def test_a_win_and_a_loss_are_called_so(tide: ModuleType) -> None:
    won = words(tide, 150, 5)
    assert "turns a second better than" in won and "(1.50 times; 1.50 to 1.50)" in won and "LOSES" not in won
    lost = words(tide, 50, 20)
    assert "turns a second WORSE than" in lost
    assert "At the end temporal-slab LOSES: 20.0 MiB where jemalloc takes 10.0" in lost
    assert "with epochs LOSES" not in lost
    assert "p99 level with" in lost
    assert "Not compared: mimalloc (no network)" in lost


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"watched": {}}', '{"watched": {"glibc": {"none": 1}}}', "\x00"])
def test_a_file_that_is_no_result(tide: ModuleType, tmp_path: Path, text: str) -> None:
    (tmp_path / "kept.json").write_text(text)
    with pytest.raises(tide.DemoError, match="is no result of this demo"):
        tide.Result.read(tmp_path / "kept.json")


def test_the_chart_fits_a_terminal_of_80_by_24(tide: ModuleType) -> None:
    points = [(n * MIB, n * MIB // 2) for n in (*range(40), *range(25))]
    for length in (3, 65, 200):
        chart = tide.picture.terminal({name: (points * 4)[:length] for name in ("glibc", "jemalloc", "ours")}, [1, 2])
        assert len(chart) <= 24 - 4
        assert max(map(len, chart)) <= 80
        assert "g glibc  j jemalloc  O ours" in chart[-1]
    assert len(tide.picture.terminal({"none": [(0, 0)] * 9}, [1])) > 0


def test_the_page_needs_no_network(tide: ModuleType) -> None:
    pytest.importorskip("matplotlib")
    drawn = tide.picture.svg({"glibc": [(9 * MIB, MIB)] * 9, "a": [(MIB, 0)] * 9, "b": [(0, 0)] * 9}, 4)
    xml.etree.ElementTree.fromstring(drawn)
    page = tide.picture.page(drawn, ["a < b"], "words")
    assert "a &lt; b" in page
    for forbidden in ("<script", "<link", "src=", "@import"):
        assert forbidden not in page


def test_the_picture_of_the_readme_is_one() -> None:
    text = (REPOSITORY / "docs" / "tide.svg").read_text()
    xml.etree.ElementTree.fromstring(text)
    assert "temporal-slab" in text and "with epochs" in text and "jemalloc" in text


@pytest.mark.skipif(not SERVER.exists() or not LIBRARY.exists(), reason="build/release has no demo")
def test_the_whole_on_a_small_load(tide: ModuleType, tmp_path: Path) -> None:
    done = demo("--peers", tmp_path / "none.json", "--rounds", "1", "--low", "2", "--scale", "5", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Not compared: jemalloc (not made; ./dev peers makes it)" in " ".join(done.stdout.split())
    assert "session " in done.stdout.split("What each label holds at high tide")[1]
    kept = tide.Result.read(tmp_path / "tide.json")
    assert kept.watched["glibc"].high_tide[0][1] == kept.watched[tide.EPOCHS].high_tide[0][1]  # the same allocations
    assert "glibc" in demo("--from", tmp_path / "tide.json", "--out", tmp_path).stdout


def demo(*options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / "demo" / "tide.py"), str(LIBRARY), str(SERVER), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.skipif(not SERVER.exists(), reason="build/release has no demo")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "usage: tide"),
        (("neither",), "usage: tide"),
        (("malloc", "--what"), "usage: tide"),
        (("malloc", "--requests"), "a number from 100 to 100000 is needed, not ''"),
        (("malloc", "--scale", "5x"), "a number from 1 to 10000 is needed, not '5x'"),
        (("malloc", "--low", "-1"), "a number from 0 to 3600 is needed, not '-1'"),
        (("epochs",), "epochs need the library"),
    ],
)
def test_the_server_refuses(options: tuple[str, ...], message: str) -> None:
    done = subprocess.run([SERVER, *options], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode in (1, 2) and done.stdout == ""
    assert message in done.stderr
