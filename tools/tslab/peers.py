"""The allocators we compare with, as preloadable libraries under .peers/, from packages only.

Each peer has origins in order of preference: the newest first. An origin fetches what a package manager gives (Debian's
binary and source packages, of the installed release or of the development one; Rust crates that carry C or C++ sources;
Python wheels), builds it with its own build's release settings where it is source, and says what it really is. The
first origin whose library loads, serves malloc and survives a threaded program is the peer; a peer without one is
listed with the reason each origin gave. Nothing of theirs is committed.

Needs only Python's standard library, so that it runs before any virtual environment is there.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".peers"
INDEX = FOLDER / "peers.json"


class UnavailableError(Exception):
    """Why an origin cannot give its peer here."""


@dataclass(frozen=True)
class Peer:
    """`path` is None for the C library's own malloc, and for a peer that is missing (then `reason` says why)."""

    name: str
    version: str = ""
    path: str | None = None
    source: str = ""
    reason: str = ""

    @property
    def available(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class Origin:
    """One way to a peer: `make` leaves the library at the path it is given and returns the version it really is."""

    source: str
    make: Callable[[Path], str]


# ---- running things ----


def run(command: Sequence[str | Path], cwd: Path | None = None, **variables: str) -> str:
    """The command's output; UnavailableError with its last lines when it fails."""
    name = Path(command[0]).name
    if shutil.which(command[0]) is None:
        raise UnavailableError(f"{name} is not installed")
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        telling = [line for line in lines if re.search(r"error|^E:|not found|cannot", line, re.IGNORECASE)]
        raise UnavailableError(f"{name} failed: {(telling or lines or ['no output'])[0][:160]}")
    return done.stdout


def workspace(name: str) -> Path:
    """An empty folder for one origin's downloads and objects."""
    folder = FOLDER / "work" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def only(paths: Sequence[Path], what: str) -> Path:
    if not paths:
        raise UnavailableError(f"{what} is not in the package")
    return sorted(paths)[-1]


def install(library: Path, target: Path) -> None:
    shutil.copyfile(library.resolve(), target)
    target.chmod(0o755)


# ---- Debian packages ----


def system_sources() -> tuple[str, str]:
    """Where this machine's own packages come from, and the key that signs them: taken from apt's configuration."""
    text = "\n".join(
        path.read_text(errors="replace")
        for path in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
        if path.is_file()
    )
    address = re.search(r"^(?:URIs:|deb\s+(?:\[[^]]*\]\s+)?)\s*(\S+/(?:debian|ubuntu)/?)(?=\s|$)", text, re.MULTILINE)
    if address is None:
        raise UnavailableError("apt's configuration names no Debian or Ubuntu archive")
    flavour = "ubuntu" if address[1].rstrip("/").endswith("ubuntu") else "debian"
    key = Path(f"/usr/share/keyrings/{flavour}-archive-keyring.gpg")
    if not key.exists():
        raise UnavailableError(f"{key} is missing (package {flavour}-archive-keyring)")
    return address[1], str(key)


class Apt:
    """A package list of one release, kept in its own folder: the machine's apt is neither asked to change nor used."""

    def __init__(self, release: str) -> None:
        self.release = release
        self.folder = FOLDER / "apt" / release

    def _options(self) -> list[str]:
        return [
            "-qq",
            "-o", f"Dir::Etc::sourcelist={self.folder}/sources.list",
            "-o", "Dir::Etc::sourceparts=-",
            "-o", f"Dir::State::lists={self.folder}/lists",
            "-o", f"Dir::Cache={self.folder}/cache",
            "-o", "Dir::State::status=/dev/null",
            "-o", "APT::Sandbox::User=",
        ]  # fmt: skip

    def refresh(self) -> None:
        if (self.folder / "ready").exists():
            return
        address, key = system_sources()
        if "ubuntu" in address:
            raise UnavailableError(f"Debian's {self.release} is not among this machine's package sources")
        for name in ("lists/partial", "cache/archives/partial"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        lines = [f"{kind} [signed-by={key}] {address} {self.release} main\n" for kind in ("deb", "deb-src")]
        (self.folder / "sources.list").write_text("".join(lines))
        run(["apt-get", *self._options(), "update"])
        (self.folder / "ready").touch()

    def binary(self, package: str, library: str, work: Path) -> tuple[Path, str]:
        """The unpacked library, and the package's version."""
        self.refresh()
        run(["apt-get", *self._options(), "download", package], cwd=work)
        archive = only(list(work.glob("*.deb")), package)
        run(["dpkg-deb", "-x", archive, work / "root"])
        version = run(["dpkg-deb", "-f", archive, "Version"]).strip()
        return only([path for path in (work / "root").rglob(library) if not path.is_symlink()], library), version

    def source(self, package: str, work: Path) -> Path:
        """The author's own sources, without Debian's changes."""
        self.refresh()
        run(["apt-get", *self._options(), "source", "--download-only", "--tar-only", package], cwd=work)
        archive = only(list(work.glob("*.orig.tar.*")), f"{package}'s source")
        run(["tar", "xf", archive.name], cwd=work)
        return only([path for path in work.iterdir() if path.is_dir()], "a folder of sources")


def debian_binary(release: str, package: str, library: str) -> Origin:
    def make(target: Path) -> str:
        found, version = Apt(release).binary(package, library, workspace(f"{release}-{package}"))
        install(found, target)
        return version

    return Origin(f"Debian {release}, package {package}", make)


def installed(package: str, library: str) -> Origin:
    def make(target: Path) -> str:
        listed = run(["dpkg-query", "-W", "-f=${Version} ${db:Status-Status}", package]).split()
        if listed[-1] != "installed":
            raise UnavailableError(f"package {package} is not installed")
        files = [Path(line) for line in run(["dpkg-query", "-L", package]).splitlines()]
        install(only([path for path in files if path.match(library)], library), target)
        return listed[0]

    return Origin(f"installed package {package}", make)


# ---- crates and wheels ----


def crate(name: str, work: Path) -> Path:
    """The newest version of a crate, unpacked."""
    (work / "src").mkdir()
    (work / "src/lib.rs").touch()
    (work / "Cargo.toml").write_text(
        f'[package]\nname = "peer"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n{name} = "*"\n[workspace]\n'
    )
    run(["cargo", "vendor", "--versioned-dirs", "vendor"], cwd=work)
    return only(list((work / "vendor").glob(f"{name}-[0-9]*")), name)


def wheel(name: str, library: str, work: Path) -> Path:
    run([sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-d", work, name])
    shutil.unpack_archive(only(list(work.glob("*.whl")), name), work / "root", "zip")
    return only(list((work / "root").rglob(library)), library)


# ---- how each one's own build makes its release library ----


def header_number(folder: Path, name: str) -> int:
    for path in sorted(folder.rglob("*.h")):
        found = re.search(rf"#define\s+{name}\s+(\d+)", path.read_text(errors="replace"))
        if found:
            return int(found[1])
    raise UnavailableError(f"no header defines {name}")


def mimalloc_version(number: int) -> str:
    """212 is 2.1.2, as it was written until 2024; 30302 is 3.3.2."""
    digits = str(number)
    if len(digits) == len("212"):
        return ".".join(digits)
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def build_mimalloc(generation: str) -> Callable[[Path], str]:
    def make(target: Path) -> str:
        sources = crate("libmimalloc-sys", workspace(f"crate-mimalloc-{generation}"))
        sources = sources / "c_src/mimalloc" / generation
        defines = ["NDEBUG", "MI_BUILD_RELEASE", "MI_MALLOC_OVERRIDE", "MI_SHARED_LIB", "MI_SHARED_LIB_EXPORT"]
        run(
            ["cc", "-O3", "-std=gnu11", "-w", "-fPIC", "-shared", "-fvisibility=hidden", "-ftls-model=initial-exec",
             "-fno-builtin-malloc", *[f"-D{name}" for name in defines], f"-I{sources}/include",
             sources / "src/static.c", "-o", target, "-pthread"]
        )  # fmt: skip
        return mimalloc_version(header_number(sources / "include", "MI_MALLOC_VERSION"))

    return make


def build_jemalloc(target: Path) -> str:
    sources = crate("tikv-jemalloc-sys", workspace("crate-jemalloc"))
    version = sources.name.partition("+")[2]
    tree = sources / "jemalloc"
    for path in (sources / "configure").iterdir():
        shutil.copy(path, tree)
    # An archive from the registry keeps neither the times nor the permissions that make and autoconf go by.
    run(["sh", "./configure", "--disable-cxx", f"--with-version={version}"], cwd=tree)
    run(["make", f"-j{os.cpu_count()}", "build_lib_shared"], cwd=tree)
    install(tree / "lib/libjemalloc.so.2", target)
    return version.partition("-")[0]


def build_gperftools(release: str) -> Callable[[Path], str]:
    def make(target: Path) -> str:
        sources = Apt(release).source("google-perftools", workspace(f"{release}-gperftools"))
        build = sources / "build"
        run(["cmake", "-S", sources, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF"])
        run(["ninja", "-C", build, "tcmalloc_minimal"])
        install(build / "libtcmalloc_minimal.so", target)
        found = re.search(r"AC_INIT\(\[gperftools\],\[([\d.]+)\]", (sources / "configure.ac").read_text())
        return found[1] if found else sources.name.rpartition("-")[2]

    return make


def build_snmalloc(target: Path) -> str:
    sources = crate("snmalloc-sys", workspace("crate-snmalloc"))
    build = sources / "build"
    run(["cmake", "-S", sources / "upstream", "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         "-DSNMALLOC_BUILD_TESTING=OFF"])  # fmt: skip
    run(["ninja", "-C", build, "snmallocshim"])
    install(build / "libsnmallocshim.so", target)
    return sources.name.rpartition("-")[2]


def build_rpmalloc(target: Path) -> str:
    sources = crate("rpmalloc-sys", workspace("crate-rpmalloc"))
    code = sources / "rpmalloc/rpmalloc/rpmalloc.c"
    compiler = shutil.which("clang") or "cc"  # its own build prefers clang
    run([compiler, "-O3", "-w", "-D_GNU_SOURCE", "-DNDEBUG", "-DENABLE_PRELOAD=1", "-DENABLE_OVERRIDE=1", "-fPIC",
         "-shared", code, "-o", target, "-pthread", "-ldl"])  # fmt: skip
    noted = (sources / "rpmalloc/CHANGELOG").read_text(errors="replace").split()[0]
    return f"{noted}, commit {sources.name.rpartition('+')[2]}"


def wheel_mimalloc(target: Path) -> str:
    work = workspace("wheel-mimalloc")
    install(wheel("cmeel-mimalloc", "libmimalloc.so.*", work), target)
    return mimalloc_version(header_number(work / "root", "MI_MALLOC_VERSION"))


PEERS: dict[str, list[Origin]] = {
    "mimalloc3": [
        debian_binary("testing", "libmimalloc3", "libmimalloc.so.3.*"),
        Origin("wheel cmeel-mimalloc", wheel_mimalloc),
        Origin("crate libmimalloc-sys", build_mimalloc("v3")),
    ],
    "mimalloc2": [
        Origin("crate libmimalloc-sys, its v2 sources", build_mimalloc("v2")),
        installed("libmimalloc2.0", "*/libmimalloc.so.2*"),
    ],
    "jemalloc": [
        Origin("crate tikv-jemalloc-sys", build_jemalloc),
        installed("libjemalloc2", "*/libjemalloc.so.2"),
    ],
    "tcmalloc": [
        debian_binary("testing", "libtcmalloc-minimal4t64", "libtcmalloc_minimal.so.4.*"),
        Origin("Debian stable, sources of google-perftools", build_gperftools("stable")),
        installed("libtcmalloc-minimal4", "*/libtcmalloc_minimal.so.4"),
    ],
    "snmalloc": [Origin("crate snmalloc-sys", build_snmalloc)],
    "rpmalloc": [Origin("crate rpmalloc-sys (no package carries rpmalloc 2)", build_rpmalloc)],
}


# ---- making, proving, listing ----

PROBE = """
import threading
def churn():
    kept = [bytearray(n % 5000) for n in range(20000)]
    del kept[::2]
threads = [threading.Thread(target=churn) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
"""


def prove(library: Path) -> None:
    """UnavailableError unless the library serves malloc in a threaded program that then ends normally."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env=os.environ | {"LD_PRELOAD": str(library), "PYTHONMALLOC": "malloc", "LD_DEBUG": "bindings"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    complaint = re.search(r"ERROR: ld\.so: .*|version `.*' not found.*", done.stderr)
    if complaint:
        raise UnavailableError(f"it does not load: {complaint[0][:160]}")
    if done.returncode != 0:
        raise UnavailableError(f"a threaded program ends with status {done.returncode} under it")
    # Ask the dynamic linker, and not dladdr: in an interpreter that is not position-independent, as Debian's, an
    # address of malloc may be the interpreter's own.
    served = {Path(name).resolve() for name in re.findall(r" to (\S+) \[\d+\]: normal symbol `malloc'", done.stderr)}
    served.discard(Path(sys.executable).resolve())
    if served != {library.resolve()}:
        raise UnavailableError(f"malloc comes from {', '.join(map(str, sorted(served))) or 'nowhere'} under it")


def obtain(name: str, origins: Sequence[Origin]) -> Peer:
    target = FOLDER / f"{name}.so"
    reasons: list[str] = []
    for origin in origins:
        print(f"  {name}: {origin.source} ...", file=sys.stderr, flush=True)
        target.unlink(missing_ok=True)
        try:
            version = origin.make(target)
            prove(target)
        except (UnavailableError, OSError, subprocess.TimeoutExpired) as error:
            reasons.append(f"{origin.source}: {error}")
            continue
        skipped = f" (before it: {'; '.join(reasons)})" if reasons else ""
        return Peer(name, version, str(target), origin.source + skipped)
    target.unlink(missing_ok=True)
    return Peer(name, reason="; ".join(reasons))


def glibc() -> Peer:
    version = ctypes.CDLL(None).gnu_get_libc_version
    version.restype = ctypes.c_char_p
    return Peer("glibc", version().decode(), None, "the system's C library")


def load() -> list[Peer]:
    """Every peer as last made, missing ones included; glibc alone where none was made."""
    if not INDEX.exists():
        return [glibc()]
    return [glibc(), *(Peer(**entry) for entry in json.loads(INDEX.read_text()))]


def make(names: Sequence[str], again: bool) -> list[Peer]:
    """Makes the named peers that are not there yet (all of them with `again`), and keeps the list."""
    FOLDER.mkdir(exist_ok=True)
    known = {peer.name: peer for peer in load() if peer.name in PEERS}
    for name, origins in PEERS.items():
        there = name in known and known[name].available and Path(known[name].path or "").exists()
        if name in names and (again or not there):
            known[name] = obtain(name, origins)
        INDEX.write_text(json.dumps([asdict(known[name]) for name in PEERS if name in known], indent=2) + "\n")
    shutil.rmtree(FOLDER / "work", ignore_errors=True)
    return load()


def table(peers: Sequence[Peer]) -> str:
    rows = [("NAME", "VERSION", "LIBRARY", "SOURCE")]
    for peer in peers:
        if peer.available:
            rows.append((peer.name, peer.version, peer.path or "(no preload)", peer.source))
        else:
            rows.append((peer.name, "missing", "-", peer.reason))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[3]]) for row in rows
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev peers", description="Makes the peers' libraries and lists them.")
    parser.add_argument("names", nargs="*", help=f"which ones; all by default: {', '.join(PEERS)}")
    parser.add_argument("--again", action="store_true", help="make them anew, even where they are there")
    parser.add_argument("--list", action="store_true", help="list what is there and make nothing")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(PEERS))
    if unknown:
        parser.error(f"no peer '{unknown[0]}'; choose from: {', '.join(PEERS)}")
    peers = load() if options.list else make(options.names or list(PEERS), options.again)
    print(table(peers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
