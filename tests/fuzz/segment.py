"""Segments of any bytes for the reader of what a process publishes, guided by what of the reader they reach.

tests/fuzz/run segment SECONDS runs it; the arguments are libFuzzer's. Each segment is read sanely or refused, and
nothing else: tools/tests/segments.py judges.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "tests"))
with atheris.instrument_imports(include=["tslab.segment", "tslab.figures"]):
    import segments


def read(data: bytes) -> None:
    segments.read_one(data)


def change(data: bytes, max_size: int, seed: int) -> bytes:
    """By turns as libFuzzer does, and as who knows where a segment keeps its sizes and offsets."""
    if not data or random.Random(seed).random() < 0.5:
        return bytes(atheris.Mutate(data, max_size))
    return bytes(next(segments.damaged(data, seed))[:max_size])


def main() -> None:
    with tempfile.TemporaryDirectory() as whole:
        originals = (segments.small_segment(), segments.make(segments.published(most=2), {}))
        for i, original in enumerate(originals):
            (Path(whole) / str(i)).write_bytes(original)
        atheris.Setup([*sys.argv, whole], read, custom_mutator=change)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
