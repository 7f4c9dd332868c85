#!/usr/bin/env python3
"""traces: records what real programs call of malloc's family, for the workload replay.

    bench/traces.py [NAME...] [--again] [--folder=build/release/bench] [--list]

python, gcc, sqlite3, perl, redis   as in bench/apps.py, and doing the same
git                                 packs a repository of 400 commits anew, with two threads
jq                                  sorts, groups and rewrites 40,000 JSON objects

The recordings lie in FOLDER/traces, as NAME.trace, and are made where they are missing; nothing of them is in the
repository. A program may start others: the recording is of the process that made the most calls. A program that is not
installed is named, and has no recording. Exit status: 0 all are there; 1 some are not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tools")]

import apps  # noqa: E402

from tslab import trace  # noqa: E402

LIMIT = 256 << 20
COMMITS, OBJECTS = 400, 40_000


def git(lab: apps.Lab) -> dict[str, float]:
    program = apps.program("git")
    draw = random.Random(lab.seed)
    texts = [f"{number} {draw.random()}\n" * 40 for number in range(60)]
    stream = []
    for number in range(COMMITS):
        stream.append(f"commit refs/heads/main\ncommitter A <a@b.c> {1_700_000_000 + number} +0000\ndata 2\nx\n")
        for place in draw.sample(range(len(texts)), 6):
            texts[place] += f"{number} {draw.random()}\n"
            stream.append(f"M 644 inline {place % 7}/{place}\ndata {len(texts[place])}\n{texts[place]}\n")
    repository = lab.folder / "repository"
    plain = {name: value for name, value in os.environ.items() if name != trace.VARIABLE} | {"HOME": str(lab.folder)}
    subprocess.run([program, "init", "-q", "-b", "main", repository], env=plain, check=True)
    words = [program, "-C", str(repository), "fast-import", "--quiet"]
    subprocess.run(words, env=plain, input="".join(stream), text=True, check=True)
    words = [program, "-C", str(repository), "-c", "pack.threads=2", "repack", "-a", "-d", "-f", "-q"]
    lab.run(words, HOME=str(lab.folder))
    return {}


def jq(lab: apps.Lab) -> dict[str, float]:
    draw = random.Random(lab.seed)
    rows = [
        {"id": number, "name": f"n{number * 7919 % 10007}", "of": draw.randrange(50), "tags": ["t"] * (number % 4)}
        for number in range(OBJECTS)
    ]
    (lab.folder / "rows.json").write_text(json.dumps(rows))
    script = "map(select(.id % 3 != 0) | .name |= ascii_upcase) | group_by(.of) | map({of: .[0].of, n: length, all: .})"
    lab.run([apps.program("jq"), script, "rows.json"])
    return {}


PROGRAMS: dict[str, Callable[[apps.Lab], dict[str, float]]] = {
    **{name: apps.APPS[name] for name in ("python", "gcc", "sqlite3", "perl", "redis")},
    "git": git,
    "jq": jq,
}


def record(name: str, recorder: Path, to: Path) -> str:
    """Makes one recording. Returns the reason if there is none."""
    with tempfile.TemporaryDirectory(prefix="tslab-trace-", dir=to.parent) as holder:
        folder, written = Path(holder), Path(holder) / "traces"
        written.mkdir()
        os.environ[trace.VARIABLE], os.environ[trace.LIMIT_VARIABLE] = f"{written}/%p.trace", str(LIMIT)
        try:
            PROGRAMS[name](apps.Lab(str(recorder), folder, seed=42))
        except apps.MissingError as reason:
            return str(reason)
        except (apps.FailedError, apps.NotServedError, subprocess.SubprocessError, OSError) as reason:
            return f"it failed: {reason}"
        found = trace.choose(trace.recordings(written), None)
        if found is None:
            return "no call was recorded"
        found.path.replace(to)
        limited = "; its later calls are missing, for the file is at its limit" if found.limited else ""
        print(f"{name:8}  {found.calls:>10,} calls of {found.program}, {found.bytes / (1 << 20):.1f} MiB{limited}")
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="traces", description="Records real programs for the workload replay.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones; all by default: {', '.join(PROGRAMS)}")
    parser.add_argument("--again", action="store_true", help="make them anew, even where they are there")
    parser.add_argument("--list", action="store_true", help="say what is there, and make nothing")
    built = HERE.parent / "build" / "release" / "bench"
    parser.add_argument("--folder", type=Path, default=built, help="where the built workloads are")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in PROGRAMS]
    if unknown:
        parser.error(f"no program '{unknown[0]}'; choose from: {', '.join(PROGRAMS)}")
    recorder = (options.folder / trace.LIBRARY).resolve()
    if not recorder.exists():
        parser.error(f"no {recorder}: build it with ./dev build --all, or name the place with --folder")
    place = recorder.parent / "traces"
    place.mkdir(exist_ok=True)
    missing = 0
    for name in options.names or PROGRAMS:
        path = place / f"{name}.trace"
        if path.exists() and not options.again:
            found = trace.facts(path)
            print(f"{name:8}  {found.calls:>10,} calls of {found.program}, {found.bytes / (1 << 20):.1f} MiB")
        elif reason := "it was not made yet" if options.list else record(name, recorder, path):
            missing += 1
            print(f"{name:8}  no recording: {reason}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
