"""The Debian packages, built by dpkg-buildpackage, pass lintian, and debian/tests pass where they alone are installed.

    debian.py SOURCE_DIRECTORY

Status 77 where what builds them is missing. As root, and where debootstrap and its mirror can be had, the packages are
installed into a fresh Debian, and that is where debian/tests run; elsewhere they are unpacked into a folder.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

NEEDED = ("dpkg-buildpackage", "dh", "dh_python3", "lintian")
SKIPPED = 77
PACKAGES = ("libtslab0", "libtslab-dev", "tslab")
MIRROR = "http://deb.debian.org/debian"
INSIDE = "python3-rich,python3-pyelftools,python3-prometheus-client,gcc,libc6-dev,pkgconf"


class Failure(Exception):
    """A line that says what does not hold."""


def run(command: Sequence[str | Path], where: Path, **more: str) -> str:
    dropped = ("LD_", "TSLAB_", "CMAKE_", "DEB_")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(dropped)} | more
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=where, env=variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise Failure(f"{' '.join(words)}: status {done.returncode}\n{said}")
    return done.stdout + done.stderr


def copy_of(source: Path, work: Path) -> Path:
    """The tree without what git ignores, for the build writes into it."""
    target = work / "temporal-slab"
    ignored = shutil.ignore_patterns("build", ".venv", ".peers", ".git", "__pycache__", ".*_cache")
    shutil.copytree(source, target, ignore=ignored, symlinks=True)
    return target


def build(tree: Path) -> dict[str, Path]:
    run(["dpkg-buildpackage", "-b", "-uc", "-us", f"-j{os.cpu_count()}"], tree, CMAKE_GENERATOR="Unix Makefiles")
    work = tree.parent
    changes = next(work.glob("*.changes"))
    said = run(["lintian", "--allow-root", "--fail-on", "error,warning", changes], work)
    print(f"lintian: {said.strip() or 'nothing to say'}")
    return {name: next(work.glob(f"{name}_*.deb")) for name in PACKAGES}


def fresh_debian(packages: dict[str, Path], work: Path) -> Path | None:
    """A Debian with the packages installed; None where there can be none."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        return None
    root = work / "root"
    try:
        run(["debootstrap", "--variant=minbase", f"--include={INSIDE}", "bookworm", root, MIRROR], work)
    except Failure as failure:
        print(f"no fresh Debian: {str(failure).splitlines()[-1]}")
        return None
    for path in packages.values():
        shutil.copy(path, root / "tmp")
    run(["chroot", root, "dpkg", "-i", *(f"/tmp/{path.name}" for path in packages.values())], work)
    return root


def in_fresh_debian(root: Path, tests: Path) -> None:
    shutil.copytree(tests, root / "tests")
    inside = ["unshare", "--fork", "--pid", f"--mount-proc={root}/proc", "chroot", root, "env", "-i"]
    for test in ("preload", "link", "command"):
        said = run([*inside, "PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"/tests/{test}"], root)
        print(f"debian/tests/{test} in a fresh Debian: {' '.join(said.split()[-12:])}")
    gone = run(["chroot", root, "dpkg", "--purge", *reversed(PACKAGES)], root)
    left = [path for path in (root / "usr").rglob("*tslab*") if path.is_file()]
    if left or "warning" in gone:
        raise Failure(f"purging the packages leaves {left}: {gone}")


def unpacked(packages: dict[str, Path], work: Path, tests: Path) -> None:
    root = work / "unpacked"
    for path in packages.values():
        run(["dpkg-deb", "-x", path, root], work)
    libraries = next(root.glob("usr/lib/*/libtslab.so.0")).parent
    variables = {
        "LD_LIBRARY_PATH": str(libraries),
        "PKG_CONFIG_PATH": str(libraries / "pkgconfig"),
        "PKG_CONFIG_SYSROOT_DIR": str(root),
    }
    for test in ("preload", "link"):
        said = run([tests / test], work, **variables)
        print(f"debian/tests/{test}, unpacked: {' '.join(said.split())}")


def main() -> int:
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        print(f"not here: {', '.join(missing)} (apt-get install dpkg-dev debhelper dh-python lintian)")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="tslab-debian-") as folder:
        work = Path(folder)
        work.chmod(0o755)
        try:
            tree = copy_of(Path(sys.argv[1]), work)
            packages = build(tree)
            root = fresh_debian(packages, work)
            if root:
                in_fresh_debian(root, tree / "debian" / "tests")
            else:
                unpacked(packages, work, tree / "debian" / "tests")
        except Failure as failure:
            print(f"debian: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
