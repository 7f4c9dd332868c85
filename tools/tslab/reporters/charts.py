"""The charts of the report, each an SVG that stands in the page and takes the page's text colour.

A chart is a function of the result that returns a Chart, or None where the run has no data for it; the page then says
which workload would give it. One colour, marker and dash per allocator throughout, ours the thick one.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator, SymmetricalLogLocator

from tslab.reporters.families import Family
from tslab.reporters.quantities import quantity
from tslab.result import Key, Result
from tslab.scale import EPOCHS, MEMORY, THREADS, Cost, Kind
from tslab.stats import Interval, median_interval
from tslab.sweep import Sweep

# Replaced by currentColor and a translucent one: the page decides between dark on light and light on dark.
INK, GRID = "#010203", "#040506"
mpl.rcParams.update(
    {
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.edgecolor": GRID,
        "axes.labelcolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "grid.color": GRID,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "savefig.transparent": True,
    }
)
STYLES: dict[str, tuple[str, str]] = {
    "tslab": ("#e4572e", "o"),
    "glibc": ("#7a8291", "s"),
    "mimalloc3": ("#2274a5", "^"),
    "mimalloc2": ("#74b3d8", "v"),
    "jemalloc": ("#2e933c", "D"),
    "tcmalloc": ("#8d5ba6", "P"),
    "snmalloc": ("#c99700", "X"),
    "rpmalloc": ("#159a9c", "d"),
}
SPARE = (("#b5651d", "*"), ("#5f6caf", "h"), ("#c2185b", "<"), ("#607d3b", ">"))
PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9", "p99.99", "max")
NINES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}
MIB = 2**20
LEGEND_COLUMNS = 7
GRID_COLUMNS = 3
ROW_NAME, MOST_ROWS = 64, 16


@dataclass(frozen=True)
class Chart:
    svg: str
    table: tuple[list[str], list[list[str]]]

    @property
    def alone(self) -> str:
        """For a file of its own: no page lends it its colours, so it brings paper and ink."""
        head, body = self.svg.split(">", 1)
        size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', head)
        wide, tall = size.groups() if size else ("100%", "100%")
        head = head.replace('width="100%"', f'width="{wide}" height="{tall}"')
        paper = f'<rect width="{wide}" height="{tall}" fill="#ffffff"/>'
        return f"{head}>{paper}{body}".replace("currentColor", "#24292f").replace("var(--grid)", "#d0d7de")


@dataclass(frozen=True)
class Entry:
    """A place in the report: its chart, how to read it, and which workload it needs."""

    id: str
    title: str
    caption: str
    needs: str
    draw: Callable[[Result], Chart | None]


class Medians:
    """Medians and intervals of any metric of a case, whether or not the tables compare it."""

    def __init__(self, result: Result) -> None:
        self.result = result

    def __call__(self, case: str, metric: str, allocator: str) -> Interval | None:
        values = self.result.by_round(Key(case, "", metric, ""), allocator)
        return median_interval(list(values.values()))[0] if values else None


def latency_percentiles(result: Result) -> Chart | None:
    case = _largest(result, "latency", "mode=churn", fallback="latency")
    if case is None:
        return None
    median = Medians(result)
    figure, axes = _figure(2)
    rows = []
    for axis, call in zip(axes, ("malloc", "free"), strict=True):
        for name in result.measured:
            points = [median(case, f"{call}_{p}_ns", name) for p in PERCENTILES]
            if any(point is None for point in points):
                continue
            values = [point.point for point in points if point]
            axis.plot(range(len(PERCENTILES)), values, **_line(result, name))
            rows.append([call, name, *(quantity("_ns", value) for value in values)])
        _times(axis, "y")
        axis.set_xticks(range(len(PERCENTILES)), PERCENTILES)
        axis.set_title(call, loc="left")
    return _finish(figure, axes, ["call", "allocator", *PERCENTILES], rows)


def latency_cdf(result: Result) -> Chart | None:
    case = _largest(result, "latency", "mode=churn", fallback="latency")
    if case is None:
        return None
    median = Medians(result)
    figure, axes = _figure(1)
    rows = []
    for name in result.measured:
        found = {p: median(case, f"pair_{p}_ns", name) for p in NINES}
        if any(point is None for point in found.values()):
            continue
        values = [point.point for point in found.values() if point]
        axes[0].plot(values, [-math.log10(1 - share) for share in NINES.values()], **_line(result, name))
        rows.append([name, *(quantity("_ns", value) for value in values)])
    _times(axes[0], "x")
    axes[0].set_yticks([-math.log10(1 - share) for share in NINES.values()], [f"{100 * s:g} %" for s in NINES.values()])
    axes[0].set_xlabel("malloc plus its own free")
    axes[0].set_ylabel("share of pairs at or below")
    return _finish(figure, axes, ["allocator", *NINES], rows)


def latency_comparison(result: Result) -> Chart | None:
    case = _largest(result, "latency", "mode=churn", fallback="latency")
    return _bars(result, [(case, f"pair_{p}_ns", f"pair {p}, ns", 1) for p in ("p50", "p99", "p99.9")] if case else [])


def rss_comparison(result: Result) -> Chart | None:
    panels = []
    if churn := _largest(result, "churn"):
        panels.append((churn, "last_rss_bytes", "churn: end, MiB", MIB))
    if burst := _largest(result, "burst", "which=random", fallback="burst"):
        panels.append((burst, "peak_rss_bytes", "burst: peak, MiB", MIB))
        panels.append((burst, "after_idle_rss_bytes", "burst: 90 % freed, idle, MiB", MIB))
    return _bars(result, panels)


def rss_over_time(result: Result) -> Chart | None:
    wanted = [
        (_largest(result, "churn"), "rss_bytes", "churn: MiB by share of the run", "share of the cycles, %"),
        (
            _largest(result, "burst", "which=random", fallback="burst"),
            "idle_rss_bytes",
            "burst: MiB after 90 % was freed",
            "share of the idle time, %",
        ),
    ]
    panels = [(case, *rest) for case, *rest in wanted if case]
    if not panels:
        return None
    figure, axes = _figure(len(panels))
    rows = []
    for axis, (case, series, title, label) in zip(axes, panels, strict=True):
        for name in result.measured:
            values: list[float] = next(
                (run["series"][series] for run in result.runs(case, "", name) if series in run["series"]), []
            )
            if len(values) > 1:
                line = _line(result, name) | {"marker": ""}
                axis.plot([100 * i / (len(values) - 1) for i in range(len(values))], [v / MIB for v in values], **line)
                rows.append(
                    [title.split(":")[0], name, *(f"{v / MIB:.1f}" for v in (values[0], max(values), values[-1]))]
                )
        axis.set_title(title, loc="left")
        axis.set_xlabel(label)
        axis.set_ylim(bottom=0)
    return _finish(figure, axes, ["run", "allocator", "first, MiB", "greatest, MiB", "last, MiB"], rows)


def scaling(result: Result) -> Chart | None:
    return _threads(result, "scaling_ratio", ideal=True)


def p99_threads(result: Result) -> Chart | None:
    return _threads(result, "malloc_p99_ns", ideal=False)


def fragmentation(result: Result) -> Chart | None:
    case = _largest(result, "fragmentation")
    if case is None:
        return None
    median = Medians(result)
    figure, axes = _figure(2, ratios=(3, 1))
    rows = []
    mixes: list[tuple[str, Interval | None]] = []
    for name in result.measured:
        runs = result.runs(case, "", name)
        sizes = sorted(
            int(m[1])
            for metric in (runs[0]["metrics"] if runs else ())
            if (m := re.fullmatch(r"size_(\d+)_waste_pct", metric))
        )
        if not sizes:
            continue
        values = [median(case, f"size_{size}_waste_pct", name) for size in sizes]
        axes[0].plot(sizes, [v.point if v else 0 for v in values], **(_line(result, name) | {"markersize": 3}))
        mix = median(case, "mix_waste_pct", name)
        mixes.append((name, mix))
        rows.append(
            [name, f"{mix.point:.2f} %" if mix else "none", *(f"{v.point:.1f} %" if v else "none" for v in values)]
        )
    if not rows:
        return None
    axes[0].set_xscale("log", base=2)
    axes[0].xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}"))
    axes[0].set_xlabel("block size, bytes")
    axes[0].set_title("resident bytes beyond those asked for, %", loc="left")
    _bar_panel(result, axes[1], mixes, "realistic mix, %", 1)
    return _finish(figure, axes, ["allocator", "mix", *(f"{size} B" for size in sizes)], rows)


def slab_lifecycle(result: Result) -> Chart | None:
    entries = result.data["lifecycle"]
    if not entries:
        return None
    figure, axes = _figure(3)
    names = [entry["workload"] for entry in entries]
    colour = STYLES["tslab"][0]
    born, retired = ([entry.get(field, 0.0) for entry in entries] for field in ("slabs_born", "slabs_retired"))
    places = range(len(entries))
    axes[0].barh([p - 0.2 for p in places], born, 0.4, color=colour, label="allocated")
    axes[0].barh([p + 0.2 for p in places], retired, 0.4, color="#2274a5", label="recycled or returned")
    axes[0].set_title("slabs", loc="left")
    axes[0].legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.12))
    returned = [entry.get("returned_bytes", 0.0) / MIB for entry in entries]
    axes[1].barh(places, returned, 0.6, color="#2e933c")
    axes[1].set_title("returned to the system, MiB", loc="left")
    hits = [
        100 * (1 - min(1.0, entry.get("class_refills", 0.0) / entry["calls"])) if entry["calls"] else 0.0
        for entry in entries
    ]
    axes[2].barh(places, [max(1e-4, 100 - hit) for hit in hits], 0.6, color="#8d5ba6")
    axes[2].set_xscale("log")
    axes[2].xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:g}"))
    axes[2].set_title("mallocs that missed the cache, %", loc="left")
    for axis in axes:
        axis.set_yticks(places, names if axis is axes[0] else [""] * len(names))
        axis.invert_yaxis()
    rows = [
        [e["workload"], f"{b:.0f}", f"{r:.0f}", f"{m:.1f}", f"{h:.4f} %"]
        for e, b, r, m, h in zip(entries, born, retired, returned, hits, strict=True)
    ]
    return _finish(
        figure, axes, ["workload", "allocated", "recycled", "returned, MiB", "cache hits"], rows, legend=False
    )


def family(result: Result, whose: Family) -> Chart | None:
    """A line for each row of the family, on it a mark for each allocator: its ratio to the baseline."""
    keys = [key for key in whose.keys(result) if result.ratio(key, result.ours, result.baseline)]
    if len(keys) > MOST_ROWS:  # then one figure a case is enough
        keys = list({key.case: key for key in reversed(keys)}.values())[::-1]
    if not keys:
        return None
    figure = Figure(figsize=(10.5, 1.5 + 0.24 * len(keys)), layout="constrained")
    axis = figure.subplots()
    rows = []
    for name in result.measured:
        points = [(result.ratio(key, name, result.baseline), place) for place, key in enumerate(keys)]
        known = [(ratio.point, place) for ratio, place in points if ratio and 0 < ratio.point < math.inf]
        if known:
            axis.plot(*zip(*known, strict=True), **(_line(result, name) | {"linestyle": "none"}))
            rows += [[keys[place].name, keys[place].metric, name, f"{ratio:.2f}"] for ratio, place in known]
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.axvline(1, color=INK, linewidth=1)
    axis.set_yticks(range(len(keys)), _row_names(keys), fontsize=7)
    axis.set_ylim(len(keys) - 0.5, -0.5)
    axis.set_xlabel(f"ratio to {result.baseline}; further right is better")
    return _finish(figure, [axis], ["row", "figure", "allocator", "ratio"], rows)


def _row_names(keys: Sequence[Key]) -> list[str]:
    """Without the words that all rows have, and short enough to leave room for the marks; tables have whole names."""
    common = set.intersection(*(set(key.name.split()) for key in keys)) if len(keys) > 1 else set()
    names = [" ".join(word for word in key.name.split() if word not in common) for key in keys]
    return [
        f"{name if len(name) <= ROW_NAME else name[: ROW_NAME - 1] + '…'} {key.metric}"
        for name, key in zip(names, keys, strict=True)
    ]


def cliffs_of_epochs(result: Result) -> Chart | None:
    return _times_against_counts(result, EPOCHS)


def cliffs_of_threads(result: Result) -> Chart | None:
    return _times_against_counts(result, THREADS)


def cliffs_of_memory(result: Result) -> Chart | None:
    return _times_against_counts(result, MEMORY)


def cliffs_in_bytes(result: Result) -> Chart | None:
    sweep = Sweep(result)
    return _against_counts(sweep, [(kind, cost) for kind in sweep.kinds for cost in kind.memory])


CLIFFS = (
    "Cost of one against how many there are, each axis logarithmic. The title of a panel says temporal-slab's reading: "
    "flat if one costs at most 1.3 times as much with 100 times as many, else it bends."
)
ENTRIES = (
    Entry(
        "latency-percentiles",
        "Latency percentiles",
        "Each call timed by the cycle counter, the counter's own cost subtracted; medians over the rounds. 0 ns: the "
        "counter saw nothing beyond its own cost.",
        "latency",
        latency_percentiles,
    ),
    Entry(
        "latency-cdf",
        "Latency distribution",
        "Further left is better; each step up is another part of the tail.",
        "latency",
        latency_cdf,
    ),
    Entry(
        "latency-comparison",
        "Latency across allocators",
        "Medians; whiskers are the intervals of the rounds.",
        "latency",
        latency_comparison,
    ),
    Entry(
        "rss-comparison",
        "Resident memory across allocators",
        "Medians; less is better.",
        "churn and burst",
        rss_comparison,
    ),
    Entry(
        "rss-over-time",
        "Resident memory over time",
        "One round's curve. A flat line is the aim on the left, a falling one on the right.",
        "churn and burst",
        rss_over_time,
    ),
    Entry(
        "scaling",
        "Scaling",
        "Every thread's work over the time until the last has finished, against the same "
        "allocator's single thread. The dashed line is ideal on this machine's cores; the dotted one is a loop that "
        "allocates nothing.",
        "threads",
        scaling,
    ),
    Entry(
        "p99-threads",
        "99th percentile against threads",
        "Of single mallocs, by the cycle counter. With more threads than cores this includes the scheduler.",
        "threads",
        p99_threads,
    ),
    Entry(
        "fragmentation",
        "Fragmentation",
        "Resident memory that holds nothing asked for: rounding, headers, and pages partly used.",
        "fragmentation",
        fragmentation,
    ),
    Entry(
        "slab-lifecycle",
        "Slab lifecycle of temporal-slab",
        "What became of its slabs in one run of each workload, by its own counters.",
        "random-mixed, churn, remote, burst or request, with temporal-slab",
        slab_lifecycle,
    ),
    Entry("cliffs-epochs", "Many epochs", CLIFFS, "cliffs", cliffs_of_epochs),
    Entry("cliffs-threads", "Many threads", CLIFFS, "cliffs", cliffs_of_threads),
    Entry("cliffs-memory", "Many blocks, buffers and free runs", CLIFFS, "cliffs", cliffs_of_memory),
    Entry("cliffs-bytes", "Resident bytes of one of many", CLIFFS, "cliffs", cliffs_in_bytes),
)


# ---- shared by the charts ----


def _times_against_counts(result: Result, group: str) -> Chart | None:
    """A panel for each kind with its first time; the figures hold the others as well."""
    sweep = Sweep(result)
    kinds = [kind for kind in sweep.kinds if kind.group == group]
    others = [(kind, cost) for kind in kinds for cost in kind.time[1:]]
    return _against_counts(sweep, [(kind, kind.time[0]) for kind in kinds], others)


def _against_counts(
    sweep: Sweep, panels: Sequence[tuple[Kind, Cost]], only_figures: Sequence[tuple[Kind, Cost]] = ()
) -> Chart | None:
    if not panels:
        return None
    figure, axes = _grid(len(panels))
    rows = [
        row
        for kind, cost in (*panels, *only_figures)
        for name in sweep.result.measured
        if (row := _count_row(sweep, kind, cost, name))
    ]
    for axis, (kind, cost) in zip(axes, panels, strict=True):
        _count_panel(sweep, axis, kind, cost)
    return _finish(figure, axes, ["many", "allocator", "cost of one", "1 ×", "10 ×", "100 ×", "reading"], rows)


def _count_row(sweep: Sweep, kind: Kind, cost: Cost, name: str) -> list[str] | None:
    values = [sweep.value(kind, cost, count, name) for count in kind.counts]
    if not any(values):
        return None
    cells = [quantity(cost.metric, v.point) if v else "none" for v in values]
    reading = sweep.reading(kind, cost, name)
    return [kind.things, name, cost.words, *cells, reading.words if reading else "none"]


def _count_panel(sweep: Sweep, axis: Axes, kind: Kind, cost: Cost) -> None:
    for name in sweep.result.measured:
        points = [(count, sweep.value(kind, cost, count, name)) for count in kind.counts]
        known = [(count, cost.resolved(value.point)) for count, value in points if value]
        if known:
            axis.plot(*zip(*known, strict=True), **_line(sweep.result, name))
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(kind.counts, [f"{count:,}" for count in kind.counts])
    axis.xaxis.set_minor_locator(NullLocator())
    _span_a_decade(axis)
    axis.yaxis.set_major_locator(LogLocator(base=2) if cost.is_memory else LogLocator(subs=(1, 3)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(cost.metric, value)))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.tick_params(labelsize=8)
    axis.set_xlabel(kind.things, fontsize=8)
    axis.set_ylabel(cost.words, fontsize=8)
    reading = sweep.reading(kind, cost, sweep.result.ours)
    axis.set_title(f"{kind.name}: {reading.words}" if reading else kind.name, loc="left", fontsize=9)


def _span_a_decade(axis: Axes) -> None:
    """Keeps a flat line flat: an axis that fits its data alone would show noise as a slope."""
    low, high = axis.dataLim.y0, axis.dataLim.y1
    if 0 < low <= high < 10 * low:
        middle = math.sqrt(low * high)
        axis.set_ylim(middle / math.sqrt(10) / 1.5, middle * math.sqrt(10) * 1.5)


def _grid(panels: int) -> tuple[Figure, list[Axes]]:
    """Fixed margins, in inches: to compute them takes as long as to draw the panels."""
    rows = -(-panels // GRID_COLUMNS)
    above, below, height = 0.3, 0.9, 2.5
    tall = above + height * rows + below - 0.6  # the last row has no gap below it
    figure = Figure(figsize=(10.5, tall))
    figure.subplots_adjust(left=0.085, right=0.96, wspace=0.38, top=1 - above / tall, bottom=below / tall, hspace=0.4)
    axes = list(figure.subplots(rows, GRID_COLUMNS, squeeze=False).flat)
    for unused in axes[panels:]:
        unused.remove()
    return figure, axes[:panels]


def _threads(result: Result, metric: str, *, ideal: bool) -> Chart | None:
    cases = [case for case in result.data["cases"] if case["workload"] == "threads"]
    modes = list(dict.fromkeys(_option(case, "mode") for case in cases))
    if not cases:
        return None
    median = Medians(result)
    figure, axes = _figure(len(modes))
    rows = []
    cores = result.data["machine"]["cores"]
    counts = sorted({int(_option(case, "threads")) for case in cases})
    for axis, mode in zip(axes, modes, strict=True):
        of_mode = sorted(
            (case for case in cases if _option(case, "mode") == mode), key=lambda c: int(_option(c, "threads"))
        )
        for name in result.measured:
            points = [(int(_option(case, "threads")), median(case["name"], metric, name)) for case in of_mode]
            known = [(threads, point.point) for threads, point in points if point]
            if known:
                axis.plot(*zip(*known, strict=True), **_line(result, name))
                shown = dict(known)
                rows.append([mode, name, *(f"{shown[count]:.3g}" if count in shown else "none" for count in counts)])
        if ideal:
            axis.plot(counts, [min(count, cores) for count in counts], "--", color=INK, linewidth=1, label="ideal")
            loop = [
                (t, m.point)
                for case in of_mode
                for t in [int(_option(case, "threads"))]
                if (m := median(case["name"], "loop_scaling_ratio", result.baseline))
            ]
            if loop:
                axis.plot(*zip(*loop, strict=True), ":", color=INK, linewidth=1, label="allocation-free loop")
            axis.set_ylim(bottom=0)
        else:
            _times(axis, "y")
        axis.set_xscale("log", base=2)
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.set_xlabel(f"threads, on {cores} cores")
        axis.set_title(f"{mode} sizes: " + ("throughput, one thread is 1" if ideal else "p99 of malloc"), loc="left")
    return _finish(figure, axes, ["sizes", "allocator", *(f"{count} threads" for count in counts)], rows)


def _bars(result: Result, panels: Sequence[tuple[str, str, str, float]]) -> Chart | None:
    if not panels:
        return None
    median = Medians(result)
    figure, axes = _figure(len(panels))
    rows = []
    for axis, (case, metric, title, scale) in zip(axes, panels, strict=True):
        found = [(name, median(case, metric, name)) for name in result.measured]
        _bar_panel(result, axis, found, title, scale)
        rows += [
            [title, name, quantity(metric, m.point), f"{quantity(metric, m.low)} … {quantity(metric, m.high)}"]
            for name, m in found
            if m
        ]
    for axis in axes[1:]:
        axis.set_yticklabels([])
    return _finish(figure, axes, ["figure", "allocator", "median", "interval"], rows, legend=False)


def _bar_panel(
    result: Result, axis: Axes, found: Sequence[tuple[str, Interval | None]], title: str, scale: float
) -> None:
    for place, (name, interval) in enumerate(found):
        if interval is None:
            axis.text(0, place, " no figure", va="center", fontsize=8)
            continue
        value = interval.point / scale
        reach = [[value - interval.low / scale], [interval.high / scale - value]]
        axis.barh(
            place, value, 0.65, color=_style(result, name)[0], xerr=reach, error_kw={"ecolor": INK, "elinewidth": 1}
        )
        label = f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"
        axis.text(interval.high / scale, place, f"  {label}", va="center", fontsize=8)
    axis.set_yticks(range(len(found)), [name for name, _ in found])
    axis.invert_yaxis()
    axis.margins(x=0.2)
    axis.set_title(title, loc="left")
    axis.grid(axis="y", visible=False)


def _largest(result: Result, workload: str, option: str = "", fallback: str = "") -> str | None:
    """The measured case of a workload that ran longest and so says most; with `option`, one that has it if any does."""
    cases = [
        case
        for case in result.data["cases"]
        if case["workload"] == workload and any(result.runs(case["name"], "", name) for name in result.measured)
    ]
    preferred = [
        case
        for case in cases
        if f"--{option}" in case["options"]
        or (option == "mode=churn" and not any(o.startswith("--mode=") for o in case["options"]))
    ]
    chosen = preferred or (cases if fallback or not option else [])
    if not chosen:
        return None

    def size(case: dict[str, list[str]]) -> int:
        return max(
            (int(o.partition("=")[2]) for o in case["options"] if re.fullmatch(r"--(cycles|mib)=\d+", o)), default=0
        )

    hundred_thousand = [case for case in chosen if "--objects=100000" in case["options"]]
    return str(max(hundred_thousand or chosen, key=size)["name"])


def _option(case: dict[str, list[str]], name: str) -> str:
    return next((o.partition("=")[2] for o in case["options"] if o.startswith(f"--{name}=")), "")


def _style(result: Result, name: str) -> tuple[str, str]:
    if name in STYLES:
        return STYLES[name]
    strangers = [other for other in result.allocators if other not in STYLES]
    return SPARE[strangers.index(name) % len(SPARE)]


def _times(axis: Axes, which: Literal["x", "y"]) -> None:
    """A logarithmic axis of durations, labelled in their usual units; linear below 1 ns where it has to show 0."""
    scale = axis.xaxis if which == "x" else axis.yaxis
    least = axis.dataLim.x0 if which == "x" else axis.dataLim.y0
    if least > 0:
        (axis.set_xscale if which == "x" else axis.set_yscale)("log")
        scale.set_major_locator(LogLocator(subs=(1, 3)))
    else:
        (axis.set_xscale if which == "x" else axis.set_yscale)("symlog", linthresh=1, linscale=0.5)
        scale.set_major_locator(SymmetricalLogLocator(linthresh=1, base=10, subs=(1, 3)))
    scale.set_major_formatter(FuncFormatter(lambda value, _: quantity("_ns", value)))
    scale.set_minor_formatter(NullFormatter())


def _line(result: Result, name: str) -> dict[str, Any]:
    colour, marker = _style(result, name)
    ours = name == result.ours
    return {
        "color": colour,
        "marker": marker,
        "label": name,
        "linewidth": 2.6 if ours else 1.3,
        "markersize": 6 if ours else 4,
        "zorder": 5 if ours else 3,
    }


def _figure(panels: int, ratios: Sequence[float] | None = None) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(10.5, 3.9), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False, width_ratios=ratios)[0]
    return figure, list(axes)


def _finish(
    figure: Figure, axes: Sequence[Axes], head: list[str], rows: list[list[str]], *, legend: bool = True
) -> Chart | None:
    if not rows:
        return None
    if legend:
        handles, labels = axes[0].get_legend_handles_labels()
        place: Literal["outside lower center", "lower center"]
        place = "outside lower center" if figure.get_layout_engine() else "lower center"
        figure.legend(handles, labels, loc=place, ncols=min(len(labels), LEGEND_COLUMNS), fontsize=9)
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": repr((head, rows))}):  # two charts of one layout share a page
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor").replace(GRID, "var(--grid)")
    return Chart(re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'width="100%"', svg, count=1), (head, rows))
