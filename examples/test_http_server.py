"""Loads http_server for two seconds: each answer is right, nothing is left of a request, and memory stays flat."""

import http.client
import json
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

SECONDS, CLIENTS, SLACK = 2.0, 4, 8 << 20


def resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) << 10


def client(port: int, end: float, served: list[int]) -> None:
    numbers = random.Random(port)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while time.monotonic() < end:
        sent = [numbers.randrange(1000) for _ in range(numbers.randrange(2000))]
        connection.request("POST", "/", json.dumps(sent))
        got = json.loads(connection.getresponse().read())
        assert got == {"count": len(sent), "sum": float(sum(sent))}, got
        served[0] += 1
    connection.close()


def load(port: int) -> int:
    served = [[0] for _ in range(CLIENTS)]
    end = time.monotonic() + SECONDS / 2
    threads = [threading.Thread(target=client, args=(port, end, count)) for count in served]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(count[0] for count in served)


def main() -> int:
    server = subprocess.Popen([sys.argv[1], "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin and server.stdout
    port = int(server.stdout.readline().split()[1])
    first = load(port)
    before = resident(server.pid)
    second = load(port)
    after = resident(server.pid)
    server.stdin.close()
    said = server.stdout.read()
    print(
        f"{first} + {second} requests; resident {before >> 10} KiB, then {after >> 10} KiB; the server: {said.strip()}"
    )
    words = re.match(r"(\d+) requests, (\d+) allocations, 0 epochs open", said)
    flat = after <= before + SLACK
    return 0 if server.wait() == 0 and words and int(words[1]) == first + second > 0 and flat else 1


if __name__ == "__main__":
    sys.exit(main())
