"""Draw one or more result files as a self-contained HTML report, or print their tables.

tslab report build/lab/bench-….json -o report.html
tslab report build/lab/cliffs.json --scale --into docs/scale.md
tslab report build/lab/bench.json --page docs
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from tslab import given
from tslab import result as results
from tslab.arms import GLIBC
from tslab.reporters import html, page, scales, sections, tables


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="result of tslab bench; several are merged")
    parser.add_argument("-o", "--out", type=Path, help="the report (default: beside the first file, with .html)")
    parser.add_argument("--baseline", default=GLIBC, help="whom ratios are to (default: %(default)s)")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown, and draw nothing")
    parser.add_argument(
        "--scale", action="store_true", help="the same with the table of docs/scale.md: the cost of one of many"
    )
    parser.add_argument(
        "--into",
        type=Path,
        metavar="DOCUMENT",
        help="write the Markdown tables between the marks of a document, as in docs/scale.md",
    )
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FOLDER",
        help=f"write {page.PAGE}, {page.TABLES} and the pictures in {page.PICTURES}/, in a folder such as docs",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    merged = results.merge([results.load(path, arguments.baseline) for path in arguments.files])
    section, write = ("scale", scales.markdown) if arguments.scale else ("table", tables.markdown)
    if arguments.page:
        page.write(merged, arguments.page)
        console.print(f"{arguments.page / page.PAGE} and {arguments.page / page.TABLES} are of this result")
        return 0
    if arguments.into:
        sections.replace(arguments.into, section, write(merged))
        console.print(f"tables in {arguments.into}")
        return 0
    if arguments.markdown or arguments.scale:
        print(write(merged), end="")
        return 0
    target = given.place_for(arguments.out or arguments.files[0].with_suffix(".html"))
    html.write(merged, target, arguments.files)
    console.print(f"report in {target}")
    return 0
