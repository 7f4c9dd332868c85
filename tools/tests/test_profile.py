"""tslab profile and tslab holders, on a process that keeps memory in known places, and on what is no profile."""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import segments
from axe_playwright_python.sync_playwright import Axe
from conftest import DATA, REPOSITORY
from playwright.sync_api import Browser, expect

from tslab import pprof
from tslab.cli import main
from tslab.commands.holders import _when
from tslab.commands.profile import _summary, growth
from tslab.errors import LabError, Unreadable
from tslab.figures import Source, document
from tslab.reporters import flame
from tslab.segment import of_bytes, read_layout, read_snapshot
from tslab.sites import CLOSING, PLAIN, HeapProfile, Site, by_name, missing, profile_of
from tslab.symbolize import Symbolizer

LIBRARY = Path(os.environ.get("LIBRARY_UNDER_TEST", REPOSITORY / "build" / "release" / "libtslab.so"))
ROWS, ROW, REQUESTS, LEAK = 4000, 1000, 300, 3000
INTERVAL = 16384

pytestmark = [
    pytest.mark.usefixtures("clean_environment"),
    pytest.mark.skipif(not LIBRARY.exists(), reason="build/release/libtslab.so is not built"),
]


@contextlib.contextmanager
def _running(program: Path, rows: int = ROWS, **settings: str) -> Iterator[int]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TSLAB_", "LD_"))}
    environment |= {"LD_PRELOAD": str(LIBRARY.resolve()), **settings}
    child = subprocess.Popen([program, str(rows), str(REQUESTS)], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child.pid
    finally:
        child.terminate()
        child.wait()
        Path(f"/dev/shm/tslab.{child.pid}").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def holding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("holds") / "holds"
    flags = ["-O1", "-g", "-fno-builtin", "-fno-omit-frame-pointer", f"-I{REPOSITORY / 'include'}"]
    subprocess.run(["cc", *flags, "-o", str(out), str(DATA / "holds.c")], check=True)
    return out


@pytest.fixture(scope="module")
def server(holding: Path) -> Iterator[int]:
    with _running(holding, TSLAB_PROFILE=str(INTERVAL)) as pid:
        _read(pid)
        yield pid


def _read(pid: int, least: int = ROWS * ROW) -> HeapProfile:
    """When all of it is published."""
    end = time.monotonic() + 60
    while True:
        try:
            found = Source(str(pid)).read()
            if sum(row["live_bytes"] for row in found["sites"]) > least // 2 and found["age_ns"] < 10**9:
                return profile_of(found)
        except LabError:
            pass
        assert time.monotonic() < end, "no profile came"
        time.sleep(0.1)


def _deviation(blocks: int, size: int, usable: int) -> float:
    return size * math.sqrt(blocks / math.expm1(usable / INTERVAL))


def _held(profile: HeapProfile, pid: int, function: str) -> int:
    symbolizer = Symbolizer(pid)
    rows = by_name(profile, lambda site: symbolizer.callers(site.stack)[0].text.split(" ")[0] if site.stack else "?")
    return next(site.live_bytes for name, site in rows if name == function)


def test_the_estimates_are_near(server: int) -> None:
    profile = _read(server)
    assert abs(_held(profile, server, "keep_row") - ROWS * ROW) < 5 * _deviation(ROWS, ROW, 1024)
    assert abs(_held(profile, server, "keep_leak") - REQUESTS * LEAK) < 5 * _deviation(REQUESTS, LEAK, LEAK)
    assert profile.lost == 0
    assert profile.interval_bytes == INTERVAL


def test_the_table_names_functions_and_lines(server: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(server), "--stacks"]) == 0
    out = capsys.readouterr().out
    assert "keep_row" in out
    assert "main" in out
    if shutil.which("addr2line"):
        assert "holds.c:" in out
    assert "malloc_otherwise" not in out


def test_holders_are_named_where_they_hold(server: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["holders", str(server), "--all"]) == 0
    blocks = capsys.readouterr().out.split("\n\n")
    assert any("plain malloc holds" in block and "keep_row" in block for block in blocks)
    (closed,) = [block for block in blocks if "were closed" in block]
    assert re.search(
        r"or more epochs “request” were closed (at|from) \d\d:\d\d:\d\d.* ago\), and [\d.]+ \wiB pin", closed
    )
    assert "keep_leak" in closed
    assert "occupancy" in closed
    assert not any("keep_leak" in block for block in blocks if "plain malloc" in block)
    assert main(["holders", str(server), "--each"]) == 0
    out = capsys.readouterr().out
    assert out.count("“request” was closed") > 10
    assert re.search(r"“request” was closed at \d\d:\d\d:\d\d \(\S+ ago\), and", out)  # of those with a row
    assert " pin 1 chunk or slab of 64.0 KiB at" in out


def _decoded(path: Path) -> Any:
    message = pprof.message_class()()
    message.ParseFromString(gzip.decompress(path.read_bytes()))
    return message


def test_pprof_has_the_same_sums(server: int, tmp_path: Path) -> None:
    path = tmp_path / "heap.pb.gz"
    assert main(["profile", str(server), "-o", str(path)]) == 0
    found = _decoded(path)
    text = found.string_table
    assert [text[one.type] for one in found.sample_type] == [name for name, _ in pprof.SAMPLE_TYPES]
    assert text[0] == ""
    assert text[found.default_sample_type] == "inuse_space"
    assert found.period == INTERVAL
    functions = {function.id: text[function.name] for function in found.function}
    sums: dict[str, int] = {}
    for sample in found.sample:
        first = next(place for place in found.location if place.id == sample.location_id[0])
        name = functions[first.line[0].function_id] if first.line else "?"
        sums[name] = sums.get(name, 0) + sample.value[3]
    assert abs(sums["keep_row"] - ROWS * ROW) < 5 * _deviation(ROWS, ROW, 1024)
    labels = {(text[label.key], text[label.str]) for sample in found.sample for label in sample.label}
    assert ("epoch", "request") in labels
    assert any(text[mapping.build_id] for mapping in found.mapping)


def test_pprof_keeps_what_has_no_stack(tmp_path: Path) -> None:
    """pprof leaves a sample without a location out of its sums."""
    profile = _made(
        site=[{"site": 2, "stack": "", "allocated_bytes": 30, "allocated_blocks": 3}],
        holder=[{"site": 7, "state": 1, "label": "request", "live_bytes": 10, "live_blocks": 1}],
    )
    path = tmp_path / "heap.pb.gz"
    path.write_bytes(pprof.encode(profile, Symbolizer(None)))
    found = _decoded(path)
    assert [len(sample.location_id) for sample in found.sample] == [1, 1]
    (location,) = found.location
    (function,) = found.function
    assert location.line[0].function_id == function.id
    assert found.string_table[function.name] == "(no stack)"


@pytest.fixture(scope="module")
def go_pprof() -> str:
    """Go's own reader: one that is installed, or the one that Go builds at its first use."""
    found = shutil.which("pprof") or next((str(path) for path in Path("/usr/lib").glob("go-*/pkg/tool/*/pprof")), None)
    go = shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin")
    if not found and go:
        built = subprocess.run([go, "tool", "-n", "pprof"], capture_output=True, text=True, check=False)
        found = built.stdout.strip() if built.returncode == 0 else None
    if not found:
        pytest.skip("neither pprof nor Go is installed")
    return found


@pytest.fixture
def saved_profile(server: int, tmp_path: Path) -> tuple[Path, HeapProfile]:
    """One reading, as a file for pprof and as `tslab profile` has it."""
    path, profile = tmp_path / "heap.pb.gz", _read(server)
    path.write_bytes(pprof.encode(profile, Symbolizer(server)))
    return path, profile


def test_go_s_pprof_reads_it(go_pprof: str, saved_profile: tuple[Path, HeapProfile]) -> None:
    path, profile = saved_profile

    def asked(*options: str) -> str:
        done = subprocess.run([go_pprof, *options, str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    tags = asked("-tags")
    assert all(word in tags for word in ("request", "closing"))
    for sample_type, name in (("inuse_space", "live_bytes"), ("alloc_space", "allocated_bytes")):
        top = asked("-top", "-unit=B", "-nodefraction=0", f"-sample_index={sample_type}")
        assert f"Type: {sample_type}" in top
        assert "keep_row" in top
        whole = re.search(r"of (\d+)B total", top)
        assert whole
        rounding = len(_decoded(path).sample)  # each of its rows is a whole number
        assert abs(int(whole[1]) - sum(getattr(site, name) for site in profile.sites)) <= rounding


def _free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def test_go_s_pprof_serves_it(go_pprof: str, saved_profile: tuple[Path, HeapProfile]) -> None:
    port = _free_port()
    command = [go_pprof, "-no_browser", f"-http=127.0.0.1:{port}", str(saved_profile[0])]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as serving:
        try:
            for view, word in (("top", b"keep_row"), ("flamegraph", b"keep_leak"), ("peek", b"keep_row")):
                assert word in _answer(f"http://127.0.0.1:{port}/ui/{view}", serving)
        finally:
            serving.kill()


def _answer(address: str, serving: subprocess.Popen[bytes]) -> bytes:
    """When the server listens."""
    end = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                return bytes(answer.read())
        except urllib.error.URLError:
            assert serving.poll() is None, "pprof has ended"
            assert time.monotonic() < end, "pprof does not answer"
            time.sleep(0.1)


def test_growth_is_told_by_site(server: int, holding: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with _running(holding, 2 * ROWS, TSLAB_PROFILE=str(INTERVAL)) as other:
        _read(other)
        assert main(["profile", "--diff", str(server), str(other)]) == 0
    out = capsys.readouterr().out
    first = next(line for line in out.splitlines() if "keep_" in line or "scratch" in line)
    assert "keep_row" in first
    assert "+" in first
    path = tmp_path / "saved"
    Source(str(server)).read_and_save(path)
    assert main(["profile", "--diff", str(path), str(server)]) == 0
    out = capsys.readouterr().out
    assert "in all 0 bytes" in out
    assert "0x" not in out  # a saved profile of the process has its names
    assert main(["profile", "--diff", str(path), str(server), "-o", "x"]) == 2
    assert main(["profile"]) == 2


def test_growth_counts_what_is_new_and_what_is_gone() -> None:
    def site(held: int) -> Site:
        return Site(1, (), 1, held, 1, 1, held, 0, 0)

    rows = growth([("a", site(10)), ("gone", site(5))], [("a", site(30)), ("new", site(7))])
    assert [(row.name, row.bytes) for row in rows] == [("a", 20), ("new", 7), ("gone", -5)]
    assert all(row.estimate and row.estimate.is_exact for row in rows)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_flame_page(server: int, tmp_path: Path, browser: Browser, width: int) -> None:
    path = tmp_path / "flame.html"
    assert main(["profile", str(server), "--flame", str(path)]) == 0
    assert "http" not in path.read_text()
    context = browser.new_context(viewport={"width": width, "height": 900}, has_touch=width < 500)
    wrong: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if request.url != path.as_uri() else None)
    page.goto(path.as_uri())
    frames = page.locator("#flame button")
    expect(frames.filter(has_text="keep_row")).to_have_count(1)
    expect(frames.filter(has_text="closed epochs “request”")).to_have_count(1)
    share = frames.filter(has_text="keep_row").evaluate("b => b.offsetWidth / b.parentElement.offsetWidth")
    assert 0.6 < share < 0.95  # 3.8 of 4.7 MB
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page).response["violations"]
        assert [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")] == [], scheme
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if folder := os.environ.get("TEST_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/flame-{width}-{scheme}.png", full_page=True)
    frames.filter(has_text="keep_leak").click()
    expect(page.locator("#about")).to_contain_text("keep_leak")
    assert frames.filter(has_text="keep_leak").evaluate("b => b.offsetWidth / b.parentElement.offsetWidth") > 0.99
    frames.first.click()
    expect(frames.filter(has_text="keep_row")).to_have_count(1)
    page.locator("#what button", has_text="allocated").click()
    expect(frames.filter(has_text="scratch")).to_have_count(1)
    context.close()
    assert wrong == []


def test_no_name_ends_the_page_s_script() -> None:
    profile = _made(
        site=[{"site": 2, "stack": "7f0000001000", "live_bytes": 10, "live_blocks": 1}],
        holder=[{"site": 2, "state": 1, "label": "</script><b>", "live_bytes": 10, "live_blocks": 1}],
    )
    text = flame.page(profile, Symbolizer(None), "t", "a")
    assert text.count("</script>") == 2
    assert "0x7f0000001000" in text


LEAKED = {"leak_session": 600 * 3000, "leak_header": 1200 * 1500, "leak_buffer": 600 * 5000}
CACHED = 600 * 2000


def test_three_leaks_and_a_cache_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "leaks"
    flags = ["-O1", "-g", "-fno-builtin", "-fno-omit-frame-pointer", f"-I{REPOSITORY / 'include'}"]
    subprocess.run(["cc", *flags, "-o", str(program), str(DATA / "leaks.c")], check=True)
    with _running(program, TSLAB_PROFILE="4K") as pid:
        profile = _read(pid, round(1.7 * (sum(LEAKED.values()) + CACHED)))  # of which half must be there
        symbolizer = Symbolizer(pid)
        held: dict[tuple[int, str], int] = {}
        for holder in profile.holders:
            site = profile.site(holder.site)
            assert site
            places = symbolizer.callers(site.stack)
            key = (holder.state, places[0].text.split(" ")[0] if places else "?")
            held[key] = held.get(key, 0) + holder.bytes
        assert main(["holders", str(pid), "--all"]) == 0
    truth = {(CLOSING, name): size for name, size in LEAKED.items()} | {(PLAIN, "make_reply"): CACHED}
    assert {key: round(held[key] / size, 3) for key, size in truth.items() if not 0.8 < held[key] / size < 1.2} == {}
    assert held.keys() - truth.keys() <= {key for key in held if key[0] == PLAIN}
    (closed,) = [block for block in capsys.readouterr().out.split("\n\n") if "were closed" in block]
    assert "epochs “request” were closed" in closed
    assert all(name in closed for name in LEAKED)
    assert "make_reply" not in closed


def test_a_saved_profile_keeps_its_numbers(server: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "saved"
    Source(str(server)).read_and_save(path)
    assert main(["profile", str(path)]) == 0
    assert "0x" in capsys.readouterr().out
    assert main(["holders", str(path)]) == 0


def test_without_a_profile_it_says_how(holding: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with _running(holding) as pid:
        time.sleep(1.5)
        for command in ("profile", "holders"):
            assert main([command, str(pid)]) == 2
            assert "tslab profile --interval=512K PID" in capsys.readouterr().err


# ---- made by hand ----------------------------------------------------------------------------------------------------


def _made(**rows: list[dict[str, Any]]) -> HeapProfile:
    tables = {"process": [{}], "profile": [{"interval_bytes": 4096}], **rows}
    raw = bytes(segments.make(segments.published(), tables))
    layout = read_layout(of_bytes(raw), len(raw))
    return profile_of(document(layout, read_snapshot(of_bytes(raw), layout), None))


def test_a_stack_that_is_none_is_refused() -> None:
    for stack in ("zz", "0", "1 " * 100, "ffffffffffffffffff"):
        with pytest.raises(Unreadable):
            _made(site=[{"site": 2, "stack": stack[:300]}])


def test_samples_without_room_are_told() -> None:
    profile = _made(profile=[{"interval_bytes": 4096, "samples": 9000, "lost": 3, "stackless": 7000}])
    said = "\n".join(_summary(profile, {}))
    assert "3 samples found the tables full" in said
    assert "7,000 samples found the table of stacks full: they stand as one call site" in said


def test_blocks_from_before_the_profile_are_told_of() -> None:
    def said(in_use: int, began_ns: int = 3 * 10**9, **about: int) -> list[str]:
        found = {"process": {"live_bytes": in_use}, "monotonic_ns": 5 * 10**9, "timestamp_ns": 90 * 10**9}
        site = {"site": 2, "live_bytes": 1 << 20, "error_bytes": 1 << 18}
        profile = _made(profile=[{"interval_bytes": 4096, "began_ns": began_ns, **about}], site=[site])
        return missing(profile, found | {"started_ns": 87 * 10**9})

    assert said(0) == said(1 << 20) == said((1 << 20) + (1 << 19)) == said(1 << 30, began_ns=0) == []
    assert said(1 << 30, began_ns=2 * 10**9) == []  # from the start: estimates are of bytes as asked for
    assert said(1 << 30, lost=1) == []
    (line,) = said(1 << 30)
    assert line.startswith("1.0 GiB are in use in all: blocks from before the profile began, 2 s ago, or from a pause")


def test_the_time_of_a_close_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    found = {"timestamp_ns": 1_700_000_000 * 10**9}  # 2023-11-14, 22:13:20
    second = 10**9
    told = partial(_when, found=found)
    assert told([{"closed_ns": 0}, {}]) == ""
    assert told([{"closed_ns": 80 * second}]) == " at 22:12:00 (80s ago)"
    assert told([{"closed_ns": 80 * second}, {"closed_ns": 7400 * second}]) == (
        " from 20:10:00 to 22:12:00 (2h to 80s ago)"
    )
    assert told([{"closed_ns": 86400 * second}]) == " at 2023-11-13 22:13:20 (24h ago)"


def test_an_unknown_place_stays_a_number() -> None:
    profile = _made(
        site=[{"site": 2, "stack": "7f0000001000", "live_bytes": 10, "live_blocks": 1}],
        holder=[{"site": 2, "live_bytes": 10, "live_blocks": 1}, {"site": 9, "live_bytes": 5, "live_blocks": 1}],
    )
    symbolizer = Symbolizer(None)
    assert symbolizer.callers(profile.sites[0].stack)[0].text == "0x7f0000001000"
    assert profile.holders[0].state == PLAIN
    assert profile.site(9) is None
    message = pprof.message_class()()
    message.ParseFromString(gzip.decompress(pprof.encode(profile, symbolizer)))
    assert sum(sample.value[3] for sample in message.sample) == 15
