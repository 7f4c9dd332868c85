"""The commands, one module each: its docstring is its help, `prepare` adds its options, `run` does it."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tslab.errors import LabError

COMMANDS = (
    "run", "ps", "top", "stats", "doctor", "samples", "profile", "holders", "advise", "diff", "export", "fields",
    "record", "replay", "bench", "report", "contention", "ab", "verdict", "completion",
)  # fmt: skip


# `pip install tslab` leaves these out: 260 MB that only measurements and reports need.
OF_THE_LAB = ("numpy", "scipy", "matplotlib", "jinja2")


def load(name: str) -> ModuleType:
    """One at a time: a reader of a process in trouble does not wait for the lab's libraries."""
    try:
        return import_module(f"tslab.commands.{name}")
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] not in OF_THE_LAB:
            raise
        raise LabError(f"needs {error.name}, which is not installed: pip install 'tslab[lab]'") from error


def documentation(name: str) -> str:
    """The command's docstring, read without importing what the command needs."""
    tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").strip()
