"""The places in the repository: libraries, workloads, peers, the ledger."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from tslab.arms import GLIBC
from tslab.errors import LabError

TSLAB = "tslab"


@dataclass(frozen=True)
class Allocator:
    """An allocator that a run can name. `library` is None for glibc; `missing` says why there is nothing to run."""

    name: str
    version: str
    library: Path | None
    missing: str = ""


@dataclass(frozen=True)
class Project:
    root: Path
    preset: str = "release"

    @property
    def build(self) -> Path:
        return self.root / "build" / self.preset

    @property
    def workloads(self) -> Path:
        return self.build / "bench"

    @property
    def library(self) -> Path:
        return self.build / "libtslab.so"

    @property
    def ledger(self) -> Path:
        return self.root / "bench" / "LEDGER.md"

    @property
    def cache(self) -> Path:
        """For what the laboratory compiles for itself."""
        return self.root / "build" / "lab"

    def allocators(self) -> list[Allocator]:
        """Ours, glibc and the peers, the missing ones included with their reasons."""
        own_missing = "" if self.library.exists() else f"not built: ./dev build {self.preset}"
        found = [Allocator(TSLAB, self.preset, self.library, own_missing)]
        file = self.root / ".peers" / "peers.json"
        try:
            peers = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            peers = []
        except ValueError as error:
            raise LabError(f"{file} cannot be read ({error}); make it again with ./dev peers") from error
        for peer in peers:
            if peer["name"] == GLIBC:
                found.append(Allocator(GLIBC, peer["version"], None))
                continue
            path = Path(peer["path"]) if peer["path"] else None
            reason = peer["reason"] or ("" if path and path.exists() else "its file is gone: ./dev peers")
            found.append(Allocator(peer["name"], peer["version"] or "?", path, reason))
        if not any(allocator.name == GLIBC for allocator in found):
            found.insert(1, Allocator(GLIBC, _glibc_version(), None))
        return found

    def known(self) -> dict[str, Path | None]:
        return {a.name: a.library.resolve() if a.library else None for a in self.allocators() if not a.missing}


def find(preset: str = "release", start: Path | None = None) -> Project:
    """The repository around the current folder; without one, the current folder stands for it."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "include" / "tslab" / "tslab.h").exists():
            return Project(folder, preset)
    return Project(here, preset)


def _glibc_version() -> str:
    return (os.confstr("CS_GNU_LIBC_VERSION") or "glibc ?").split()[-1]
