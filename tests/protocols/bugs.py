"""One-line bugs in copies of the shipped sources, which the explorer must find.

    bugs.py list                     name;source;scenario of each, one a line
    bugs.py write NAME SOURCE COPY   the source with that bug

What is replaced must be there exactly once: a test of a bug that is not in it would prove nothing.
"""

import sys
from pathlib import Path
from typing import NamedTuple


class Bug(NamedTuple):
    name: str
    scenario: str
    source: str
    old: str
    new: str


BUGS = [
    # ---- an order that is weakened, or a store or barrier that is dropped
    Bug("push_relaxed", "remote-free", "src/slab/slab.c",
        "new, memory_order_release, memory_order_relaxed))\n      return settle;",
        "new, memory_order_relaxed, memory_order_relaxed))\n      return settle;"),
]  # fmt: skip


def write(name: str, source: str, copy: str) -> int:
    bug = next(bug for bug in BUGS if bug.name == name)
    text = Path(source).read_text(encoding="utf-8")
    found = text.count(bug.old)
    if found != 1:
        print(f"{source}: expected this text once, found it {found} times; adapt the bug {name} to it:\n{bug.old}")
        return 1
    Path(copy).write_text(f'#line 1 "{source}"\n' + text.replace(bug.old, bug.new), encoding="utf-8")
    return 0


def main() -> int:
    match sys.argv[1:]:
        case ["list"]:
            print("\n".join(f"{bug.name};{bug.source};{bug.scenario}" for bug in BUGS))
            return 0
        case ["write", name, source, copy]:
            return write(name, source, copy)
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
