#!/usr/bin/env python3
"""The functions that a library imports against the table in docs/platforms.md.

    tests/golden/imports.py LIBTSLAB

A new import is a choice: a program may define that function, and allocate in it. Say in the table who calls it, and
whether it is called under a lock of the library.
"""

import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = "docs/platforms.md"
SECTION = "## Functions that the library imports from libc\n"


def imported(library: str) -> set[str]:
    command = ["nm", "--dynamic", "--undefined-only", "--format=posix", library]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.split()[0].partition("@")[0] for line in lines}


def listed() -> set[str]:
    text = (Path(__file__).resolve().parents[2] / DOCUMENT).read_text()
    section = text.partition(SECTION)[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def main() -> int:
    there, known = imported(sys.argv[1]), listed()
    if not there or not known:
        sys.exit(f"imports: nothing to compare: {len(there)} imports, {len(known)} names in {DOCUMENT}")
    for name in sorted(there - known):
        print(f"imports: the library imports {name}, which the table in {DOCUMENT} lacks")
    for name in sorted(known - there):
        print(f"imports: the table in {DOCUMENT} has {name}, which the library does not import")
    return there != known


if __name__ == "__main__":
    sys.exit(main())
