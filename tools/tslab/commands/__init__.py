"""The commands, one module each: its docstring is its help, `prepare` adds its options, `run` does it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

COMMANDS = ("run", "stats", "samples", "diff", "fields", "bench", "report", "contention", "ab", "verdict")


def load(name: str) -> ModuleType:
    """One at a time: whoever reads a process in trouble should not wait for the laboratory's libraries."""
    return import_module(f"tslab.commands.{name}")
