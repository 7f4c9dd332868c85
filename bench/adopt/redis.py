#!/usr/bin/env python3
"""redis-server: 100,000 values of 24 to 1,500 bytes, of which seven of eight expire; then it is left alone.

python3 bench/adopt/redis.py build/release/libtslab.so.0        Debian package: redis-tools
"""

import random
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import adopt

KEYS, REST_SECONDS = 100_000, 4


def encoded(words: list[str]) -> str:
    return f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)


def send(connection: socket.socket, commands: list[list[str]]) -> None:
    connection.sendall("".join(map(encoded, commands)).encode())
    left = len(commands)
    while left:
        left -= connection.recv(1 << 16).count(b"\n")


def in_batches(connection: socket.socket, commands: list[list[str]]) -> None:
    for i in range(0, len(commands), 1000):
        send(connection, commands[i : i + 1000])


def measure(environment: dict[str, str]) -> list[float]:
    numbers = random.Random(1)
    found = shutil.which("redis-server") or shutil.which("redis-check-rdb")  # one program, which goes by its name
    assert found, "redis-tools is not installed"
    with tempfile.TemporaryDirectory() as folder:
        program, at = Path(folder, "redis-server"), Path(folder, "socket")
        program.symlink_to(Path(found).resolve())
        words = [str(program), "--port", "0", "--unixsocket", str(at), "--save", "", "--dir", folder]
        server = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, text=True)
        while not at.exists():
            time.sleep(0.05)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(at))
        keys = [f"key:{i}" for i in range(KEYS)]
        in_batches(connection, [["SET", key, "x" * numbers.randrange(24, 1500)] for key in keys])
        at_full = adopt.resident(server.pid)
        time.sleep(REST_SECONDS)
        full = adopt.resident(server.pid)
        numbers.shuffle(keys)
        in_batches(connection, [["DEL", key] for key in keys[: KEYS * 7 // 8]])
        time.sleep(REST_SECONDS)
        rest = adopt.resident(server.pid)
        adopt.ended(server)
    return [at_full / adopt.MIB, full / adopt.MIB, rest / adopt.MIB]


if __name__ == "__main__":
    adopt.table(
        "redis-server, resident MiB",
        ["full, at once", "full, 4 s later", "4 s after seven of eight keys went"],
        measure,
    )
