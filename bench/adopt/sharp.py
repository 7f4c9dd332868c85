#!/usr/bin/env python3
"""Node with sharp, which carries libvips: photographs of different sizes are made small, four at once; then rest.

python3 bench/adopt/sharp.py build/release/libtslab.so.0    installs sharp by npm into build/adopt
"""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import adopt

SERVICE = Path(__file__).resolve().with_name("sharp.cjs")


@contextlib.contextmanager
def start(environment: adopt.Environment) -> Iterator[adopt.Program]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise adopt.MissingError("node or npm is not here: apt-get install nodejs npm")
    folder = adopt.FETCHED / "sharp"
    if not (folder / "node_modules" / "sharp").exists():
        folder.mkdir(parents=True, exist_ok=True)
        words = [npm, "install", "--prefix", str(folder), "sharp"]
        if subprocess.run(words, capture_output=True, check=False).returncode:
            raise adopt.MissingError("npm cannot install sharp")
    with adopt.worker([node, str(SERVICE)], {**environment, "NODE_PATH": str(folder / "node_modules")}) as program:
        yield program


if __name__ == "__main__":
    sys.exit(adopt.compare("Node with sharp", ["at the last picture's end", "4 s later"], start))
