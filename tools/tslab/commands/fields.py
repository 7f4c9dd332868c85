"""Every figure that is published, with its kind, unit and meaning, from the library's own tables.

tslab fields                        of the library of this project, asked by running a small program under it
tslab fields 4711                   of a process, or of a file of `tslab stats --save`
tslab fields --markdown --into docs/observability.md
tslab fields --schema               the JSON schema of `tslab stats --json`
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from tslab import metrics, preload
from tslab.figures import SCHEMA_VERSION, Source
from tslab.reporters import sections
from tslab.reporters.figures import print_table
from tslab.segment import Table

SECTION = "fields"


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", nargs="?", metavar="PID|FILE", help="whose (default: the library's)")
    parser.add_argument("--lib", type=Path, metavar="PATH", help="the library to ask")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="as in docs/observability.md")
    form.add_argument("--schema", action="store_true", help="as JSON schema")
    parser.add_argument(
        "--into", type=Path, metavar="DOCUMENT", help="with --markdown: between the marks of a document"
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    tables = Source(arguments.source).layout().tables if arguments.source else of_library(arguments.lib)
    if arguments.schema:
        print(metrics.as_text(metrics.schema_of(tables, SCHEMA_VERSION)), end="")
    elif arguments.into:
        sections.replace(arguments.into, SECTION, metrics.markdown(tables))
        console.print(f"list in {arguments.into}", markup=False)
    elif arguments.markdown:
        print(metrics.markdown(tables), end="")
    else:
        for table in tables:
            print_table(
                console,
                f"{metrics.section(table.name)}: {table.help}",
                ["name", "kind", "unit", "what it is"],
                (
                    [field.name, field.kind, "" if field.unit == "none" else field.unit, field.help]
                    for field in table.fields
                ),
                left=4,
            )
    return 0


def of_library(path: Path | None) -> tuple[Table, ...]:
    with preload.running(preload.find_library(path)) as pid:
        return Source(str(pid)).layout().tables
