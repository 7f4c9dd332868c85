"""The library's messages about settings reach standard error once, and not once for every process.

    messages.py LIBRARY
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

UNKNOWN = "tslab: unknown setting TSLAB_FOO (see docs/settings.md)"
REFUSED = "tslab: TSLAB_SCAVENGER=yes: expected 0 or 1; using 1"


def lines(script: str, **variables: str) -> list[str]:
    """The library's lines on standard error while a shell runs the script."""
    plain = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    done = subprocess.run(
        ["/bin/sh", "-c", script], env=plain | variables, capture_output=True, text=True, check=True, timeout=60
    )
    return [line for line in done.stderr.splitlines() if line.startswith("tslab: ")]


def check(what: str, found: list[str], expected: list[str]) -> bool:
    if found == expected:
        return True
    print(f"{what}: expected {expected}, got {found}")
    return False


def main() -> int:
    library = str(Path(sys.argv[1]).resolve())
    served = {"LD_PRELOAD": library}
    true, shell = "/bin/true; /bin/true", "/bin/sh -c '/bin/true; /bin/true; :'"
    wrong = served | {"TSLAB_FOO": "1", "TSLAB_SCAVENGER": "yes"}
    good = [
        check("children", sorted(lines(f"{true}; {shell}; {true}; :", **wrong)), sorted([UNKNOWN, REFUSED])),
        # A child has one more, and only that is new.
        check("another", lines(f"{true}; TSLAB_FOO=1 {shell}; :", **served, TSLAB_SCAVENGER="yes"), [REFUSED, UNKNOWN]),
        check("another value", lines("TSLAB_SCAVENGER=no /bin/true; :", **served, TSLAB_SCAVENGER="yes"),
              [REFUSED, REFUSED.replace("yes", "no")]),
        # The shell has the setting, but is not served.
        check("not served", lines(f"LD_PRELOAD={library} {shell}; :", TSLAB_FOO="1"), [UNKNOWN]),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for name in ("full", "full.json"):
            file = Path(folder) / name
            file.symlink_to("/dev/full")
            told = f"tslab: TSLAB_STATS_AT_EXIT: figures cut short (No space left on device): {file}"
            good.append(check(name, lines("exec /bin/true", **served, TSLAB_STATS_AT_EXIT=str(file)), [told]))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
