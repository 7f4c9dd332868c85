"""docs/lineage.md: a row for each artefact of the earlier documents, and every place that a row names exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from conftest import DATA, REPOSITORY

from tslab import exposition
from tslab.commands import COMMANDS
from tslab.metrics import section

PAGE = REPOSITORY / "docs" / "lineage.md"
NOTHING = "–"
UNMEASURED = "not measured yet"
# Tokens in backquotes that begin with one of these are paths in the repository.
ROOTS = ("bench/", "build/", "cmake/", "deploy/", "docs/", "include/", "src/", "tests/", "tools/")


@dataclass(frozen=True)
class Row:
    number: str
    artefact: str
    published: str
    place: str
    measured: str

    @property
    def ours(self) -> str:
        """Returns the cells of a row about this repository. The other cells quote the document about its own."""
        return f"{self.place} {self.measured}"


def rows_of(page: str) -> list[Row]:
    lines = (line for line in page.splitlines() if re.match(r"\| \d{3}\.", line))
    return [Row(*(cell.strip() for cell in line.strip("|").split(" | "))) for line in lines]


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def rows(page: str) -> list[Row]:
    return rows_of(page)


@pytest.fixture(scope="module")
def ours(page: str, rows: list[Row]) -> str:
    """The page without what the documents say of themselves."""
    prose = "\n".join(line for line in page.splitlines() if not line.startswith("|"))
    return "\n".join([prose, *(row.ours for row in rows)])


def code(text: str) -> Iterator[str]:
    yield from re.findall(r"`([^`]+)`", text)


def exported(namespace: str) -> set[str]:
    """The names of all samples that the exporter can make."""
    tables = (exposition.TOTALS, exposition.CLASSES, exposition.EACH_CLASS, exposition.LABELS, exposition.EPOCHS,
              exposition.LOCKS, exposition.PATHS)  # fmt: skip
    names = {figure.name for table in tables for figure in table}
    names |= {exposition.PATH_SECONDS + end for end in ("", "_bucket", "_sum", "_count")}
    return {f"{namespace}_{name}" for name in names}


def test_every_artefact_has_a_row(rows: list[Row]) -> None:
    lines = (DATA / "artefacts.txt").read_text(encoding="utf-8").splitlines()
    listed = [line for line in lines if not line.startswith("#")]
    assert len(listed) > 200
    assert {line[:3] for line in listed} == {"000", "001", "002", "003", "004"}
    assert [f"{row.number} {row.artefact}" for row in rows] == listed


def test_no_row_is_empty(rows: list[Row]) -> None:
    for row in rows:
        assert all((row.artefact, row.published, row.place, row.measured)), row
        assert row.place != NOTHING, row
        reason = re.fullmatch(r"(?:overruled|not built): (.{10,})", row.place)
        assert reason or "`" in row.place or "[" in row.place, f"{row.number} names no place and no reason"


def test_a_published_figure_stands_beside_one_of_ours(rows: list[Row]) -> None:
    for row in rows:
        assert UNMEASURED not in row.measured, row.number
        if row.published != NOTHING:
            said = re.sub(r"`[^`]*`|\[[^\]]*\]", "", row.measured)
            assert re.search(r"\d", said), f"{row.number}: no figure of ours"


def test_the_page_counts_its_rows(page: str, rows: list[Row]) -> None:
    overruled = sum(row.place.startswith("overruled:") for row in rows)
    unbuilt = sum(row.place.startswith("not built:") for row in rows)
    here = len(rows) - overruled - unbuilt
    said = " ".join(page.split())
    assert f"{len(rows)} artefacts: {here} have a place here, {overruled} are overruled, {unbuilt} are not" in said
    assert UNMEASURED not in said


def test_files_that_it_names_exist(ours: str) -> None:
    named = {word for token in code(ours) for word in token.split() if word.startswith(ROOTS)}
    assert len(named) > 60
    for name in sorted(named):
        built = re.fullmatch(r"build/release/bench/([\w-]+)", name)
        path = f"bench/{built[1]}.c" if built else name
        assert (REPOSITORY / path).exists() or name == "build/release/libtslab.so", name


def test_links_lead_somewhere(page: str) -> None:
    defined = dict(re.findall(r"^\[(\w+)\]: (\S+)$", page, re.MULTILINE))
    assert set(re.findall(r"\[(\d{4}|[A-Z])\](?![(:])", page)) == set(defined)
    for target in [*defined.values(), *re.findall(r"\]\(([^)#]+)\)", page)]:
        assert (PAGE.parent / target).exists(), target


def test_a_name_in_a_file_stands_there(ours: str) -> None:
    pairs = re.findall(r"`(\w+)` in `([^`]+)`", ours)
    pairs += re.findall(r"`(\w+)` and `\w+` in `([^`]+)`", ours)
    assert len(pairs) > 15
    for name, file in pairs:
        assert name in (REPOSITORY / file).read_text(encoding="utf-8"), f"{name} in {file}"


def test_metrics_are_exported(ours: str) -> None:
    named = set(re.findall(r"temporal_slab_\w+", ours))
    assert len(named) > 8
    assert named - exported("temporal_slab") == set()


def test_figures_are_published(ours: str) -> None:
    schema = json.loads((REPOSITORY / "tools/tslab/schema/stats.schema.json").read_text(encoding="utf-8"))
    fields = {section(table): set(about["properties"]) for table, about in schema["$defs"].items()}
    named = [re.fullmatch(r"([a-z]+)(?:\[\])?\.(\w+)", token) for token in code(ours)]
    found = {(match[1], match[2]) for match in named if match and match[1] in fields}
    assert len(found) > 60
    assert sorted(pair for pair in found if pair[1] not in fields[pair[0]]) == []


def test_settings_exist(ours: str) -> None:
    options = (REPOSITORY / "src/base/options.c").read_text(encoding="utf-8")
    builds = (REPOSITORY / "CMakeLists.txt").read_text(encoding="utf-8")
    known = {f"TSLAB_{name}" for name in re.findall(r'^ {4}\{"(\w+)",', options, re.MULTILINE)}
    known |= set(re.findall(r"^option\((TSLAB_\w+)", builds, re.MULTILINE))
    assert "TSLAB_SAMPLE" in known
    assert set(re.findall(r"TSLAB_[A-Z_]*[A-Z]", ours)) - known == set()


def test_commands_and_rules_exist(ours: str) -> None:
    commands = {match[1] for token in code(ours) if (match := re.search(r"(?:^|\s)tslab ([a-z]+)", token))}
    assert len(commands) > 6
    assert commands <= set(COMMANDS)
    findings = (REPOSITORY / "tools/tslab/findings.py").read_text(encoding="utf-8")
    rules = set(re.findall(r"rules? `([a-z0-9-]+)`", ours)) | set(re.findall(r"rules `[^`]+` and `([^`]+)`", ours))
    assert len(rules) > 5
    assert [rule for rule in sorted(rules) if f'"{rule}"' not in findings] == []
    alerts = (REPOSITORY / "deploy/rules.yml").read_text(encoding="utf-8")
    assert [name for name in re.findall(r"`(TemporalSlab\w+)`", ours) if f"alert: {name}\n" not in alerts] == []


def test_nothing_outside_the_repository_is_named(page: str) -> None:
    assert [token for token in code(page) if token.startswith(("/", "~"))] == []
