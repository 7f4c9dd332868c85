#!/usr/bin/env python3
"""A Python service of eight threads: requests that build rows of text and numbers, then rest.

python3 bench/adopt/python_service.py build/release/libtslab.so.0
"""

import sys

import adopt

SERVICE = """
import json, random, sys, threading
from concurrent.futures import ThreadPoolExecutor
kept = {}
def serve(request):
    numbers = random.Random(request)
    rows = [{"id": i, "text": "x" * numbers.randrange(500, 4000)} for i in range(1000)]
    answer = json.loads(json.dumps(rows))
    kept[request % 40] = answer[0]["text"]
with ThreadPoolExecutor(8) as threads:
    for line in sys.stdin:
        list(threads.map(serve, range(int(line) * 24, int(line) * 24 + 24)))
        print("served", flush=True)
"""


if __name__ == "__main__":
    columns = ["at the last request's end", "4 s later"]
    start = lambda environment: adopt.worker([sys.executable, "-c", SERVICE], environment)  # noqa: E731
    sys.exit(adopt.compare("Python, eight threads", columns, start))
