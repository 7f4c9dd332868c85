"""Generated parts of a document: the text between two marks is the program's, the rest is its writer's.

<!-- generated: table -->
…
<!-- end of table -->
"""

from __future__ import annotations

from pathlib import Path

from tslab.errors import LabError


def replace(path: Path, name: str, text: str) -> None:
    first, last = f"<!-- generated: {name} -->\n", f"<!-- end of {name} -->\n"
    try:
        document = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot read {path}: {error.strerror}") from error
    if document.count(first) != 1 or document.count(last) != 1:
        raise LabError(f"{path} has no place for this: add the two lines {first.strip()} and {last.strip()}")
    before, rest = document.split(first)
    _, after = rest.split(last)
    path.write_text(f"{before}{first}\n{text.strip()}\n\n{last}{after}", encoding="utf-8")
