#!/usr/bin/env python3
"""PHP-FPM, four workers that are kept: feeds of different sizes are built, parsed and searched as XML; then rest.

Of Debian's extensions simplexml alone is loaded: with dom, pdo or mbstring PHP crashes under jemalloc and mimalloc.

python3 bench/adopt/php_fpm.py build/release/libtslab.so.0      Debian packages: php-fpm php-xml
"""

import contextlib
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import adopt

REQUESTS, WORKERS = 100, 4
SCRIPT = Path(__file__).resolve().with_name("feed.php")
CONFIGURATION = """[global]
error_log = {folder}/log
daemonize = no
[www]
listen = {folder}/socket
pm = static
pm.max_children = {workers}
{user}
"""
BEGIN, END, PARAMETERS, INPUT, OUTPUT = 1, 3, 4, 5, 6  # FastCGI's types of records


def record(kind: int, content: bytes) -> bytes:
    return struct.pack("!BBHHBx", 1, kind, 1, len(content), 0) + content


def pair(name: str, value: str) -> bytes:
    return struct.pack("!BL", len(name), len(value) | 1 << 31) + name.encode() + value.encode()


def asked(at: str, query: str) -> bytes:
    """Returns what the worker answers; FastCGI, one request a connection."""
    variables = {"SCRIPT_FILENAME": str(SCRIPT), "REQUEST_METHOD": "GET", "QUERY_STRING": query}
    sent = b"".join(pair(name, value) for name, value in variables.items())
    answer = b""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(at)
        connection.sendall(record(BEGIN, struct.pack("!HB5x", 1, 0)) + record(PARAMETERS, sent))
        connection.sendall(record(PARAMETERS, b"") + record(INPUT, b""))
        with connection.makefile("rb") as stream:
            while True:
                _, kind, _, length, padding = struct.unpack("!BBHHBx", stream.read(8))
                content = stream.read(length + padding)[:length]
                if kind == END:
                    return answer
                answer += content if kind == OUTPUT else b""


def work(at: str, burst: int) -> None:
    numbers = random.Random(burst)

    def client(queries: Iterator[str]) -> None:
        for query in queries:
            answer = asked(at, query)
            assert b"found" in answer, answer[:400]

    adopt.by_clients(WORKERS, [f"items={numbers.randrange(20, 3000)}" for _ in range(REQUESTS)], client)


def program() -> str:
    found = sorted(Path("/usr/sbin").glob("php-fpm*"))
    if not found:
        raise adopt.MissingError("php-fpm is not here: apt-get install php-fpm php-xml")
    if b"SimpleXML" not in subprocess.run([found[-1], "-m"], capture_output=True, check=True).stdout.split():
        raise adopt.MissingError("PHP has no SimpleXML: apt-get install php-xml")
    return str(found[-1])


@contextlib.contextmanager
def start(environment: adopt.Environment) -> Iterator[adopt.Program]:
    with tempfile.TemporaryDirectory() as folder:
        at, settings = f"{folder}/socket", Path(folder, "fpm.conf")
        user = "user = root" if Path("/proc/self").owner() == "root" else ""
        settings.write_text(CONFIGURATION.format(folder=folder, workers=WORKERS, user=user))
        words = [program(), "-n", "-d", "extension=simplexml", "--nodaemonize", "--fpm-config", str(settings)]
        words += ["--allow-to-run-as-root"] if user else []
        with adopt.server(words, environment, stderr=subprocess.DEVNULL) as process:
            while not Path(at).exists():
                assert process.poll() is None, Path(folder, "log").read_text()
                time.sleep(0.05)
            yield adopt.Program(process.pid, lambda burst: work(at, burst))


if __name__ == "__main__":
    sys.exit(adopt.compare("PHP-FPM, four workers", ["at the last request's end", "4 s later"], start))
