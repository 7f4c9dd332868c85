"""Preloads the library under a command: finds it, makes the environment, runs a small program that publishes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tslab import process as processes
from tslab import project, unpublished
from tslab.arms import is_tslab
from tslab.errors import LabError

INSTALLED = ("/usr/local/lib", "/usr/lib", "/usr/lib64", f"/usr/lib/{os.uname().machine}-linux-gnu")
CARRIED = Path(__file__).parent / "lib"  # a wheel of the whole repository has the libraries here
AT_EXIT = "TSLAB_STATS_AT_EXIT"
_PUBLISHES_WITHIN_S = 20.0
# Allocates now and then, so that the library's own thread is born and makes the segment.
_PROGRAM = "import time\nfor _ in range(600): x = [bytearray(1500) for _ in range(5000)]; time.sleep(.1)"


def _install_folders() -> list[str]:
    """The folders where an installed library may lie: LD_LIBRARY_PATH, `./dev install ~/.local`, the system."""
    told = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    return [*told, str(Path("~/.local/lib").expanduser()), *INSTALLED]


def find_library(given: Path | None, hardened: bool = False) -> Path:
    """The one that is named, the project's around us, the wheel's own, this package's project's or an installed one."""
    if given is not None:
        return _checked(given)
    name = "libtslab-hardened.so" if hardened else "libtslab.so"
    places = [
        project.find().library.with_name(name),
        CARRIED / f"{name}.0",
        project.find(start=Path(__file__)).library.with_name(name),
        *(Path(folder) / f"{name}.0" for folder in _install_folders()),
    ]
    for place in places:
        if place.exists():
            return _checked(place)
    raise LabError(
        f"no {name}: {places[0]} is not built and none is installed; "
        f"build it with `./dev build`, or name one with --lib PATH"
    )


def _checked(path: Path) -> Path:
    try:
        good = path.is_file() and path.read_bytes()[:4] == b"\x7fELF" and is_tslab(path)
    except OSError as error:
        raise LabError(f"cannot read {path}: {error.strerror}") from error
    if not good:
        raise LabError(f"{path} is not the library of temporal-slab (no ELF file that has tslab_version)")
    whole = path.resolve()
    if re.search(r"[ :]", str(whole)):
        raise LabError(
            f"'{whole}' has a space or a colon in it, where LD_PRELOAD ends a name: copy the library elsewhere"
        )
    return whole


def environment(library: Path, settings: Sequence[str]) -> dict[str, str]:
    """Our variables and those that `--set NAME=VALUE` adds. Libraries that are preloaded already stay, after ours."""
    found = dict(os.environ)
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise LabError(f"--set takes NAME=VALUE, not '{setting}'")
        found[name] = value
    found["LD_PRELOAD"] = ":".join(filter(None, [str(library), found.get("LD_PRELOAD", "")]))
    return found


@contextmanager
def running(library: Path) -> Iterator[int]:
    """A small program under the library that publishes, and is ended afterwards."""
    variables = {name: value for name, value in environment(library, []).items() if not name.startswith("TSLAB_")}
    child = subprocess.Popen([sys.executable, "-S", "-c", _PROGRAM], env=variables)
    try:
        end = time.monotonic() + _PUBLISHES_WITHIN_S
        found = processes.look(child.pid)
        while found and not Path(processes.segment_path(found)).exists():
            if time.monotonic() > end or child.poll() is not None:
                why = unpublished.why(found, processes.segment_path(found))
                raise LabError(f"a program under {library} publishes nothing: {why}")
            time.sleep(0.05)
        yield child.pid
    finally:
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # not reaped, the number is still its own
        processes.remove_segment(child.pid)
        child.wait()
