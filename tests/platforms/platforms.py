#!/usr/bin/env python3
"""Builds the library for another platform, in a folder of its own, and runs its tests there.

    platforms.py arm64 FOLDER [--short]   cross-compiled, under qemu-user
    platforms.py musl FOLDER [--short]    with musl-gcc
    platforms.py headers                  the public headers in every standard that callers may use

--short builds and runs a handful of tests. Exit status: 0 passed; 1 failed; 77 a package is missing, which is named.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SKIPPED = 77

# Toolchain file, and the command and package that it needs.
PLATFORMS: dict[str, tuple[str, dict[str, str]]] = {
    "arm64": ("aarch64-linux-gnu.cmake", {
        "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
        "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
        "qemu-aarch64": "qemu-user",
    }),
    "musl": ("musl.cmake", {"musl-gcc": "musl-tools"}),
}
SHORT = ["large", "slab", "bump", "scope", "options", "api_malloc", "api_epoch"]

COMPILERS = ["gcc", "clang"]
C_STANDARDS = ["c11", "c17", "c2x"]
CXX_STANDARDS = ["c++11", "c++14", "c++17", "c++20", "c++2b"]  # epoch.hpp is for the last three
STRICT = ["-Wall", "-Wextra", "-Wshadow", "-pedantic", "-Werror", "-fsyntax-only"]


def need(commands: dict[str, str]) -> None:
    missing = [package for command, package in commands.items() if shutil.which(command) is None]
    if missing:
        print("skipped: missing packages, please run:  sudo apt-get install --no-install-recommends", *missing)
        sys.exit(SKIPPED)


def run(*command: str | Path) -> None:
    status = subprocess.run(command, check=False).returncode
    if status != 0:
        sys.exit(f"platforms: {' '.join(map(str, command))}: exit status {status}")


def build_and_test(platform: str, folder: Path, *, short: bool) -> None:
    toolchain, commands = PLATFORMS[platform]
    need(commands)
    run("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DTSLAB_BUILD=release", "--log-level=WARNING",
        f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'cmake' / toolchain}")
    targets = [f"test_{name}" for name in SHORT] if short else ["platform_tests"]
    libraries = ["tslab", "tslab_static", "tslab_prefixed"]
    run("cmake", "--build", folder, "--parallel", "2", "--target", *libraries, *targets)
    which = ["--tests-regex", f"^({'|'.join(SHORT)})$"] if short else ["--label-regex", "^(unit|misuse|stress)$"]
    run("ctest", "--test-dir", folder, "--output-on-failure", "--no-tests=error", *which)
    if platform == "musl":
        run_preloaded(folder)


def run_preloaded(folder: Path) -> None:
    """A program that knows nothing of us, under musl's loader: settings reach us, and every block is ours."""
    source = folder / "preloaded.c"
    source.write_text("#include <stdlib.h>\n#include <string.h>\nint main(void) {\n"
                      "  for (int i = 0; i < 1000; i++) free(strdup(\"a\"));\n  return malloc(1) == NULL;\n}\n")
    run("musl-gcc", "-fno-builtin", "-o", folder / "preloaded", source)
    done = subprocess.run([folder / "preloaded"], check=False, capture_output=True, text=True,
                          env={"LD_PRELOAD": str(folder / "libtslab.so"), "TSLAB_STATS_AT_EXIT": str(folder / "stats"),
                               "TSLAB_NO_SUCH": "1"})
    stats = (folder / "stats").read_text() if (folder / "stats").exists() else ""
    if done.returncode != 0 or "unknown setting TSLAB_NO_SUCH" not in done.stderr or "1001" not in stats:
        sys.exit(f"platforms: LD_PRELOAD under musl: exit status {done.returncode}, said {done.stderr!r}")


def callers() -> Iterator[tuple[str, list[str]]]:
    """Standards, and the headers in the order in which they are included."""
    for standard in C_STANDARDS + CXX_STANDARDS:
        orders = [["tslab.h"], ["optional.h"], ["tslab.h", "optional.h"], ["optional.h", "tslab.h"]]
        if standard in CXX_STANDARDS[2:]:
            orders += [["epoch.hpp"], ["tslab.h", "epoch.hpp", "optional.h"], ["optional.h", "epoch.hpp", "tslab.h"]]
        yield from ((standard, order) for order in orders)


def check_headers() -> None:
    failed = 0
    compilers = [name for name in COMPILERS if shutil.which(name)]
    need({} if compilers else {"gcc": "gcc"})
    for compiler in compilers:
        for standard, headers in callers():
            text = "".join(f"#include <tslab/{header}>\n" for header in headers) + "int main(void) { return 0; }\n"
            language = "c++" if "+" in standard else "c"
            done = subprocess.run([compiler, f"-std={standard}", "-x", language, *STRICT, "-I", ROOT / "include", "-"],
                                  check=False, input=text, capture_output=True, text=True)
            if done.returncode != 0:
                failed += 1
                print(f"{compiler} -std={standard}, {' then '.join(headers)}:\n{done.stderr[:1500]}")
    if failed:
        sys.exit(f"platforms: {failed} ways to include the headers do not compile")


def main() -> None:
    match sys.argv[1:]:
        case ["headers"]:
            check_headers()
        case [platform, folder, *rest] if platform in PLATFORMS and rest in ([], ["--short"]):
            build_and_test(platform, Path(folder).absolute(), short=bool(rest))
        case _:
            print(__doc__, file=sys.stderr)
            sys.exit(2)


if __name__ == "__main__":
    main()
