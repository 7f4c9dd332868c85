"""`tslab export`: names, sums, refusals, and a server that outlives what it reads."""

from __future__ import annotations

import gc
import itertools
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import segments
from conftest import REPOSITORY
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tslab import preload, process, served
from tslab.cli import main
from tslab.errors import LabError
from tslab.live import Exporter, Server, address_of
from tslab.scrape import TABLES, Scraper
from tslab.segment import Fetch, of_descriptor

MINE = os.getpid()
LIBRARY = Path(os.environ.get("LIBRARY_UNDER_TEST", REPOSITORY / "build" / "release" / "libtslab.so"))
HOUR_NS = 3600 * 10**9
ROWS: dict[str, list[dict[str, Any]]] = {
    "process": [{"live_bytes": 1000, "in_use_bytes": 5000, "free_dirty_bytes": 500, "purge_failures": 3}],
    "class": [
        {"object_size": 64, "allocations": 9, "lock_fast_acquire": 3, "lock_contended": 1, "slab_take_attempts": 10},
        {"object_size": 96, "allocations": 5, "lock_fast_acquire": 5, "lock_contended": 7},
    ],
    "epoch": [
        {"epoch": 77001, "state": 2, "age_ns": HOUR_NS, "committed_bytes": 1 << 20, "label": "request"},
        {"epoch": 77002, "state": 2, "age_ns": 5, "committed_bytes": 1 << 20, "label": "request"},
        {"epoch": 77003, "state": 1, "age_ns": 7, "committed_bytes": 64, "label": 'odd"\n\x1b\\'},
    ],
    "label": [{"label": "request", "opened": 2, "committed_bytes": 1 << 21}, {"label": "request", "opened": 1}]
    + [{"label": f"tenant{i}", "opened": 1} for i in range(100)],
    "path": [{"name": "map", "entries": 3, "wall_ns_sum": 10**9, "buckets": [0, 0, 0, 1] + [0] * 43 + [2]}],
    "lock": [{"name": "pages", "fast": 6, "contended": 2, "wait_ns": 10**9}, {"name": "idle"}],
}


@pytest.fixture
def shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of segments in which this process is the only one."""
    monkeypatch.setattr(process, "DIRECTORY", str(tmp_path))
    monkeypatch.setattr(served, "published", lambda: [MINE] if (tmp_path / f"tslab.{MINE}").exists() else [])
    put(tmp_path, ROWS)
    return tmp_path


def put(folder: Path, rows: dict[str, list[dict[str, Any]]], **how: Any) -> None:
    how = {"pid": MINE, "monotonic_ns": time.monotonic_ns()} | how
    data = segments.make(segments.published(), rows, started_ns=time.time_ns(), realtime_ns=time.time_ns(), **how)
    (folder / f"tslab.{MINE}").write_bytes(data)


def scrape(exporter: Exporter) -> list[Sample]:
    return samples_of(exporter.metrics("")[0].decode())


def samples_of(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def values(found: list[Sample], name: str, **labels: str) -> list[float]:
    wanted = labels.items()
    return [s.value for s in found if s.name == f"temporal_slab_{name}" and wanted <= s.labels.items()]


@pytest.mark.usefixtures("shared_memory")
def test_the_names_and_sums_of_a_scrape() -> None:
    found = scrape(Exporter("temporal_slab", classes=False))
    assert values(found, "live_bytes") == [1000]
    assert values(found, "retained_bytes") == [4500]
    assert values(found, "rss_bytes")[0] > 1 << 20
    assert values(found, "class_lock_contended_total") == [8]
    assert values(found, "class_lock_acquisitions_total") == [16]
    assert values(found, "class_bitmap_alloc_attempts_total") == [10]
    assert values(found, "epoch_age_seconds", state="CLOSING", label="request") == [3600]
    assert values(found, "epoch_rss_bytes", state="CLOSING", label="request") == [2 << 20]
    assert values(found, "epochs", state="CLOSING") == [2]
    assert values(found, "label_opened_total", label="request") == [3]
    assert values(found, "lock_wait_time_seconds_total") == [1]
    assert values(found, "path_seconds_count", path="map") == [3]
    assert values(found, "path_seconds_bucket", path="map", le="6.4e-08") == [1]
    series = [(s.name, *sorted(s.labels.items())) for s in found]
    assert len(series) == len(set(series))  # Prometheus refuses a scrape that says one thing twice


@pytest.mark.usefixtures("shared_memory")
def test_no_epoch_id_is_a_label_and_labels_are_bounded() -> None:
    text = Exporter("temporal_slab", classes=True).metrics("")[0].decode()
    assert "77001" not in text and "77002" not in text
    assert "\x1b" not in text
    found = samples_of(text)
    assert len(values(found, "label_opened_total")) <= 33
    assert sum(values(found, "label_opened_total")) == 103
    assert values(found, "class_lock_contended_total", object_size="96") == [7]


def test_segments_that_lie_are_refused_and_counted(shared_memory: Path) -> None:
    place = shared_memory / f"tslab.{MINE}"
    whole = place.read_bytes()
    exporter = Exporter("temporal_slab", classes=False)
    liar = segments.make(segments.published(), ROWS, pid=MINE + 1, started_ns=time.time_ns())
    harmed = itertools.islice(segments.damaged(whole, 5), 60)
    bad = [whole[:100], whole[:-4096], b"\xff" * 4096, bytes(liar), *harmed]
    for number, data in enumerate(bad):
        place.write_bytes(data)
        exporter._seen_at = float("-inf")
        found = scrape(exporter)
        if number < 4:
            assert values(found, "exporter_processes") == [0]
            assert values(found, "exporter_refused_total") == [number + 1]
    place.write_bytes(whole)
    exporter._seen_at = float("-inf")
    assert values(scrape(exporter), "live_bytes") == [1000]
    assert len(exporter._scraper._layouts) <= 32
    place.unlink()
    exporter._seen_at = float("-inf")
    assert values(scrape(exporter), "exporter_processes") == [0]


@pytest.mark.usefixtures("shared_memory")
@pytest.mark.parametrize(
    "accept",
    [
        "",
        "text/plain;version=1.0.0;escaping=allow-utf-8",
        "application/openmetrics-text;version=1.0.0;escaping=underscores",
        "application/openmetrics-text",
        "text/plain;version=1.0.0;escaping=dots",
    ],
)
def test_the_lines_are_those_of_prometheus_client(accept: str) -> None:
    exporter = Exporter("temporal_slab", classes=True)
    exporter.look()
    exporter._seen_at = float("inf")  # both write the same look
    encode, kind = choose_encoder(accept)
    assert exporter.metrics(accept) == (encode(exporter._registry), kind)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all reads of segments."""
    sizes: list[int] = []

    def counting(descriptor: int) -> Fetch:
        fetch = of_descriptor(descriptor)

        def take(at: int, size: int) -> bytes:
            sizes.append(size)
            return fetch(at, size)

        return take

    monkeypatch.setattr("tslab.scrape.of_descriptor", counting)
    return sizes


def test_a_scrape_reads_what_it_needs(shared_memory: Path, asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a layout is known: the header, the rows of six tables, and five words of the snapshot."""
    scraper = Scraper()
    scraper.look()
    asked.clear()
    checked = len(scraper._layouts)
    monkeypatch.setattr("tslab.scrape.read_layout", lambda *_: pytest.fail("a layout is checked again"))
    (reading,) = scraper.look()
    assert checked == 1
    whole = (shared_memory / f"tslab.{MINE}").stat().st_size
    rows = sum(
        len(reading.rows[table.name]) * table.row_bytes
        for table in next(iter(scraper._layouts.values())).layout.tables
        if table.name in reading.rows
    )
    assert sum(asked) < rows + 1024 < whole / 10
    assert len(asked) <= 4 + len(TABLES)


FIFTY = 50
IDLE = [sys.executable, "-S", "-c", "import time\nkeep = [bytearray(4000) for _ in range(1000)]\ntime.sleep(300)"]


@contextmanager
def many_processes() -> Iterator[set[int]]:
    """Real processes under the library, each of which has published its figures."""
    environment = preload.environment(LIBRARY.resolve(), [])
    children = [subprocess.Popen(IDLE, env=environment) for _ in range(FIFTY)]
    places = [Path(f"/dev/shm/tslab.{child.pid}") for child in children]
    try:
        end = time.monotonic() + 60
        while not all(place.exists() for place in places):
            assert time.monotonic() < end
            time.sleep(0.1)
        yield {child.pid for child in children}
    finally:
        for child in children:
            child.kill()
            child.wait()
        for place in places:
            place.unlink(missing_ok=True)


@pytest.mark.usefixtures("clean_environment")
@pytest.mark.skipif(not LIBRARY.exists(), reason="build/release/libtslab.so is not built")
def test_fifty_processes_share_a_layout_and_each_costs_the_reads_of_one(asked: list[int]) -> None:
    exporter = Exporter("temporal_slab", classes=False)
    with many_processes() as pids:
        exporter.metrics("")
        asked.clear()
        exporter._seen_at = float("-inf")
        begin = time.process_time()
        body = exporter.metrics("")[0].decode()
        print(f"a scrape of {FIFTY} processes: {1000 * (time.process_time() - begin):.0f} ms of processor time")
    found = values(samples_of(body), "exporter_processes")[0]
    read = {s.labels["pid"] for s in samples_of(body) if s.name == "temporal_slab_live_bytes"}
    assert {str(pid) for pid in pids} <= read
    assert len(asked) <= found * (4 + len(TABLES))
    assert len(exporter._scraper._layouts) <= 1 + found - FIFTY


@pytest.mark.parametrize("seconds", [0, pytest.param(3600, marks=pytest.mark.soak)])
def test_memory_is_flat_over_a_thousand_looks(seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes come, go, lie, and name other labels each time. The exporter's memory does not grow."""
    exporter = Exporter("temporal_slab", classes=False)
    looks = changing_looks(exporter, tmp_path, monkeypatch)
    for _ in range(200):
        next(looks)
    held = []
    for _ in range(2):
        end = time.monotonic() + seconds / 2
        for number, _look in enumerate(looks):
            if number >= 400 and time.monotonic() >= end:
                break
        gc.collect()
        held.append(sys.getallocatedblocks())
    assert held[1] < 1.02 * held[0]
    assert len(exporter._scraper._layouts) <= 32
    assert len(exporter._scraper._known) <= 1


def changing_looks(exporter: Exporter, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(process, "DIRECTORY", str(folder))
    place = folder / f"tslab.{MINE}"
    monkeypatch.setattr(served, "published", lambda: [MINE] if place.exists() else [])
    rows: dict[str, list[dict[str, Any]]] = {"process": [{}], "label": [{"label": "l0000000", "opened": 1}]}
    whole = bytes(segments.make(segments.published(most=4), rows, pid=MINE, monotonic_ns=time.monotonic_ns()))
    harmed = segments.damaged(whole, 11)
    for number in itertools.count():
        if number % 4 == 0:
            place.write_bytes(next(harmed))
        elif number % 4 == 1:
            place.unlink()
        else:
            place.write_bytes(whole.replace(b"l0000000", f"l{number % 10**7:07}".encode()))
        exporter._seen_at = float("-inf")
        exporter.metrics("")
        yield


def test_figures_of_another_process_are_not_shown_as_this_one_s(shared_memory: Path) -> None:
    """A layout that was checked for one process serves another, but its namespace is its own."""
    found = process.look(MINE)
    assert found
    scraper = Scraper()
    for how, read in (
        ({"pid_namespace": found.pid_namespace}, 1),
        ({"pid_namespace": found.pid_namespace - 1}, 0),
        ({"monotonic_ns": found.started_ns - 1}, 0),
        ({}, 1),
    ):
        put(shared_memory, ROWS, **how)
        assert len(scraper.look()) == read, how
    assert scraper.refused == 0


@contextmanager
def serving() -> Iterator[str]:
    with Server(("127.0.0.1", 0), Exporter("temporal_slab", classes=False)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.usefixtures("shared_memory")
def test_the_server_and_its_page() -> None:
    with serving() as base:
        plain = urllib.request.urlopen(f"{base}/metrics")
        assert plain.headers["Content-Type"].startswith("text/plain")
        request = urllib.request.Request(f"{base}/metrics", headers={"Accept": "application/openmetrics-text"})
        assert urllib.request.urlopen(request).read().endswith(b"# EOF\n")
        page = urllib.request.urlopen(base)
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert not re.search(rb"(src|href)=.(https?:|//)", page.read())
        assert b'"live_bytes":1000' in urllib.request.urlopen(f"{base}/live.json").read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/../../etc/passwd")


@pytest.mark.usefixtures("shared_memory")
def test_once_and_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--once", "--namespace", "mine"]) == 0
    assert "mine_live_bytes{" in capsys.readouterr().out
    assert main(["export", "--once", "--namespace", "a-b"]) == 2
    for wrong in ("9766", "127.0.0.1:", "127.0.0.1:99999", ":80"):
        with pytest.raises(LabError, match="--listen takes ADDRESS:PORT"):
            address_of(wrong)
    assert address_of("[::1]:9766") == ("::1", 9766)
