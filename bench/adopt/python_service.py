#!/usr/bin/env python3
"""A Python service of eight threads: requests that build rows of text and numbers, then rest.

python3 bench/adopt/python_service.py build/release/libtslab.so.0
"""

import subprocess
import sys
import time

import adopt

REST_SECONDS = 4
SERVICE = """
import json, random, sys, threading
kept = {}
def serve(thread):
    numbers = random.Random(thread)
    for request in range(15):
        rows = [{"id": i, "text": "x" * numbers.randrange(500, 4000)} for i in range(1000)]
        answer = json.loads(json.dumps(rows))
        kept[thread, request % 5] = answer[0]["text"]
threads = [threading.Thread(target=serve, args=(i,)) for i in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("served", flush=True)
sys.stdin.read()
"""


def measure(environment: dict[str, str]) -> list[float]:
    words = [sys.executable, "-c", SERVICE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    service = subprocess.Popen(words, env=environment, text=True, **pipes)  # type: ignore[call-overload]
    assert service.stdout.readline() == "served\n"
    at_end = adopt.resident(service.pid)
    time.sleep(REST_SECONDS)
    rest = adopt.resident(service.pid)
    service.stdin.close()
    service.wait(60)
    return [at_end / adopt.MIB, rest / adopt.MIB]


if __name__ == "__main__":
    adopt.table("Python, eight threads, resident MiB", ["at the last request's end", "4 s later"], measure)
