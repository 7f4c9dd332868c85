"""A measurement that would not mean what its name says is refused, or flagged."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY, Build, compile_program

from tslab.arms import (
    Arm,
    Fingerprints,
    check_knobs,
    check_preload,
    common_length,
    environment,
    environment_bytes,
    parse_arm,
)
from tslab.errors import LabError, NotServed, Refused
from tslab.runner import Program, RunFailed, run

pytestmark = pytest.mark.usefixtures("clean_environment")


def test_a_preload_that_serves_is_accepted(build: Build, program: Path) -> None:
    check_preload(Arm("ours", build("lib.so")), [str(program)])
    check_preload(Arm("glibc"), [str(program)])


def test_a_static_program_ignores_the_preload(build: Build, tmp_path: Path) -> None:
    static = compile_program(tmp_path / "static", "-static")
    with pytest.raises(NotServed, match=r"does not take.*static or privileged"):
        check_preload(Arm("ours", build("lib.so")), [str(static)])


def test_a_library_that_the_loader_rejects(tmp_path: Path, program: Path) -> None:
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"\x7fELF" + b"\0" * 60)
    with pytest.raises(NotServed, match=r"does not take.*cannot be preloaded"):
        check_preload(Arm("ours", broken), [str(program)])


def test_a_library_without_malloc_is_the_wrong_one(build: Build, program: Path) -> None:
    with pytest.raises(NotServed, match=r"wrong library: malloc binds to .*libc\.so.*does that file define malloc"):
        check_preload(Arm("ours", build("empty.so", "NO_MALLOC")), [str(program)])


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    text = tmp_path / "lib.so"
    text.write_text("not a library")
    with pytest.raises(LabError, match=r"not a shared library"):
        parse_arm(str(text), {})
    with pytest.raises(LabError, match=r"no library 'nowhere.so': give a path, or one of glibc, tslab"):
        parse_arm("nowhere.so", {"glibc": None, "tslab": text})


def test_an_unknown_knob_is_refused_by_asking_the_library(build: Build) -> None:
    library = build("libours.so", "TSLAB")
    check_knobs(Arm("known", library, {"TSLAB_CACHE": "64K"}))
    with pytest.raises(Refused, match=r"unknown setting TSLAB_REFILL_BATCH"):
        check_knobs(Arm("unread", library, {"TSLAB_REFILL_BATCH": "32"}))


def test_an_unknown_knob_of_the_caller_is_refused_too(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSLAB_OLD_NAME", "1")
    with pytest.raises(Refused, match=r"unknown setting TSLAB_OLD_NAME"):
        check_knobs(Arm("ours", build("libours.so", "TSLAB")))


def test_a_knob_for_an_allocator_that_reads_none(build: Build) -> None:
    with pytest.raises(Refused, match=r"sets TSLAB_CACHE, but .*lib.so reads no TSLAB_ variable"):
        check_knobs(Arm("peer", build("lib.so"), {"TSLAB_CACHE": "1"}))
    with pytest.raises(Refused, match=r"the C library reads no TSLAB_ variable"):
        check_knobs(Arm("glibc", None, {"TSLAB_CACHE": "1"}))


def test_the_real_library_names_its_unknown_knobs() -> None:
    library = REPOSITORY / "build" / "release" / "libtslab.so"
    if not library.exists():
        pytest.skip("build/release/libtslab.so is not built")
    check_knobs(Arm("ours", library.resolve(), {"TSLAB_SCAVENGER": "0"}))
    with pytest.raises(Refused, match=r"TSLAB_NO_SUCH_KNOB"):
        check_knobs(Arm("ours", library.resolve(), {"TSLAB_NO_SUCH_KNOB": "1"}))
    with pytest.raises(Refused, match=r"TSLAB_SCAVENGER=maybe"):
        check_knobs(Arm("ours", library.resolve(), {"TSLAB_SCAVENGER": "maybe"}))


def test_the_environment_is_made_from_nothing(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MALLOC_ARENA_MAX", "MIMALLOC_VERBOSE", "LD_LIBRARY_PATH", "HAKMEM_PROFILE", "TSLAB_CACHE"):
        monkeypatch.setenv(name, "1")
    assert set(environment(Arm("glibc"))) <= {"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL"}
    ours = environment(Arm("ours", build("libours.so", "TSLAB")))
    assert ours["TSLAB_CACHE"] == "1"
    assert "MALLOC_ARENA_MAX" not in ours


def test_both_arms_get_environments_of_one_length(build: Build) -> None:
    short, long = Arm("a"), Arm("b", build("lib.so"), {"A_LONG_SETTING": "x" * 100})
    length = common_length([short, long])
    assert environment_bytes(environment(short, length)) == environment_bytes(environment(long, length)) == length


def test_a_library_that_is_rebuilt_meanwhile(build: Build) -> None:
    library = build("lib.so", "HOT=1")
    fingerprints = Fingerprints([Arm("ours", library), Arm("glibc")])
    fingerprints.check()
    library.unlink()
    build("lib.so", "HOT=2")
    with pytest.raises(Refused, match=r"lib.so was rebuilt while it was measured"):
        fingerprints.check()


# ---- what a workload's own rows must prove ----


def workload(tmp_path: Path, row: object, status: int = 0, words: str = "") -> Program:
    script = tmp_path / "workload.py"
    text = row if isinstance(row, str) else json.dumps(row)
    script.write_text(f"import sys\nprint({text!r})\nprint({words!r}, file=sys.stderr)\nsys.exit({status})\n")
    return Program((sys.executable, str(script)), is_workload=True)


def row(malloc_from: str, served: float) -> dict[str, object]:
    proof = {"malloc_from": malloc_from, "calls": 10, "served_pct": served}
    return {"workload": "w", "variant": "v", "seed": 1, "metrics": {"ops_per_s": 5, "gap": None}, "proof": proof}


LIBC = "/lib/x86_64-linux-gnu/libc.so.6"


def test_a_proven_row_is_taken(tmp_path: Path) -> None:
    result = run(workload(tmp_path, row(LIBC, 100)), Arm("glibc"))
    assert result.rows[0].metrics == {"ops_per_s": 5.0}


def test_a_run_served_below_99_percent_is_no_row(tmp_path: Path) -> None:
    with pytest.raises(NotServed, match=r"served 98.90 % of the calls; a run below 99 % is no row"):
        run(workload(tmp_path, row(LIBC, 98.9)), Arm("glibc"))


def test_a_row_of_another_library_is_no_row(tmp_path: Path, build: Build) -> None:
    with pytest.raises(NotServed, match=r"wrong library: malloc came from"):
        run(workload(tmp_path, row(LIBC, 100)), Arm("ours", build("lib.so")))
    with pytest.raises(NotServed, match=r"not from glibc"):
        run(workload(tmp_path, row("/x/libmimalloc.so", 100)), Arm("glibc"))


def test_a_workload_that_found_another_allocator(tmp_path: Path) -> None:
    with pytest.raises(NotServed, match=r"glibc served it"):
        run(workload(tmp_path, "", status=4, words="glibc served it"), Arm("glibc"))


@pytest.mark.parametrize(
    ("text", "status", "message", "kind"),
    [
        ("", 3, "exited with status 3: out of memory", "crashed"),
        ("", 0, "printed no row", "crashed"),
        ("{broken", 0, "a row that cannot be read", "crashed"),
        ('{"workload": "apps", "missing": "nginx is not installed"}', 1, "nginx is not installed", "missing"),
    ],
)
def test_a_workload_that_fails(tmp_path: Path, text: str, status: int, message: str, kind: str) -> None:
    with pytest.raises(RunFailed, match=message) as failure:
        run(workload(tmp_path, text, status, "out of memory"), Arm("glibc"))
    assert failure.value.status == kind


def test_a_crash_names_its_signal(build: Build, program: Path) -> None:
    with pytest.raises(RunFailed, match=r"crashed with signal 6"):
        run(Program((str(program),), is_workload=False), Arm("crash", build("crash.so", "CRASH")))


def test_a_program_that_does_not_end_is_stopped_with_its_children() -> None:
    with pytest.raises(RunFailed, match=r"stopped after") as failure:
        run(Program(("sh", "-c", "sleep 60 & wait"), is_workload=False), Arm("glibc"), timeout_s=0.2)
    assert failure.value.status == "stopped"


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(LabError, match=r"cannot run /no/such: No such file"):
        run(Program(("/no/such",), is_workload=False), Arm("glibc"))
