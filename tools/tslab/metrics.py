"""The published figures: name, kind, unit and help of each, from a segment's own tables.

The JSON schema (schema/stats.schema.json) and the list in docs/observability.md are written from these tables, and the
schema is how this reader knows, without a process, what grows and what is as it is now.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from tslab.segment import HISTOGRAM, TEXT, Field, Table

SCHEMA_FILE = "stats.schema.json"
PROCESS = "process"
# The plural that names the rows of a table, and the field that tells one row from another. A table that this reader
# does not know gets an s.
PLURALS = {"class": "classes"}
KEYS = {"classes": "object_size", "paths": "name", "threads": "thread_id", "labels": "label", "epochs": "epoch",
        "locks": "name", "samples": "number", "profiles": "interval_bytes", "sites": "site",
        "holders": "site", "lifespans": "site", "spreads": "object_size"}  # fmt: skip
# Every row of these has at least this, whatever the library's version.
_PROMISED = {
    "process": ("allocations", "frees", "live_blocks", "live_bytes"),
    "classes": ("object_size", "live_blocks", "live_bytes", "allocations", "frees"),
}
_MOST = 2**64 - 1


def section(table: str) -> str:
    return PROCESS if table == PROCESS else PLURALS.get(table, table + "s")


def schema_of(tables: Sequence[Table], schema_version: int) -> dict[str, Any]:
    count = {"type": "integer", "minimum": 0, "maximum": _MOST}
    properties: dict[str, Any] = {
        "schema_version": {"const": schema_version},
        "pid": {**count, "description": "the process, as whoever reads it knows it"},
        "timestamp_ns": {**count, "description": "when the figures were gathered, nanoseconds since 1970"},
        "age_ns": {**count, "description": "how old they were when they were read"},
        "library": {"type": "string", "description": "tslab_version() of the library in the process"},
        "command": {"type": "string", "description": "its command line, empty where it is not known"},
        "state": {"type": "string", "description": "running, sleeping, stopped, ended, gone, saved, ..."},
        "started_ns": {**count, "description": "when publication began, nanoseconds since 1970"},
        "monotonic_ns": {**count, "description": "when the figures were gathered, on CLOCK_MONOTONIC"},
        "gather_ns": {**count, "description": "what it took the library to gather them"},
        "snapshot": {**count, "description": "how many times they were gathered"},
    }
    required = ["schema_version", "pid", "timestamp_ns", "library", PROCESS]
    definitions: dict[str, Any] = {}
    for table in tables:
        name, reference = section(table.name), {"$ref": f"#/$defs/{table.name}"}
        properties[name] = reference if name == PROCESS else {"type": "array", "items": reference}
        if name != PROCESS:
            required.append(name)
        definitions[table.name] = {
            "type": "object",
            "description": table.help,
            "properties": {
                **{field.name: _property(field) for field in table.fields},
                "derived": {
                    "type": "object",
                    "description": "worked out by the reader; null where there is nothing to divide by",
                    "additionalProperties": {"type": ["number", "null"]},
                },
            },
            "required": list(_PROMISED.get(name, (KEYS[name],) if name in KEYS else ())),
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:tslab:stats:{schema_version}",
        "title": "The figures of a process under temporal-slab",
        "description": "What tslab stats --json prints, and tslab_stats_json without what a reader adds. "
        "Ignore names that you do not know: a newer library has more.",
        "type": "object",
        "properties": properties,
        "required": required,
        "$defs": definitions,
    }


def _property(field: Field) -> dict[str, Any]:
    about = {"description": field.help, "x-kind": field.kind, "x-unit": field.unit}
    if field.kind == TEXT:
        return {"type": "string", "x-bytes": field.count, **about}
    if field.kind != HISTOGRAM:
        return {"type": "integer", "minimum": 0, "maximum": _MOST, **about}
    return {
        "type": "array",
        "maxItems": field.count,
        **about,
        "items": {
            "type": "object",
            "properties": {
                "le_ns": {"type": ["integer", "null"], "description": "up to and with; null: without bound"},
                "count": {"type": "integer", "minimum": 0},
            },
            "required": ["le_ns", "count"],
        },
    }


def as_text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


@cache
def published_schema() -> dict[str, Any]:
    text = resources.files("tslab").joinpath("schema", SCHEMA_FILE).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


@cache
def known_fields() -> dict[str, dict[str, Field]]:
    """By section and name, as the schema of this release has them."""
    found: dict[str, dict[str, Field]] = {}
    for table, definition in published_schema()["$defs"].items():
        found[section(table)] = {
            name: Field(
                name,
                about["description"],
                0,
                about.get("x-bytes", about.get("maxItems", 1)),
                about["x-kind"],
                about["x-unit"],
            )
            for name, about in definition["properties"].items()
            if "x-kind" in about
        }
    return found


def markdown(tables: Sequence[Table]) -> str:
    lines = []
    for table in tables:
        name = section(table.name)
        where = f"`{name}`" if name == PROCESS else f"`{name}[]`, {table.rows_most} rows at most"
        lines += [f"### {where}: {table.help}", "", "| name | kind | unit | what it is |", "|---|---|---|---|"]
        for field in table.fields:
            unit = {"none": "", "nanoseconds": "ns"}.get(field.unit, field.unit)
            lines.append(f"| `{field.name}` | {field.kind} | {unit} | {field.help} |")
        lines.append("")
    return "\n".join(lines)
