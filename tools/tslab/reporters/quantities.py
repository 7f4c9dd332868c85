"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Callable

from tslab.estimate import Estimate


def quantity(metric: str, value: float) -> str:
    """A figure in the unit that its metric's name ends in."""
    for suffix, format_ in _UNITS.items():
        if metric.endswith(suffix):
            return format_(value)
    return f"{value:.4g}"


def rate_text(value: float) -> str:
    size = abs(value)
    return f"{value / 1e6:.2f} M/s" if size >= 1e6 else f"{value / 1e3:.1f} k/s" if size >= 1e3 else f"{value:.1f} /s"


def time_text(value: float) -> str:
    if abs(value) < 0.05:  # no clock tells that from nothing
        return "0 ns"
    for limit, unit in ((1e3, "ns"), (1e6, "µs"), (1e9, "ms")):
        if abs(value) < limit:
            return f"{value / (limit / 1e3):.3g} {unit}"
    return f"{value / 1e9:.3g} s" if abs(value) < 1e12 else f"{value / 1e9:,.0f} s"


_UNITS_OF_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def bytes_text(value: float) -> str:
    for limit, unit in _UNITS_OF_BYTES:
        if abs(value) >= limit:
            return f"{value / limit:.1f} {unit}"
    return f"{value:.0f} bytes"


def range_text(least: float, most: float, sign: str = "") -> str:
    """Both ends in one unit: 3.4 to 4.5 MiB, or 632 to 1,094 KiB. With "+" as `sign` both have one."""
    low, high = sorted((abs(least), abs(most)))
    unit, name = next(((unit, name) for unit, name in _UNITS_OF_BYTES if low >= unit or high >= 2 * unit), (1, "bytes"))
    digits = 0 if unit == 1 or high >= 100 * unit else 1
    ends = (f"{end / unit:{sign},.{digits}f}" if end else "0" for end in (least, most))
    return f"{' to '.join(ends)} {name}"


def interval_text(found: Estimate | None, sign: str = "") -> str:
    """The interval of an estimate, or a dash if it is not known."""
    if found is None:
        return "–"
    return "exact" if found.is_exact else range_text(found.least, found.most, sign)


def share_text(value: float | None) -> str:
    """A share as percent, or a dash if there was nothing to share."""
    if value is None:
        return "–"
    if 0 < value < 1e-5:
        return "<0.001 %"
    return f"{100 * value:.1f} %" if value == 0 or value >= 0.001 else f"{100 * value:.2g} %"


_UNITS: dict[str, Callable[[float], str]] = {
    "_per_s": rate_text,
    "_ns": time_text,
    "_bytes": bytes_text,
    "_pct": "{:.2f} %".format,
    "_ratio": "{:.3f}".format,
}


# ---- short forms, for columns ----------------------------------------------------------------------------------------


def short_bytes(value: float) -> str:
    """As ps and top write them: 582.9K, 1.2M; K is 1,024."""
    for power, unit in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if abs(value) >= 999.95 * 1024 ** (power - 1):
            return f"{value / 1024**power:.1f}{unit}"
    return f"{value:.0f}"


def short_interval(found: Estimate | None) -> str:
    if found is None:
        return "–"
    return "exact" if found.is_exact else f"{short_bytes(found.least)}–{short_bytes(found.most)}"


def short_count(value: float) -> str:
    """Whole below 100,000; then 515.8M, where M is a million."""
    if abs(value) < 99_999.5:
        return f"{value:,.0f}"
    for limit, unit in ((999.95e3, "k"), (999.95e6, "M"), (999.95e9, "G"), (999.95e12, "T")):
        if abs(value) < limit:
            return f"{value * 1e3 / (limit / 0.99995):.1f}{unit}"
    return f"{value:.1e}"


def short_rate(value: float | None) -> str:
    return (
        "–"
        if value is None
        else "0"
        if abs(value) < 0.05
        else f"{value:.1f}"
        if abs(value) < 10
        else short_count(value)
    )


def short_time(value: float | None) -> str:
    """0 ns to 999 days, three or four characters and a unit."""
    if value is None:
        return "–"
    seconds = value / 1e9
    if seconds < 100:
        return time_text(value).replace(" ", "")
    for length, unit, below in ((60, "min", 100), (3600, "h", 100)):
        if seconds < below * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def signed(text: str, value: float) -> str:
    return f"+{text}" if value > 0 else text
