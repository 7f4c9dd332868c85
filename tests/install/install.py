"""An installed copy serves programs built by pkg-config and by CMake, linked or preloaded, wherever it is put.

    install.py BUILD_DIRECTORY SOURCE_DIRECTORY [C_COMPILER CXX_COMPILER]

With compilers the source is also built as a part of another project, by them.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

CONSUMER = Path(__file__).parent / "consumer"
SUBPROJECT = Path(__file__).parent / "subproject"


class Failure(Exception):
    """A line that says what does not hold."""


def run(command: Sequence[str | Path], **variables: str) -> str:
    """Standard output of `command`, which must succeed."""
    words = [str(word) for word in command]
    outcome = subprocess.run(words, env={**environment(), **variables}, capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        raise Failure(f"{' '.join(words)}: status {outcome.returncode}\n{outcome.stdout}{outcome.stderr}")
    return outcome.stdout


def environment() -> dict[str, str]:
    dropped = ("LD_", "TSLAB_", "CMAKE_", "PKG_CONFIG_")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def expect(what: str, found: str, *words: str) -> None:
    missing = [word for word in words if word not in found.split()]
    if missing:
        raise Failure(f"{what}: printed {found.strip()!r}, without {' '.join(missing)}")
    print(f"{what}: {found.strip()}")


def only(places: Iterator[Path], what: str) -> Path:
    found = list(places)
    if len(found) != 1:
        raise Failure(f"{len(found)} files {what} where one is due")
    return found[0]


def completions(prefix: Path) -> None:
    bash = only(prefix.rglob("bash-completion/completions/tslab"), "bash-completion/completions/tslab")
    expect("bash completion", run(["bash", "-c", f". {shlex.quote(str(bash))}; complete -p tslab"]), "tslab")
    only(prefix.rglob("zsh/site-functions/_tslab"), "zsh/site-functions/_tslab")


def by_pkg_config(prefix: Path, work: Path) -> None:
    folder = str(only(prefix.rglob("tslab.pc"), "tslab.pc").parent)

    def flags(package: str) -> list[str]:
        asked = ["pkg-config", "--cflags", "--libs", f"{package} >= 0.1"]
        return shlex.split(run(asked, PKG_CONFIG_PATH=folder))

    libraries = str(only(prefix.rglob("libtslab.so"), "libtslab.so").parent)
    run(["cc", "-Werror", CONSUMER / "program.c", "-o", work / "pc_shared", *flags("tslab")])
    finds = [CONSUMER / "program.c", "-o", work / "pc_finds", *flags("tslab"), f"-Wl,-rpath,{libraries}"]
    run(["cc", *finds])  # as ./dev install says
    expect("pkg-config tslab, with a run path", run([work / "pc_finds"]), "routed=1", "live=0", "malloc=tslab")
    shared = run([work / "pc_shared"], LD_LIBRARY_PATH=libraries)
    expect("pkg-config tslab", shared, "routed=1", "live=0", "malloc=tslab")
    run(["cc", "-Werror", "-DPREFIXED", CONSUMER / "program.c", "-o", work / "pc_prefixed", *flags("tslab-prefixed")])
    expect("pkg-config tslab-prefixed", run([work / "pc_prefixed"]), "routed=1", "live=0", "malloc=libc")


def expect_programs(how: str, built: Path) -> None:
    for library, served_by in [("tslab", "tslab"), ("tslab_static", "tslab"), ("tslab_prefixed", "libc")]:
        answer = run([built / f"c_{library}"])
        expect(f"{how}, tslab::{library}", answer, "routed=1", "live=0", f"malloc={served_by}")
    expect(f"{how}, C++", run([built / "cxx"]), "routed=1")


def as_subproject(work: Path, source: Path, compilers: Sequence[str]) -> None:
    """Built within another project, under its build type and with this preset's compilers."""
    names = ("CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER")
    chosen = [f"-D{name}={compiler}" for name, compiler in zip(names, compilers, strict=True)]
    for how, option, kind in [("FetchContent", "OFF", "Release"), ("add_subdirectory", "ON", "Debug")]:
        built = work / how
        command = ["cmake", "-S", SUBPROJECT, "-B", built, f"-DTSLAB_SOURCE={source}", f"-DCMAKE_BUILD_TYPE={kind}"]
        run([*command, f"-DSUBDIRECTORY={option}", *chosen])
        run(["cmake", "--build", built, "--parallel", "2"])
        expect_programs(how, built)


def by_cmake(prefix: Path, work: Path) -> None:
    built = work / "consumer"
    run(["cmake", "-S", CONSUMER, "-B", built, f"-DCMAKE_PREFIX_PATH={prefix}"])
    run(["cmake", "--build", built])
    expect_programs("find_package", built)

    library = str(only(prefix.rglob("libtslab.so"), "libtslab.so"))
    expect("optional.h alone", run([built / "optional"]), "available=0", "routed=0")
    expect("optional.h, preloaded", run([built / "optional"], LD_PRELOAD=library), "available=1", "routed=1")
    # Where the loader looks anyway, the soname is enough: no path of one machine or architecture.
    by_name = {"LD_PRELOAD": "libtslab.so.0", "LD_LIBRARY_PATH": str(Path(library).parent)}
    expect("optional.h, preloaded by soname", run([built / "optional"], **by_name), "available=1", "routed=1")


def names_a_double_free(prefix: Path, work: Path) -> None:
    """At the call by the hardened library, at the program's end by the other, which says so."""
    program = work / "twice"
    run(["cc", "-w", "-O0", CONSUMER / "twice.c", "-o", program])
    hardened = only(prefix.rglob("libtslab-hardened.so.0"), "libtslab-hardened.so.0")
    linked = work / "pc_shared"
    libraries = str(hardened.parent)
    answer = run([linked], LD_PRELOAD=str(hardened), LD_LIBRARY_PATH=libraries)
    expect("hardened before the library that a program links", answer, "routed=1", "live=0", "malloc=tslab")
    for library, printed, late in [(hardened, "", False), (hardened.with_name("libtslab.so.0"), "after\n", True)]:
        variables = {**environment(), "LD_PRELOAD": str(library)}
        outcome = subprocess.run([program], env=variables, capture_output=True, text=True, check=False)
        told = outcome.stderr
        if "double free of" not in told or outcome.stdout != printed or ("found late" in told) != late:
            raise Failure(f"{library.name} with a double free: printed {outcome.stdout!r} and said {told!r}")
        print(f"{library.name}: {told.strip()}")


def takes_no_names(prefix: Path) -> None:
    """Each name that an archive defines is exported by the shared library, begins with tslab_, or is the compiler's.

    All objects with probes share the weak name _.stapsdt.base (base/probe.h), which no C program can define.
    """

    def names(file: Path, *options: str) -> set[str]:
        lines = run(["nm", "--defined-only", "--format=posix", *options, file]).splitlines()
        return {words[0].split("@")[0] for words in map(str.split, lines) if len(words) > 1}

    exported = names(only(prefix.rglob("libtslab.so"), "libtslab.so"), "-D")
    for archive, allowed in [("libtslab_prefixed.a", set[str]()), ("libtslab.a", exported)]:
        defined = names(only(prefix.rglob(archive), archive), "-g")
        taken = {name for name in defined - allowed if not name.startswith(("tslab_", "__", "_.stapsdt.", "DW.ref."))}
        if taken or not defined:
            raise Failure(f"{archive} takes {len(taken)} names of programs: {' '.join(sorted(taken)[:9])}")
    print("archives: no name of a program's")


def refuses_other_versions(prefix: Path, work: Path) -> None:
    source = work / "newer"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(newer NONE)\nfind_package(tslab 9 REQUIRED)\n"
    )
    command = ["cmake", "-S", source, "-B", work / "newer-built", f"-DCMAKE_PREFIX_PATH={prefix}"]
    outcome = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if outcome.returncode == 0 or "compatible with requested version" not in " ".join(outcome.stderr.split()):
        raise Failure(f"version 9 was not refused as such: status {outcome.returncode}\n{outcome.stderr}")
    print("find_package of version 9: refused")


def knows_no_place(prefix: Path, places: Sequence[Path]) -> None:
    """Files for builds must not name where the copy was built or first installed."""
    for file in prefix.rglob("*"):
        if file.suffix in {".pc", ".cmake", ".h", ".hpp"}:
            for place in places:
                if str(place) in file.read_text():
                    raise Failure(f"{file.relative_to(prefix)} names {place}")


def main() -> int:
    build, source = Path(sys.argv[1]), Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        first, prefix = work / "first", work / "moved"
        run(["cmake", "--install", build, "--prefix", first])
        first.rename(prefix)
        try:
            knows_no_place(prefix, [build, first])
            takes_no_names(prefix)
            completions(prefix)
            by_pkg_config(prefix, work)
            if (build / "libtslab-hardened.so.0").exists():  # the release build makes it
                names_a_double_free(prefix, work)
            by_cmake(prefix, work)
            refuses_other_versions(prefix, work)
            if sys.argv[3:]:
                as_subproject(work, source, sys.argv[3:5])
        except Failure as failure:
            print(failure, file=sys.stderr)
            return 1
    return 0


sys.exit(main())
