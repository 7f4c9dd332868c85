#!/usr/bin/env python3
"""redis-server: 100,000 values of 24 to 1,500 bytes are set, read and replaced; then seven of eight go.

python3 bench/adopt/redis.py build/release/libtslab.so.0        Debian package: redis-tools
"""

import contextlib
import random
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import adopt

KEYS, REPLACED = 100_000, 40_000


def encoded(words: list[str]) -> str:
    return f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)


def send(connection: socket.socket, commands: list[list[str]]) -> None:
    connection.sendall("".join(map(encoded, commands)).encode())
    left = len(commands) * (2 if commands[0][0] == "GET" else 1)  # a value comes after a line that tells its length
    while left:
        left -= connection.recv(1 << 16).count(b"\n")


def in_batches(connection: socket.socket, commands: list[list[str]]) -> None:
    for i in range(0, len(commands), 1000):
        send(connection, commands[i : i + 1000])


def fill(connection: socket.socket) -> list[str]:
    numbers, keys = random.Random(1), [f"key:{i}" for i in range(KEYS)]
    in_batches(connection, [["SET", key, "x" * numbers.randrange(24, 1500)] for key in keys])
    return keys


def work(connection: socket.socket, keys: list[str], burst: int) -> None:
    numbers = random.Random(burst)
    some = [keys[numbers.randrange(KEYS)] for _ in range(REPLACED)]
    in_batches(connection, [["GET", key] for key in some])
    in_batches(connection, [["SET", key, "x" * numbers.randrange(24, 1500)] for key in some])


def expire(connection: socket.socket, keys: list[str]) -> None:
    random.Random(1).shuffle(keys)
    in_batches(connection, [["DEL", key] for key in keys[: KEYS * 7 // 8]])


@contextlib.contextmanager
def start(environment: adopt.Environment) -> Iterator[adopt.Program]:
    found = shutil.which("redis-server") or shutil.which("redis-check-rdb")  # one program, which goes by its name
    if found is None:
        raise adopt.MissingError("redis-server is not here: apt-get install redis-tools")
    with tempfile.TemporaryDirectory() as folder:
        program, at = Path(folder, "redis-server"), Path(folder, "socket")
        program.symlink_to(Path(found).resolve())
        words = [str(program), "--port", "0", "--unixsocket", str(at), "--save", "", "--dir", folder]
        with adopt.server(words, environment) as process, socket.socket(socket.AF_UNIX) as connection:
            while not at.exists():
                time.sleep(0.05)
            connection.connect(str(at))
            keys = fill(connection)
            yield adopt.Program(
                process.pid, lambda burst: work(connection, keys, burst), lambda: expire(connection, keys)
            )


if __name__ == "__main__":
    columns = ["full, at once", "full, 4 s later", "4 s after seven of eight keys went"]
    sys.exit(adopt.compare("redis-server", columns, start))
