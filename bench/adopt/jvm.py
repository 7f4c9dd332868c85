#!/usr/bin/env python3
"""A Java service: eight threads that pack and unpack text and hold buffers outside the heap; then rest.

python3 bench/adopt/jvm.py build/release/libtslab.so.0      Debian package: default-jdk-headless
"""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import adopt

SOURCE = Path(__file__).resolve().with_name("Service.java")
HEAP = ["-Xms32m", "-Xmx32m", "-XX:+AlwaysPreTouch", "-XX:+UseSerialGC", "-XX:MaxDirectMemorySize=512m"]


@contextlib.contextmanager
def start(environment: adopt.Environment) -> Iterator[adopt.Program]:
    compiler = adopt.needed("javac", "default-jdk-headless")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([compiler, "-d", folder, str(SOURCE)], check=True)
        with adopt.worker(["java", *HEAP, "-cp", folder, "Service"], environment) as program:
            yield program


if __name__ == "__main__":
    sys.exit(adopt.compare("JVM, eight threads", ["at the last request's end", "4 s later"], start))
