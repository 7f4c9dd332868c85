"""The functions of a shared library, by address: one address may have several names."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection


class Symbols:
    """Addresses are the file's, before it is loaded anywhere."""

    def __init__(self, library: Path) -> None:
        names: dict[int, list[str]] = defaultdict(list)
        with library.open("rb") as file:
            for section in ELFFile(file).iter_sections():
                if not isinstance(section, SymbolTableSection):
                    continue
                for symbol in section.iter_symbols():
                    is_code = symbol["st_info"]["type"] in ("STT_FUNC", "STT_GNU_IFUNC") and symbol["st_value"]
                    if is_code and symbol.name not in names[symbol["st_value"]]:
                        names[symbol["st_value"]].append(symbol.name)
        self._names = dict(names)
        self._starts = sorted(names)

    def address(self, name: str) -> int | None:
        return next((address for address, names in self._names.items() if name in names), None)

    def names(self) -> set[str]:
        return {name for names in self._names.values() for name in names}

    def at(self, address: int) -> str:
        """The function that an address lies in."""
        index = bisect_right(self._starts, address) - 1
        return self._names[self._starts[index]][0] if index >= 0 else "?"

    def aliases(self, wanted: set[str]) -> set[str]:
        """The names and every other name of the same functions: tools differ in which one they show."""
        return wanted | {other for names in self._names.values() if wanted.intersection(names) for other in names}
