"""The commands, one module each: its docstring is its help, `prepare` adds its options, `run` does it."""

from __future__ import annotations

from types import ModuleType

from tslab.commands import ab, bench, report, verdict

COMMANDS: dict[str, ModuleType] = {"bench": bench, "report": report, "ab": ab, "verdict": verdict}
