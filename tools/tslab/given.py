"""Checks of a person's input: numbers, and places for files that take long to make."""

from __future__ import annotations

import argparse
import math
import os
import re
from pathlib import Path

from tslab.errors import LabError

_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30}


def minutes(text: str) -> float:
    """For argparse: a time that ends."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (0 < number <= 7 * 24 * 60):
        raise argparse.ArgumentTypeError(f"a number of minutes, above 0 and a week at most, not '{text}'")
    return number


def size(text: str) -> int | None:
    """Returns the bytes of a size as the library's settings have it, such as 512K or 8M; None if it is none."""
    found = re.fullmatch(r"(\d{1,15})([KMG]?)", text, re.ASCII)
    return int(found[1]) << _SHIFTS[found[2]] if found else None


def place_for(path: Path) -> Path:
    """Returns the path if a file can be written there. Called before the long work for it begins."""
    folder = path.parent
    if path.is_dir():
        raise LabError(f"{path} is a directory: name a file in it")
    if not folder.is_dir():
        raise LabError(f"cannot write {path}: there is no directory {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise LabError(f"cannot write {path}: it is not yours to write")
    return path
