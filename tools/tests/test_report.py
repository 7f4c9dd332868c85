"""The report, from a result that has everything: in a real browser every chart is drawn, and nothing is fetched."""

from __future__ import annotations

import html.parser
import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from tslab import result as results
from tslab.benchmark import SCHEMA
from tslab.cli import main
from tslab.errors import LabError
from tslab.reporters import charts, tables
from tslab.result import MEMORY, TIME, Key, Result
from tslab.suite import CASES, Case

ALLOCATORS = {
    **{"tslab": 1.00, "glibc": 1.50, "mimalloc3": 1.10, "jemalloc": 1.25},
    **{"mimalloc2": 1.12, "tcmalloc": 1.15, "snmalloc": 1.18, "a-new-allocator": 1.2},
}
ROUNDS = 6
# Headless Chromium as root, with nothing that reaches for the network.
BROWSER = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def option(case: Case, name: str, default: str) -> str:
    return next((o.partition("=")[2] for o in case.options if o.startswith(f"--{name}=")), default)


def metrics_of(case: Case, slowness: float, wobble: float) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Plausible figures for every case of the suite; `slowness` is the allocator's, `wobble` the round's."""
    time = slowness * wobble
    values: dict[str, float] = {"peak_rss_bytes": 5e7 * slowness, "wall_ns": 1e9 * time}
    series: dict[str, list[float]] = {}
    for metric in (*case.time, *case.memory):
        values[metric] = 5e7 / time if metric.endswith("_per_s") else 4e7 * slowness if "bytes" in metric else 40 * time
    for place, percentile in enumerate(charts.PERCENTILES):
        for call in ("malloc", "free", "pair"):
            values[f"{call}_{percentile}_ns"] = 10 * time * 4.0**place
    if case.workload == "threads":
        threads = int(option(case, "threads", "2"))
        values |= {"scaling_ratio": min(threads, 2) * 0.95 / wobble, "loop_scaling_ratio": min(threads, 2) * 0.99}
    if case.workload == "fragmentation":
        values |= {f"size_{2**n}_waste_pct": 40 / n * slowness for n in range(4, 16)} | {"mix_waste_pct": 8 * slowness}
    if case.workload == "churn":
        series["rss_bytes"] = [4e7 * slowness + 1e5 * math.sqrt(i) for i in range(100)]
    if case.workload == "burst":
        series["idle_rss_bytes"] = [1e9 - slowness * i * 4e7 for i in range(15)]
    return values, series


def full_result() -> dict[str, Any]:
    runs: list[dict[str, Any]] = []
    for number in range(1, ROUNDS + 1):
        for case in CASES:
            for name, slowness in ALLOCATORS.items():
                common = {"round": number, "case": case.name, "workload": case.workload, "allocator": name}
                if name == "jemalloc" and case.workload == "zombie-repair":
                    runs.append(
                        {
                            **common,
                            "variant": "",
                            "status": "crashed",
                            "note": "signal 11",
                            "metrics": {},
                            "series": {},
                            "malloc_from": "",
                            "steal_pct": 0,
                            "load": 1,
                        }
                    )
                    continue
                values, series = metrics_of(case, slowness, 1 + 0.01 * (number % 3))
                runs.append(
                    {
                        **common,
                        "variant": case.name,
                        "status": "ok",
                        "note": "",
                        "metrics": values,
                        "series": series,
                        "malloc_from": "lib",
                        "steal_pct": 0.1,
                        "load": 1.0,
                    }
                )
    return {
        "schema": SCHEMA,
        "created": "2026-01-02T03:04:05+00:00",
        "minutes": 1.0,
        "build": "release",
        "settings": {},
        "dropped": ["MALLOC_ARENA_MAX"],
        "rounds": ROUNDS,
        "ours": "tslab",
        "machine": {
            "cpu": "a processor",
            "cores": 2,
            "hypervisor": True,
            "caches": ["L1 data 48K"],
            "tlb": ["none"],
            "kernel": "Linux 6",
            "libc": "glibc 2.36",
            "commit": "abc",
            "thp": "madvise",
        },
        "allocators": [
            {"name": name, "version": "1", "library": f"/lib/{name}.so", "missing": ""} for name in ALLOCATORS
        ]
        + [{"name": "rpmalloc", "version": "?", "library": "", "missing": "no package"}],
        "cases": [
            {
                "name": c.name,
                "workload": c.workload,
                "options": list(c.options),
                "time": list(c.time),
                "memory": list(c.memory),
                "in_means": c.in_means,
            }
            for c in CASES
        ],
        "lifecycle": [
            {
                "workload": w,
                "case": w,
                "calls": 1e6,
                "slabs_born": 90.0,
                "slabs_retired": 40.0,
                "returned_bytes": 3e7,
                "class_refills": 900.0,
            }
            for w in ("random-mixed", "churn", "burst")
        ],
        "runs": runs,
    }


@pytest.fixture
def result_file(tmp_path: Path) -> Path:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(full_result()))
    return path


@pytest.fixture(scope="module")
def full_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    file, page = folder / "bench.json", folder / "report.html"
    file.write_text(json.dumps(full_result()))
    assert main(["report", str(file), "-o", str(page)]) == 0
    return page.read_text()


def in_browser(page: Path, folder: Path) -> dict[str, Any]:
    """Returns the layout of a real browser: a script added to a copy of the page writes sizes and shapes into it."""
    browser = shutil.which("chromium")
    assert browser, "this test opens the report in a browser: install the package chromium"
    probe = """<script>
    const requests = performance.getEntriesByType("resource").length;
    const found = {requests, width: document.body.scrollWidth, charts: {}};
    const inside = (mark, box) => { const own = mark.getBoundingClientRect();
      return own.left >= box.left && own.right <= box.right && own.top >= box.top && own.bottom <= box.bottom; };
    const visible = mark => mark.getBoundingClientRect().width > 0;
    for (const section of document.querySelectorAll("section.chart")) {
      const svg = section.querySelector("svg");
      const box = svg ? svg.getBoundingClientRect() : {width: 0, height: 0};
      const marks = svg ? [...svg.querySelectorAll("path, use, rect")].filter(visible) : [];
      found.charts[section.id] = {width: box.width, height: box.height, marks: marks.length,
                                  texts: svg ? svg.querySelectorAll("text").length : 0,
                                  cut: svg ? [...svg.querySelectorAll("text")].filter(t => !inside(t, box))
                                                 .map(t => t.textContent) : []};
    }
    found.card = document.querySelectorAll("#summary div b").length;
    const out = document.createElement("pre"); out.id = "probe"; out.textContent = JSON.stringify(found);
    document.body.append(out);</script>"""
    copy = folder / "probed.html"
    copy.write_text(page.read_text().replace("</body>", probe + "</body>"))
    done = subprocess.run(
        [
            browser,
            *BROWSER,
            f"--user-data-dir={folder / 'profile'}",
            "--window-size=1200,900",
            "--dump-dom",
            copy.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    written = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout)
    assert written, "the browser did not run the page"
    data: dict[str, Any] = json.loads(written.group(1))
    return data


@pytest.mark.parametrize("zeros", [(), ("malloc_p50_ns", "pair_p50_ns", "malloc_p99_ns")])
def test_every_chart_is_drawn_in_a_browser(result_file: Path, tmp_path: Path, zeros: tuple[str, ...]) -> None:
    data = full_result()
    for run in data["runs"]:
        run["metrics"] |= dict.fromkeys(zeros, 0.0)
    result_file.write_text(json.dumps(data))
    page = tmp_path / "report.html"
    assert main(["report", str(result_file), "-o", str(page)]) == 0
    seen = in_browser(page, tmp_path)
    assert list(seen["charts"]) == [entry.id for entry in charts.ENTRIES]
    assert {
        "latency-percentiles",
        "latency-cdf",
        "latency-comparison",
        "rss-comparison",
        "rss-over-time",
        "scaling",
        "p99-threads",
        "fragmentation",
        "slab-lifecycle",
        "cliffs-epochs",
        "cliffs-threads",
        "cliffs-memory",
        "cliffs-bytes",
    } == set(seen["charts"])
    for name, chart in seen["charts"].items():
        assert chart["width"] > 600 and chart["height"] > 200, name
        assert chart["marks"] > 20 and chart["texts"] > 5, name
        assert chart["cut"] == [], name
    assert seen["card"] >= 6
    assert seen["width"] <= 1200  # wide tables scroll inside themselves
    assert seen["requests"] == 0


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_axe_finds_nothing_serious(
    browser: Browser, full_page: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    try:
        page = context.new_page()
        page.set_content(full_page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page).response["violations"]
        assert [v["nodes"][0]["html"] for v in found if v["impact"] in ("serious", "critical")] == []
    finally:
        context.close()


class Links(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if value and name in ("src", "href", "xlink:href", "data")]


def test_the_report_needs_nothing_else(full_page: str) -> None:
    links = Links()
    links.feed(full_page)
    assert all(link.startswith("#") for link in links.found)
    assert "url(http" not in full_page and "@import" not in full_page


def test_ids_of_the_charts_do_not_clash(full_page: str) -> None:
    clips = re.findall(r'<clipPath id="([^"]+)"', full_page)
    assert len(clips) == len(set(clips))


def test_losses_and_failures_stand_in_the_report(result_file: Path, tmp_path: Path) -> None:
    data = full_result()
    for run in data["runs"]:
        if run["allocator"] == "mimalloc3" and run["workload"] == "simple":
            run["metrics"]["wall_mean_ns"] = 10.0
    result_file.write_text(json.dumps(data))
    page = tmp_path / "report.html"
    main(["report", str(result_file), "-o", str(page)])
    text = page.read_text()
    assert re.search(r'<tr class="loses"><td>simple</td><td>wall_mean_ns</td><td>mimalloc3</td><td>0.25</td>', text)
    assert "missing: no package" in text
    assert "crashed: signal 11" in text


def test_charts_without_data_say_what_they_need(tmp_path: Path) -> None:
    data = full_result()
    data["cases"] = [case for case in data["cases"] if case["workload"] == "simple"]
    data["runs"] = [run for run in data["runs"] if run["workload"] == "simple"]
    data["lifecycle"] = []
    file, page = tmp_path / "bench.json", tmp_path / "report.html"
    file.write_text(json.dumps(data))
    assert main(["report", str(file), "-o", str(page)]) == 0
    assert page.read_text().count("Not drawn: this result has no run of") == len(charts.ENTRIES)


# ---- the figures behind it ----


def test_ratios_are_turned_so_that_more_is_better() -> None:
    result = Result(full_result(), "glibc")
    for key in result.rows():
        cell = result.cell(key, "tslab")
        assert cell.ratio and cell.ratio.point > 1, key
    assert result.overall("tslab", TIME) == (pytest.approx(1.5), len(result.headlines(TIME)))
    assert result.overall("glibc", MEMORY)[0] == pytest.approx(1.0)  # type: ignore[index]


def with_figures(case: str, metric: str, **figures: list[float]) -> Result:
    """The full result, with an allocator's figures of one metric, round after round."""
    data = full_result()
    for run in data["runs"]:
        if run["case"] == case and run["allocator"] in figures:
            run["metrics"][metric] = figures[run["allocator"]][run["round"] - 1]
    return Result(data, "glibc")


def row_of(result: Result, case: str, metric: str) -> Key:
    return next(key for key in result.rows() if (key.case, key.metric) == (case, metric))


def test_all_figures_of_a_row_come_from_the_same_rounds() -> None:
    # Lucky in half of the rounds, the peer is neither chosen for that nor judged without it.
    figures = {name: [80.0] * 6 for name in ALLOCATORS} | {"mimalloc3": [50.0] * 6, "jemalloc": [10.0, 95.0] * 3}
    result = with_figures("simple", "wall_mean_ns", **(figures | {"tslab": [40.0] * 6}))
    key = row_of(result, "simple", "wall_mean_ns")
    envelope = result.envelope(key)
    assert envelope and (envelope.peer, envelope.ratio.point) == ("mimalloc3", 1.25)
    ours, theirs = (result.cell(key, name).ratio for name in ("tslab", "mimalloc3"))
    assert ours and theirs and envelope.ratio.point == ours.point / theirs.point


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ([45.0, 45.0, 45.0, 45.0, 45.0, 45.0], "LOSES"),
        ([45.0, 45.0, 45.0, 45.0, 45.0, 39.0], "level"),  # the interval of six rounds holds all of them
        ([40.5, 40.5, 40.5, 40.5, 40.5, 40.5], "level"),
        ([39.5, 39.5, 39.5, 39.5, 39.5, 39.5], "level"),
        ([35.0, 35.0, 35.0, 35.0, 35.0, 41.0], "level"),
        ([35.0, 35.0, 35.0, 35.0, 35.0, 35.0], "ahead"),
    ],
)
def test_only_an_interval_without_1_is_ahead_or_loses(ours: list[float], verdict: str) -> None:
    result = with_figures("simple", "wall_mean_ns", tslab=ours, **{"mimalloc3": [40.0] * 6})
    key = row_of(result, "simple", "wall_mean_ns")
    assert tables.envelope_text(result.envelope(key)).endswith(f"mimalloc3 {verdict}")
    assert (key in [row for row, _ in result.losses()]) == (verdict == "LOSES")


LATENCY = next(case.name for case in CASES if case.workload == "latency" and "cycles=100" in case.name)


def test_a_round_that_measured_nothing_is_a_figure() -> None:
    zeros = {name: [0.0, 0.0, 0.0, 0.0, 8.0, 60.0] for name in ALLOCATORS if name != "tslab"}
    result = with_figures(LATENCY, "malloc_p50_ns", tslab=[2.0, 2.0, 2.0, 2.0, 0.0, 0.0], **zeros)
    chart = charts.latency_percentiles(result)
    assert chart
    drawn = {row[1]: row[2] for row in chart.table[1] if row[0] == "malloc"}
    assert drawn == {"tslab": "2 ns"} | dict.fromkeys(zeros, "0 ns")


def test_ratios_with_a_figure_of_nothing() -> None:
    metric = "pair_p50_ns"
    result = with_figures(LATENCY, metric, tslab=[2.0] * 6, glibc=[4.0] * 6, mimalloc3=[0.0] * 5 + [9.0])
    key = row_of(result, LATENCY, metric)
    assert tables.envelope_text(result.envelope(key)) == "0.00 mimalloc3 level"  # it lost a round
    assert [tables.cell_text(key, result.cell(key, name)) for name in ("tslab", "mimalloc3")] == ["2.00", "0 ns"]
    counts = [result.overall(name, TIME)[1] for name in ("tslab", "mimalloc3")]  # type: ignore[index]
    assert counts == [len(result.headlines(TIME)), len(result.headlines(TIME)) - 1]
    both = with_figures(LATENCY, metric, **{name: [0.0] * 6 for name in ALLOCATORS})
    assert tables.envelope_text(both.envelope(key)).startswith("1.00 ")
    less = with_figures(LATENCY, metric, tslab=[-3.0] * 6)
    assert tables.envelope_text(less.envelope(key)).startswith("∞ ")
    assert "0.00 … 4.50 mimalloc3" in tables.markdown(result)


def test_what_was_not_measured_keeps_its_place() -> None:
    result = Result(full_result(), "glibc")
    _, rows = tables.matrix(result, TIME)
    crashed = next(row for row in rows if row[0] == "zombie-repair")
    cells = dict(zip(result.allocators, crashed[2:], strict=False))
    assert [cells[name] for name in ("tslab", "glibc", "mimalloc3", "jemalloc", "rpmalloc")] == [
        *("1.50", "1.00", "1.36", "crashed", "missing")
    ]
    assert "| missing: no package |" in tables.markdown(result)


def test_losing_rows_are_bold_in_markdown() -> None:
    data = full_result()
    for run in data["runs"]:
        if run["allocator"] == "tslab" and run["workload"] == "simple":
            run["metrics"]["wall_mean_ns"] = 1000.0
    assert "| **simple** | **wall_mean_ns** | **0.06** |" in tables.markdown(Result(data, "glibc"))


def test_results_are_merged_round_after_round(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(full_result()))
    merged = results.merge([results.load(file, "glibc"), results.load(file, "glibc")])
    key = merged.rows()[0]
    assert sorted(merged.by_round(key, "tslab")) == list(range(1, 2 * ROUNDS + 1))


def test_results_of_two_machines_are_not_merged() -> None:
    other = full_result()
    other["machine"] = {**other["machine"], "cpu": "another"}
    with pytest.raises(LabError, match=r"different machines"):
        results.merge([Result(full_result(), "glibc"), Result(other, "glibc")])


@pytest.mark.parametrize(("text", "message"), [("[]", "no result"), ("{}", "no result"), ("no json", "no result")])
def test_files_that_are_no_result(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(LabError, match=message):
        results.load(file, "glibc")


def test_a_baseline_that_was_not_measured() -> None:
    with pytest.raises(LabError, match=r"baseline 'rpmalloc' was not measured; there are tslab, glibc"):
        Result(full_result(), "rpmalloc")
