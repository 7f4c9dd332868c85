#!/usr/bin/env python3
"""Programs that are built with a sanitizer run under LD_PRELOAD=libtslab.so as they do without.

    sanitizers.py LIBRARY FOLDER

Builds sanitized.c into FOLDER with each sanitizer of each compiler that is installed. A build is left out where the
compiler has no such runtime, or where its program does not run here even without the library. Exit status: 0 passed;
1 failed; 77 there is no sanitizer at all.
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "sanitized.c"
SKIPPED = 77
RUNS = 3  # at random addresses

# gcc's runtimes are shared libraries, which a preload comes before: AddressSanitizer refuses that unless told
# otherwise, and ThreadSanitizer sees the scavenger that the library starts in a fork child.
LET = {"ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0", "LSAN_OPTIONS": "detect_leaks=0",
       "TSAN_OPTIONS": "die_after_fork=0"}


def compilers() -> list[str]:
    found = {name for folder in os.environ["PATH"].split(":") if Path(folder).is_dir()
             for name in (path.name for path in Path(folder).iterdir()) if re.fullmatch(r"gcc|clang(-\d+)?", name)}
    return sorted(name for name in found if shutil.which(name))


def builds() -> Iterator[list[str]]:
    for compiler in compilers():
        for sanitizer in ["address", "thread", "memory", "leak", "undefined"]:
            yield [compiler, f"-fsanitize={sanitizer}"]
            if compiler == "gcc" and sanitizer in ("address", "thread"):
                yield [compiler, f"-fsanitize={sanitizer}", f"-static-lib{sanitizer[0]}san"]


def draw() -> None:
    """Random addresses for the program, though the tests themselves may run at fixed ones."""
    ctypes.CDLL(None).personality(0)


def run(program: Path, library: str | None) -> str:
    """Returns a line that says what went wrong, or nothing."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"} | LET
    if library:
        environment["LD_PRELOAD"] = library
    for _ in range(RUNS if library else 1):
        done = subprocess.run([program], env=environment, check=False, capture_output=True, text=True, timeout=120,
                              preexec_fn=draw)
        if done.returncode != 0 or done.stdout != "ok\n":
            return f"exit status {done.returncode}, said {(done.stdout + done.stderr)[:600]!r}"
    return ""


def main() -> None:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    library, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(exist_ok=True)
    ran = failed = 0
    for number, build in enumerate(builds()):
        program, name = folder / f"sanitized.{number}", " ".join(build)
        command = [*build, "-O1", "-g", "-pthread", "-o", program, SOURCE, "-ldl"]
        if subprocess.run(command, check=False, capture_output=True).returncode != 0 or run(program, None):
            print(f"left out: {name}")
            continue
        ran += 1
        if wrong := run(program, library):
            failed += 1
            print(f"{name}: {wrong}")
    print(f"{ran} builds, {failed} failed")
    sys.exit(SKIPPED if not ran else failed != 0)


if __name__ == "__main__":
    main()
