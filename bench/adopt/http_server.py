#!/usr/bin/env python3
"""examples/http_server.c, with an epoch a request, against the same server with malloc and free under each allocator.

python3 bench/adopt/http_server.py build/release/libtslab.so.0
                            Debian packages: libmicrohttpd-dev libjansson-dev apache2-utils
"""

import contextlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import adopt

NUMBERS, REQUESTS, CLIENTS = (20, 200, 700, 2000), 400, 4  # numbers in a body; requests of each in a burst
SOURCES = {"0": Path(__file__).resolve().with_name("http_plain.c"), "1": adopt.ROOT / "examples" / "http_server.c"}
p99: dict[str, list[float]] = {}


def compiled(source: Path, folder: str, environment: adopt.Environment) -> str:
    flags = ["-O2", "-I", str(adopt.ROOT / "include"), "-o", f"{folder}/server"]
    ours = [environment["LD_PRELOAD"]] if "tslab/tslab.h" in source.read_text() else []
    words = ["cc", *flags, str(source), "-lmicrohttpd", "-ljansson", *ours]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        raise adopt.MissingError("the server cannot be built: apt-get install libmicrohttpd-dev libjansson-dev")
    return f"{folder}/server"


def work(port: int, folder: str, name: str) -> None:
    ab = adopt.needed("ab", "apache2-utils")
    for count in NUMBERS:
        words = [ab, "-q", "-k", "-n", str(REQUESTS), "-c", str(CLIENTS), "-e", f"{folder}/times"]
        words += ["-p", f"{folder}/{count}.json", "-T", "application/json", f"http://127.0.0.1:{port}/"]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        assert re.search(rf"Complete requests: +{REQUESTS}\nFailed requests: +0\n", said), said
        times = dict(line.split(",") for line in Path(folder, "times").read_text().splitlines()[1:])
        p99.setdefault(name, []).append(float(times["99"]))


@contextlib.contextmanager
def start(environment: adopt.Environment) -> Iterator[adopt.Program]:
    adopt.needed("ab", "apache2-utils")
    epochs = environment.get("ADOPT_EPOCHS", "0")
    name = f"{Path(environment['LD_PRELOAD']).name}{' with epochs' if epochs == '1' else ''}"
    name += ", two arenas" if "MALLOC_ARENA_MAX" in environment else ""
    with tempfile.TemporaryDirectory() as folder:
        server = compiled(SOURCES[epochs], folder, environment)
        for count in NUMBERS:
            numbers = random.Random(count)
            Path(folder, f"{count}.json").write_text(str([numbers.randrange(1000) for _ in range(count)]))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen([server, "0"], env=environment, **pipes)  # type: ignore[call-overload]
        port = int(process.stdout.readline().split()[1])
        yield adopt.Program(process.pid, lambda _: work(port, folder, name))
        process.communicate()


if __name__ == "__main__":
    columns = ["at the last request's end", "4 s later"]
    status = adopt.compare("An HTTP server in C", columns, start, epochs=True)
    for name, times in p99.items():
        print(f"{name}: p99 {statistics.median(times):.3f} ms [{min(times):.3f} … {max(times):.3f}]")
    sys.exit(status)
