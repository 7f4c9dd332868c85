"""A batch pipeline with an epoch a batch: the memory of a batch lies apart, and its report counts the blocks that stay.

    PYTHONMALLOC=malloc tslab run -- python batch_pipeline.py

Without the library the same program runs on plain malloc.
"""

import gc
import json
import sys
from collections.abc import Iterator

import tslab

BATCHES, ROWS = 8, 20_000
LEAKY = 5  # a batch that somebody keeps rows of

kept: list[list[str]] = []
totals = [0] * BATCHES  # made before the first batch, because it outlives them all


def read(batch: int) -> Iterator[str]:
    for row in range(ROWS):
        yield json.dumps({"id": batch * ROWS + row, "price": row % 100, "name": f"article {row}"})


def process(batch: int) -> int:
    rows = [json.loads(line) for line in read(batch)]
    rows.sort(key=lambda row: (row["price"], row["name"]))
    if batch == LEAKY:
        kept.append([row["name"] for row in rows])
    return sum(row["price"] for row in rows)


def main() -> int:
    left = []
    for batch in range(BATCHES):
        with tslab.epoch("batch") as epoch:
            totals[batch] = process(batch)
            gc.collect()
        if epoch.report:
            left.append(epoch.report.live_bytes)
            print(f"batch {batch}: sum {totals[batch]}, {epoch.report.live_bytes >> 10} KiB outlived it")
    if not left:
        print("the library is not loaded: no reports")
        return 0
    quiet = max(bytes_left for batch, bytes_left in enumerate(left) if batch not in (0, LEAKY))
    return 0 if left[LEAKY] > quiet + (256 << 10) else 1


if __name__ == "__main__":
    sys.exit(main())
