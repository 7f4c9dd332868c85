"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Callable


def quantity(metric: str, value: float) -> str:
    """A figure in the unit that its metric's name ends in."""
    for suffix, format_ in _UNITS.items():
        if metric.endswith(suffix):
            return format_(value)
    return f"{value:.4g}"


def rate_text(value: float) -> str:
    return f"{value / 1e6:.2f} M/s" if value >= 1e6 else f"{value / 1e3:.1f} k/s" if value >= 1e3 else f"{value:.1f} /s"


def time_text(value: float) -> str:
    if abs(value) < 0.05:  # no clock tells that from nothing
        return "0 ns"
    for limit, unit in ((1e3, "ns"), (1e6, "µs"), (1e9, "ms")):
        if abs(value) < limit:
            return f"{value / (limit / 1e3):.3g} {unit}"
    return f"{value / 1e9:.3g} s" if abs(value) < 1e12 else f"{value / 1e9:,.0f} s"


def bytes_text(value: float) -> str:
    for limit, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(value) >= limit:
            return f"{value / limit:.1f} {unit}"
    return f"{value:.0f} bytes"


def share_text(value: float | None) -> str:
    """A share as percent; what has no share, because there was nothing to share, is a dash."""
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
