"""Says what is wrong with a process, in plain words, with the figures behind it, and what to do.

tslab doctor 4711                   watches it for ten seconds
tslab doctor 4711 --for 600         ten minutes: finds a leak of 1 MiB a minute
tslab doctor 4711 --for 0           one look, no growth
tslab doctor now.seg                saved figures (--save or --json of tslab stats)
tslab doctor 4711 --json            for programs

Exit status: 0 nothing is wrong; 1 there are findings; 2 wrong use; 5 there are no figures to be read.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial

from rich.console import Console
from rich.text import Text

from tslab.commands.profile import name_of
from tslab.errors import LabError
from tslab.figures import Source
from tslab.findings import RULES, Finding, findings
from tslab.looks import Look, watch
from tslab.reporters.figures import header
from tslab.reporters.screen import finding_lines, shorten, show
from tslab.sites import Site, profile_of
from tslab.symbolize import Symbolizer

WATCH_S = 10.0
MOST_S = 7 * 86400
HEALTHY, FOUND = 0, 1


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="PID|FILE", help="a process, or a file that tslab stats made")
    parser.add_argument(
        "--for", dest="seconds", type=float, default=WATCH_S, metavar="SECONDS",
        help="how long to watch it (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace, console: Console) -> int:
    if not 0 <= arguments.seconds <= MOST_S:
        raise LabError(f"--for takes 0 to {MOST_S} seconds, not {arguments.seconds:g}")
    source = Source(arguments.source)
    seconds = arguments.seconds if source.pid is not None else 0.0
    if seconds > 2 and sys.stderr.isatty():
        print(f"watching process {source.pid} for {seconds:g} s …", file=sys.stderr, end="", flush=True)
    looks = watch([source], seconds, time.sleep)[0]
    if seconds > 2 and sys.stderr.isatty():
        print("\r\x1b[K", file=sys.stderr, end="", flush=True)
    symbolizer = Symbolizer(source.pid)
    symbolizer.learn(address for site in _sites(looks) for address in site.stack)
    found = findings(looks, partial(name_of, symbolizer=symbolizer))
    if arguments.json:
        print(json.dumps(_as_json(looks, found), indent=1, ensure_ascii=False))
    else:
        show(console, screen(looks, found, min(console.width, 120)))
    return FOUND if found else HEALTHY


def _sites(looks: list[Look]) -> list[Site]:
    documents = [look.document for look in looks if look.document.get("profiles")]
    return [site for document in documents[:1] + documents[-1:] for site in profile_of(document).sites]


def screen(looks: list[Look], found: list[Finding], width: int) -> list[Text]:
    document = looks[-1].document
    lines = [
        Text(shorten(line, width), style="bold" if index == 0 else "") for index, line in enumerate(header(document))
    ]
    numbers = {look.document["snapshot"] for look in looks if "snapshot" in look.document}
    watched = looks[-1].at - looks[0].at
    if len(numbers) > 1:
        lines.append(Text(f"watched for {watched:.0f} s, {len(numbers)} times new figures"))
    elif len(looks) > 1:
        lines.append(Text("watched, and it published nothing new: it allocated nothing that took a slow path"))
    if not found:
        lines.append(Text(f"nothing found by {len(RULES)} rules"))
    for finding in found:
        lines += [Text(""), *finding_lines(finding, width)]
    return lines


def _as_json(looks: list[Look], found: list[Finding]) -> dict[str, object]:
    document = looks[-1].document
    return {
        "schema_version": 1, "pid": document["pid"], "timestamp_ns": document["timestamp_ns"],
        "watched_s": looks[-1].at - looks[0].at, "looks": len(looks), "healthy": not found,
        "findings": [finding.as_json() for finding in found],
    }  # fmt: skip
