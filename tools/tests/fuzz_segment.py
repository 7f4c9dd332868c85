"""Damaged segments for as long as you like: each is read sanely or refused, and nothing else.

.venv/bin/python tools/tests/fuzz_segment.py [SECONDS]      600 without an argument

The seed that failed is printed, and the segment kept.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import segments

from tslab.errors import Unreadable
from tslab.figures import document
from tslab.segment import HEADER, Fetch, of_bytes, read_layout, read_snapshot

BATCH = 1000


def counted(data: bytes, budget: int) -> Fetch:
    """Bytes of `data`; a reader that asks for more than it may need is caught here."""
    fetch, asked = of_bytes(data), 0

    def take(offset: int, size: int) -> bytes:
        nonlocal asked
        assert 0 <= size <= max(len(data), HEADER.size), f"{size} bytes asked for at {offset} of {len(data)}"
        asked += size
        assert asked <= budget, f"{asked} bytes read of {len(data)}"
        return fetch(offset, size)

    return take


def read_one(data: bytes) -> bool:
    """Whether it was believed. Anything but Unreadable is a defect of the reader."""
    fetch = counted(data, 8 * len(data) + 1024)
    try:
        layout = read_layout(fetch, len(data))
        snapshot = read_snapshot(fetch, layout, attempts=1)
        found = document(layout, snapshot, None)
    except Unreadable as error:
        assert str(error).isprintable(), repr(str(error))
        assert len(str(error)) < 2000
        return False
    assert len(json.dumps(found)) < 64 * len(data) + 65536
    return True


def main() -> int:
    end = time.monotonic() + (float(sys.argv[1]) if len(sys.argv) > 1 else 600.0)
    first = random.SystemRandom().randrange(2**32)
    believed = refused = 0
    originals = [bytes(segments.small_segment()), bytes(segments.make(segments.published(most=2), {}))]
    for seed in itertools.count(first):
        original = originals[seed % 16 == 0]
        for index, data in enumerate(itertools.islice(segments.damaged(original, seed), BATCH)):
            try:
                good = read_one(data)
            except Exception as error:
                kept = Path(tempfile.gettempdir()) / f"tslab-fuzz-{seed}.seg"
                kept.write_bytes(data)
                print(f"seed {seed}, copy {index}: {type(error).__name__}: {error}; the segment is {kept}")
                return 1
            believed, refused = believed + good, refused + (not good)
        if time.monotonic() > end:
            print(f"{believed + refused} damaged segments: {refused} refused, {believed} read; first seed {first}")
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
