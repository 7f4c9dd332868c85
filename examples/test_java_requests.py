"""Runs an example in Java under the library and asks the library's figures what it served.

    test_java_requests.py requests LIBRARY    zlib's memory and direct buffers are served, and the Java heap is not
    test_java_requests.py epochs LIBRARY      an epoch a request, by the foreign functions of Java 22 and later

A JDK is looked for in PATH and below /usr/lib/jvm.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "java_requests"
OLDEST = {"requests": 17, "epochs": 22}
HEAP_MIB = 256
REQUESTS = 1000
CALLS_A_REQUEST = 5  # at least: a buffer, and four of zlib's to pack and unpack


def version(java: Path) -> int:
    done = subprocess.run([java, "-version"], check=False, capture_output=True, text=True)
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else 0


def jdk(oldest: int) -> Path:
    """The first `java` that has a compiler beside it and is new enough."""
    folders = [Path(folder) for folder in os.get_exec_path()] + sorted(Path("/usr/lib/jvm").glob("*/bin"))
    for folder in folders:
        if (folder / "javac").exists() and (folder / "java").exists() and version(folder / "java") >= oldest:
            return folder / "java"
    print(f"not here: a JDK of version {oldest} or later. For 17: apt-get install default-jdk-headless")
    sys.exit(0)


def run(command: Sequence[str | Path], library: Path, **variables: str) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True,
                          env={**os.environ, "LD_PRELOAD": str(library), **variables})
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def figures(java: Path, library: Path, requests: int) -> dict[str, int]:
    """The library's, after so many requests."""
    heap = [f"-Xms{HEAP_MIB}m", f"-Xmx{HEAP_MIB}m", "-XX:+AlwaysPreTouch"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures"
        print(run([java, *heap, FOLDER / "Requests.java", str(requests)], library, TSLAB_STATS_AT_EXIT=str(path)))
        if not path.exists():
            sys.exit(f"{library} wrote no figures: it served nothing")
        rows = [line.split() for line in path.read_text().splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}


def check_requests(java: Path, library: Path) -> None:
    one, many = figures(java, library, 1), figures(java, library, REQUESTS)
    served = many["allocations"] - one["allocations"]
    print(f"{served} allocations more than one request takes, {many['in_use_bytes'] >> 20} MiB in use,"
          f" {many['resident_bytes'] >> 20} MiB resident with the Java heap")
    if served < REQUESTS * CALLS_A_REQUEST:
        sys.exit(f"fewer than {CALLS_A_REQUEST} allocations a request")
    if many["in_use_bytes"] >= HEAP_MIB << 20 or many["resident_bytes"] < HEAP_MIB << 20:
        sys.exit("the Java heap counts as malloc's memory, or is not resident")


def check_epochs(java: Path, library: Path) -> None:
    said = run([java, "--enable-native-access=ALL-UNNAMED", FOLDER / "Epochs.java"], library)
    print(said)
    if said != "the request that ended clean left 0 MiB, the one that keeps a buffer 4 MiB":
        sys.exit("not what an epoch a request reports")


def main() -> None:
    example, library = sys.argv[1], Path(sys.argv[2])
    java = jdk(OLDEST[example])
    print(f"{java}, version {version(java)}")
    {"requests": check_requests, "epochs": check_epochs}[example](java, library)


if __name__ == "__main__":
    main()
