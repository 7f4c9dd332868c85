"""`tslab bench` and `tslab ab` from end to end, on real workloads that the test compiles from bench/."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY, Build

from tslab import benchmark, ledger, suite
from tslab.benchmark import read_stats
from tslab.cli import main
from tslab.errors import LabError
from tslab.result import Result

pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the workload random-mixed and no library of ours."""
    (tmp_path / "include" / "tslab").mkdir(parents=True)
    (tmp_path / "include" / "tslab" / "tslab.h").touch()
    workloads = tmp_path / "build" / "release" / "bench"
    workloads.mkdir(parents=True)
    sources = [str(REPOSITORY / "bench" / name) for name in ("random-mixed.c", "lab.c")]
    flags = ["-D_GNU_SOURCE", "-O2", "-lm", "-ldl", "-lpthread"]
    subprocess.run(["cc", *sources, "-o", str(workloads / "random-mixed"), *flags], check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def peers(place: Path, *entries: dict[str, str]) -> None:
    (place / ".peers").mkdir(exist_ok=True)
    full = [{"version": "1", "source": "", "path": "", "reason": ""} | entry for entry in entries]
    (place / ".peers" / "peers.json").write_text(json.dumps(full))


def bench(place: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> dict[str, Any]:
    """A run whose first round leaves time for exactly two."""
    small = suite.Case("random-mixed", ("--iterations=20000",), ("ops_per_s",))
    monkeypatch.setattr(suite, "CASES", (small,))
    monkeypatch.setattr(benchmark, "MOST_ROUNDS", 2)
    out = place / "out.json"
    assert main(["bench", "--budget", "1", "--out", str(out), *options]) == 0
    data: dict[str, Any] = json.loads(out.read_text())
    return data


def test_peers_that_are_missing_crash_or_do_not_serve_are_rows(
    place: Path, build: Build, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peers(
        place,
        {"name": "gone", "reason": "no package carries it"},
        {"name": "crash", "path": str(build("crash.so", "CRASH"))},
        # It stands in front of glibc's malloc and passes every call on: the rows would be glibc's.
        {"name": "shell", "path": str(build("shell.so"))},
    )
    data = bench(place, monkeypatch)
    assert data["rounds"] == 2
    by_name = {a["name"]: a["missing"] for a in data["allocators"]}
    assert by_name["gone"] == "no package carries it"
    assert by_name["tslab"] == "not built: ./dev build release"
    status = {(run["allocator"], run["round"]): run["status"] for run in data["runs"]}
    assert status == {
        ("glibc", 1): "ok", ("glibc", 2): "ok",
        ("crash", 1): "crashed", ("crash", 2): "crashed",
        ("shell", 1): "not-served",
    }  # fmt: skip
    result = Result(data, "glibc")
    cell = result.cell(result.rows()[0], "crash")
    assert (cell.status, "signal 6" in cell.note) == ("crashed", True)
    said = capsys.readouterr().out
    assert "missing: gone: no package carries it" in said
    assert "not-served" in said


def test_a_result_records_where_it_came_from(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    data = bench(place, monkeypatch, "--allocator", "glibc")
    assert data["dropped"] == ["MALLOC_ARENA_MAX"]
    assert {"cpu", "cores", "caches", "tlb", "kernel", "libc", "thp", "commit"} <= data["machine"].keys()
    for run in data["runs"]:
        assert {"steal_pct", "load", "malloc_from"} <= run.keys()
        assert "libc" in run["malloc_from"]


def test_routes_are_rows_beside_plain_malloc(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options, figures = ("--iterations=20000",), ("ops_per_s",)
    plain = suite.Case("random-mixed", options, figures)
    other = suite.Case("random-mixed", options, figures, routes=(("tslab", "--draws=independent"),))
    routed = suite.Case("random-mixed", options, figures, routes=(("glibc", "--draws=independent"),))
    alone = suite.Case("random-mixed", options, figures, routes=(("tslab", "--slots=8"),), alone=True)
    monkeypatch.setattr(suite, "CASES", (plain, other, routed, alone))
    monkeypatch.setattr(benchmark, "MOST_ROUNDS", 2)
    assert main(["bench", "--budget", "1", "--allocator", "glibc", "--out", str(place / "out.json")]) == 0
    result = Result(json.loads((place / "out.json").read_text()), "glibc")
    figures_of = {case.name: result.runs(case.name, "", "glibc") for case in (plain, other, routed, alone)}
    assert routed.name == "random-mixed iterations=20000 glibc:draws=independent"
    # Where glibc does the same, it does it once a round; its own route is another run, of a row that compares.
    assert [run["metrics"] for run in figures_of[other.name]] == [run["metrics"] for run in figures_of[plain.name]]
    assert figures_of[routed.name][0]["metrics"] != figures_of[plain.name][0]["metrics"]
    assert "draws" not in figures_of[routed.name][0]["variant"]
    assert figures_of[alone.name] == []
    assert {key.case for key in result.headlines("time")} == {plain.name}
    (lonely,) = (key for key in result.rows() if key.case == alone.name and key.category == "time")
    assert result.cell(lonely, "glibc").status == "not run"
    monkeypatch.setattr(suite, "CASES", (alone,))
    assert main(["bench", "--budget", "1", "--allocator", "glibc"]) == 2
    assert "glibc: nothing to run" in capsys.readouterr().err


@pytest.mark.parametrize("count", range(2, 10))
def test_no_place_in_a_round_is_one_allocators_more_than_anothers(count: int) -> None:
    names = [f"allocator {i}" for i in range(count)]
    whole = count if count % 2 == 0 else 2 * count
    rounds = [benchmark.order_of(number, names) for number in range(2 * count)]
    for first, second in zip(rounds[::2], rounds[1::2], strict=True):
        assert {first.index(name) + second.index(name) for name in names} == {count - 1}
    places = Counter((name, place) for order in rounds[:whole] for place, name in enumerate(order))
    assert set(places.values()) == {whole // count} and len(places) == count**2
    neighbours = Counter(pair for order in rounds[:whole] for pair in itertools.pairwise(order))
    assert set(neighbours.values()) == {whole // count} and len(neighbours) == count * (count - 1)
    for half in (rounds[::2], rounds[1::2]):
        assert all(set(names) == set(at_place) for at_place in zip(*half, strict=True))


def test_rounds_come_in_pairs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = suite.Case("random-mixed", ("--iterations=20000",), ("ops_per_s",))
    glibc = [a for a in benchmark.Project(place).allocators() if a.name == "glibc"]
    for most, rounds in ((7, 6), (3, 2)):
        monkeypatch.setattr(benchmark, "MOST_ROUNDS", most)
        assert benchmark.Benchmark(benchmark.Project(place), [small], glibc, 60).run()["rounds"] == rounds


def test_an_unknown_knob_stops_a_benchmark(
    place: Path, build: Build, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "build" / "release" / "libtslab.so").symlink_to(build("libours.so", "TSLAB"))
    monkeypatch.setenv("TSLAB_TYPO", "1")
    assert main(["bench", "--workload", "random-mixed", "--allocator", "tslab"]) == 3
    assert "unknown setting TSLAB_TYPO" in capsys.readouterr().err


def test_names_that_do_not_exist(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--workload", "nothing"]) == 2
    assert "no workload 'nothing'; there are apps, burst" in capsys.readouterr().err
    assert main(["bench", "--allocator", "nothing"]) == 2
    assert "no allocator 'nothing'; there are tslab, glibc (./dev peers" in capsys.readouterr().err
    assert main(["bench", "--workload", "latency", "--allocator", "glibc"]) == 2
    assert "is not built: ./dev build release --all" in capsys.readouterr().err


def test_short_forms_are_part_of_the_full_suite() -> None:
    full, quick = suite.choose(False), suite.choose(True)
    assert {case.workload for case in quick} == {case.workload for case in full}
    assert len(quick) < len(full)
    assert len({case.name for case in full}) == len(full)
    for case in quick:
        names = [option.partition("=")[0] for option in case.options]
        assert len(names) == len(set(names)), case


def test_a_long_case_runs_only_where_its_workload_is_named() -> None:
    whole, named = suite.choose(False), suite.choose(False, ["day"])
    assert [case.options for case in named] == [("--seconds=24",), ("--seconds=900",)]
    assert [case for case in whole if case.workload == "day"] == named[:1]


def test_no_case_is_longer_than_its_limit() -> None:
    for case in suite.CASES:
        for seconds in (option.removeprefix("--seconds=") for option in case.options if "--seconds=" in option):
            assert int(seconds) < case.limit_s, case


def test_every_workload_of_the_repository_is_in_the_suite() -> None:
    of_one_library = {"sampling"}  # compares two pieces of its own process, so no other allocator runs it
    sources = {path.stem for path in (REPOSITORY / "bench").glob("*.c")} - {"lab"} - of_one_library
    assert sources | {"apps"} == {case.workload for case in suite.CASES}


def test_statistics_of_the_library_are_read() -> None:
    text = "slabs_born 18\nreturned_bytes 5\nclass 16 allocations 50 refills 1\nclass 32 allocations 36 refills 2\n"
    assert read_stats(text) == {
        "slabs_born": 18, "returned_bytes": 5, "class_allocations": 86, "class_refills": 3
    }  # fmt: skip


# ---- tslab ab ----

COUNT = "--count-with=--iterations=5000"
RUN = ("--", "random-mixed", "--iterations=20000")


def test_ab_end_to_end_with_a_ledger_row(
    place: Path, build: Build, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = [str(build("cool.so", "HOT=0")), str(build("hot.so", "HOT=300"))]
    options = ["--budget", "0.05", "--predict", "-50", "--record", "hot loop", "--why", "to see it"]
    assert main(["ab", *arms, *options, "--metric", "cpu_s", "--", str(program)]) == 0
    said = capsys.readouterr().out
    for words in (
        "executed here: work",
        "(Amdahl, by instructions)",
        "A/A  ",
        "predicted -50 %",
        "instructions a call",
    ):
        assert words in said
    (entry,) = ledger.read(place / "bench" / "LEDGER.md")
    assert (entry.what, entry.why, entry.metric, entry.predicted) == ("hot loop", "to see it", "cpu_s", "-50 %")
    assert entry.verdict in ("GO", "NO-GO", "NEUTRAL", "UNDECIDED")


@pytest.mark.parametrize(
    ("define_a", "define_b", "words"),
    [
        ("COLD=1", "COLD=2", "never reaches the changed path"),
        ("HOT=1", "HOT=1", "never reaches the changed path"),
        ("HOT=1", "NO_MALLOC", "wrong library: malloc binds to"),
    ],
)
def test_ab_refuses(
    place: Path,
    build: Build,
    program: Path,
    capsys: pytest.CaptureFixture[str],
    define_a: str,
    define_b: str,
    words: str,
) -> None:
    arms = [str(build("a.so", define_a)), str(build("b.so", define_b))]
    assert main(["ab", *arms, "--", str(program)]) in (3, 4)
    assert words in capsys.readouterr().err


def test_ab_refuses_an_unknown_knob(place: Path, build: Build, capsys: pytest.CaptureFixture[str]) -> None:
    library = str(build("libours.so", "TSLAB"))
    assert main(["ab", library, f"{library},TSLAB_TYPO=1", *RUN]) == 3
    assert "unknown setting TSLAB_TYPO" in capsys.readouterr().err


def test_ab_refuses_a_library_that_passes_calls_on(
    place: Path, build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ab", "glibc", str(build("shell.so")), COUNT, *RUN]) == 4
    assert "the rest was glibc's" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ab", "glibc", *RUN], "two sides are needed"),
        (["ab", "glibc", "glibc"], "no program given: put it after --"),
        (["ab", "glibc", "glibc", *RUN], "there is nothing to compare"),
        (["ab", "glibc", "nowhere", *RUN], "no library 'nowhere'"),
        (["ab", "glibc", "glibc", "--record", "x", *RUN], "--record needs --why"),
        (["ab", "A=1", "A=2", *RUN], "no library 'tslab'"),
    ],
)
def test_ab_explains_mistakes(place: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(words) in (2, 3)
    assert message in capsys.readouterr().err


def test_a_workload_without_the_build_is_a_command_that_is_missing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ab", "glibc", "tslab", "--", "latency"]) == 2
    assert "no library 'tslab'" in capsys.readouterr().err


def test_no_allocator_at_all(place: Path) -> None:
    missing = [benchmark.Allocator("gone", "1", None, "no package")]
    with pytest.raises(LabError, match=r"no allocator to measure \(gone: no package\)"):
        benchmark.Benchmark(benchmark.Project(place), [], missing, 1)
