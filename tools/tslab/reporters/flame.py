"""The heap profile as one page: the bytes that each call stack holds and allocated, with callers above callees.

The page is whole: it asks for nothing, neither scripts nor fonts, and fits a telephone and both colour schemes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from tslab.estimate import estimate
from tslab.sites import CLOSING, PLAIN, HeapProfile, Holder
from tslab.symbolize import Symbolizer

UNLISTED = "(a call site that is not listed)"
UNKNOWN = "(stack not known)"


def page(profile: HeapProfile, symbolizer: Symbolizer, title: str, about: str) -> str:
    """The symbolizer has learnt the profile's addresses."""
    stacks = {site.number: _names(site.stack, symbolizer) for site in profile.sites}
    held = _tree(
        (
            ((_where(one), *stacks.get(one.site, (UNLISTED,))), one.bytes, one.error_bytes, one.reach)
            for one in profile.holders
        ),
        "in use",
    )
    allocated = _tree(
        ((stacks[one.number], one.allocated_bytes, one.allocated_error_bytes, one.reach) for one in profile.sites),
        "allocated since the start",
    )
    trees = [{"name": "in use", "root": held}, {"name": "allocated", "root": allocated}]
    text = json.dumps({"title": title, "about": about, "trees": trees}, ensure_ascii=False, separators=(",", ":"))
    template = (resources.files("tslab.reporters") / "flame.html").read_text(encoding="utf-8")
    return template.replace("@DATA@", text.replace("<", "\\u003c"))  # no name can end the script


def _where(holder: Holder) -> str:
    if holder.state == PLAIN:
        return "plain malloc"
    label = f"“{holder.label}”" if holder.label else "without a label"
    return f"{'closed' if holder.state == CLOSING else 'open'} epochs {label}"


def _names(stack: tuple[int, ...], symbolizer: Symbolizer) -> tuple[str, ...]:
    """From the outermost caller to the innermost function."""
    names: list[str] = []
    for place in reversed(symbolizer.callers(stack)):
        names += [frame.function for frame in reversed(place.frames)] if place.frames else [place.text]
    return tuple(names) or (UNKNOWN,)


@dataclass
class _Node:
    name: str
    value: int = 0
    squares: float = 0.0  # of the errors; no number where one of them is not known
    reaches: float = 0.0  # times bytes
    parts: dict[str, _Node] = field(default_factory=dict)

    def add(self, value: int, error: int | None, reach: float) -> None:
        self.value += value
        self.squares += math.nan if error is None else float(error) ** 2
        self.reaches += value * reach


def _tree(stacks: Iterable[tuple[tuple[str, ...], int, int | None, float]], name: str) -> dict[str, Any]:
    root = _Node(name)
    for names, value, error, reach in stacks:
        if value == 0:
            continue
        node = root
        node.add(value, error, reach)
        for part in names:
            node = node.parts.setdefault(part, _Node(part))
            node.add(value, error, reach)
    return _largest_first(root)


def _largest_first(node: _Node) -> dict[str, Any]:
    parts = sorted(node.parts.values(), key=lambda part: (-part.value, part.name))
    found: dict[str, Any] = {"name": node.name, "value": node.value}
    if node.value and not math.isnan(node.squares):
        ends = estimate(node.value, math.sqrt(node.squares), node.reaches / node.value)
        found |= {"least": round(ends.least), "most": round(ends.most)}
    return found | {"children": [_largest_first(part) for part in parts]} if parts else found
