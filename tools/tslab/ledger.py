"""bench/LEDGER.md: one row per recorded comparison, and the compounded gains that follow from the rows.

The file is the data: it is read back, a row is added, and the second table is computed again. Nobody types a figure of
a comparison that this program made. Choices that are older than the file have rows with the figures of their records.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from tslab.errors import LabError
from tslab.stats import compound

HEAD = """# Ledger of comparisons

Written by `tslab ab --record`, one row per comparison, rejected ones included. Positive is better. The compounded
gains at the end are computed from the rows that were GO, per workload and metric; they are never typed.

Rows with the verdict KEPT or LEFT (not taken) come from a decision record, not from `tslab ab`: their figures are those
of the record that they name, in its units, copied by hand as before to now; a dash stands for what the record does not
say, the commit brought the record, and no compounded gain counts them. Rows of HAKMEM are its own published runs as
`tslab verdict` judges them.
"""
COMPOUNDED = "## Compounded gains\n"


@dataclass(frozen=True)
class Entry:
    date: str
    what: str
    why: str
    workload: str
    metric: str
    predicted: str
    measured: str
    interval: str
    rounds: str
    instructions: str
    verdict: str
    commit: str

    @property
    def change(self) -> float:
        return float(self.measured.removesuffix(" %").replace("−", "-")) / 100


COLUMNS = [column.name for column in fields(Entry)]


def record(path: Path, entry: Entry) -> None:
    entries = [*read(path), entry]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(entries), encoding="utf-8")


def read(path: Path) -> list[Entry]:
    if not path.exists():
        return []
    entries = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line == COMPOUNDED.strip():
            break
        if not line.startswith("| ") or line.startswith(f"| {COLUMNS[0]} "):
            continue
        cells = [cell.strip() for cell in _split(line)]
        if len(cells) != len(COLUMNS):
            raise LabError(f"{path}:{number}: {len(cells)} cells where the ledger has {len(COLUMNS)}; restore the row")
        entries.append(Entry(*cells))
    return entries


def render(entries: list[Entry]) -> str:
    rows = [_row(COLUMNS), _row(["---"] * len(COLUMNS)).replace(" ", ""), *(_row(astuple(entry)) for entry in entries)]
    gains = [_row(["workload", "metric", "rows", "compounded"]), "|---|---|---|---|"]
    for (workload, metric), changes in compounded(entries).items():
        gains.append(_row([workload, metric, str(len(changes)), f"{100 * compound(changes):+.2f} %"]))
    return "\n".join([HEAD, *rows, "", COMPOUNDED, *gains]) + "\n"


def compounded(entries: list[Entry]) -> dict[tuple[str, str], list[float]]:
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for entry in entries:
        if entry.verdict == "GO":
            groups[entry.workload, entry.metric].append(entry.change)
    return dict(groups)


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def _split(line: str) -> list[str]:
    marked = line.strip().strip("|").replace("\\|", "\0")
    return [cell.replace("\0", "|") for cell in marked.split("|")]
