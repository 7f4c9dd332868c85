#!/usr/bin/env python3
"""Ruby on Rails under puma, one process of five threads: pages and exports of different sizes, then rest.

python3 bench/adopt/rails.py build/release/libtslab.so.0    Debian packages: ruby-rails ruby-sqlite3 puma
"""

import contextlib
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import adopt

REQUESTS, THREADS = 40, 5
APPLICATION = Path(__file__).resolve().with_name("rails.ru")


def paths(burst: int) -> list[str]:
    numbers = random.Random(burst)
    return [
        f"/export?count={numbers.randrange(10, 200)}"
        if numbers.random() < 0.1
        else f"/posts?from={numbers.randrange(250)}&count={numbers.randrange(1, 40)}"
        for _ in range(REQUESTS)
    ]


@contextlib.contextmanager
def start(environment: adopt.Environment) -> Iterator[adopt.Program]:
    puma = adopt.needed("puma", "puma")
    tried = ["ruby", "-e", "require 'rails'; require 'sqlite3'"]
    if subprocess.run(tried, capture_output=True, check=False).returncode:
        raise adopt.MissingError("Rails is not here: apt-get install ruby-rails ruby-sqlite3")
    port = adopt.unused_port()
    words = [puma, "-C", "-", "-t", f"{THREADS}:{THREADS}", "-b", f"tcp://127.0.0.1:{port}", str(APPLICATION)]
    with tempfile.TemporaryDirectory() as folder:
        own = {"RAILS_ENV": "production", "ADOPT_DATABASE": f"{folder}/posts.sqlite3"}
        with adopt.server(words, {**environment, **own}, cwd=folder) as process:
            adopt.await_port(process, port)
            yield adopt.Program(process.pid, lambda burst: adopt.http_load(port, paths(burst), THREADS))


if __name__ == "__main__":
    sys.exit(adopt.compare("Rails, five threads", ["at the last request's end", "4 s later"], start))
