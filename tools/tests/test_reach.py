"""Step 0 finds the functions that changed, if they are executed, and how much they could matter."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Build
from rich.console import Console

from tslab import profile, stepping
from tslab.arms import Arm
from tslab.commands import ab
from tslab.errors import Refused
from tslab.profile import Function, Profile
from tslab.reach import Reach, changed_functions, disassemble, reach
from tslab.runner import Program
from tslab.stats import Verdict, verdict_of
from tslab.symbols import Symbols

pytestmark = pytest.mark.usefixtures("clean_environment")


def counted(program: Path, a: Arm, b: Arm) -> Reach:
    return reach(a, b, lambda arm: profile.callgrind(Program((str(program),), is_workload=False), arm))


def test_only_the_changed_function_is_named(build: Build) -> None:
    a, b = build("a.so", "COLD=1"), build("b.so", "COLD=2")
    assert changed_functions(a, b) == {"unreached"}
    assert changed_functions(a, a) == set()
    assert {"malloc", "free", "work", "unreached"} <= disassemble(a).keys()


def test_code_that_only_moved_has_not_changed(build: Build) -> None:
    # COLD=100000 makes `unreached` longer by some bytes, which moves everything behind it.
    assert changed_functions(build("a.so", "COLD=0"), build("b.so", "COLD=100000")) == {"unreached"}


def test_different_allocators_are_compared_as_wholes(build: Build) -> None:
    assert changed_functions(None, build("a.so")) is None
    assert changed_functions(build("a.so"), build("empty.so", "NO_MALLOC")) is not None


def test_a_workload_that_never_reaches_the_changed_path_is_refused(build: Build, program: Path) -> None:
    found = counted(program, Arm("a", build("a.so", "COLD=1")), Arm("b", build("b.so", "COLD=2")))
    assert found.changed == ("unreached",)
    assert (found.executed, found.share, found.bound) == ((), 0.0, 0.0)
    with pytest.raises(Refused, match=r"never reaches the changed path.*\(unreached\)"):
        found.refuse_if_unreached()


def test_the_bound_is_the_share_of_the_changed_functions(build: Build, program: Path) -> None:
    found = counted(program, Arm("a", build("a.so", "HOT=0")), Arm("b", build("b.so", "HOT=40")))
    assert found.executed == ("work",)
    found.refuse_if_unreached()
    # 40 multiplications a call beside some 25 instructions of glibc's malloc and free and the loop around them.
    assert 0.2 < found.share < 0.8
    assert found.bound == pytest.approx(found.share / (1 - found.share))
    assert 0.4 < found.calls_per_operation < 0.6  # one of malloc and free
    a, b = found.per_call
    assert 15 < b - a < 80
    assert verdict_of(found.instructions, 0.01) is Verdict.NO_GO
    assert "Amdahl" in "\n".join(found.lines())


def test_a_setting_that_changes_nothing_executed_is_refused(build: Build, program: Path) -> None:
    library = build("lib.so")
    with pytest.raises(Refused, match=r"never reaches the changed path"):
        counted(program, Arm("a", library), Arm("b", library, {"NOBODY_READS_THIS": "1"})).refuse_if_unreached()


def test_a_setting_that_is_read_is_found_by_its_counts(build: Build, program: Path) -> None:
    library = build("lib.so")
    found = counted(program, Arm("a", library), Arm("b", library, {"LAB_TWICE": "1"}))
    assert {"malloc", "work"} <= set(found.executed)


def test_an_arm_against_itself_is_refused(build: Build, program: Path) -> None:
    arm = Arm("a", build("a.so"))
    with pytest.raises(Refused, match=r"nothing to compare"):
        counted(program, arm, arm)


SAMPLE = """\
events: Ir

ob=/bin/program
fl=???
fn=main
0 10
cob=/lib/alloc.so
cfi=???
cfn=malloc
calls=4 0
0 100
0 5
cfn=helper
calls=2 0
0 8

fn=helper
0 8

ob=/lib/alloc.so
fn=malloc
0 60
cfn=refill'2
calls=1 0
0 40

fn=refill'2
0 40
"""


def test_callgrinds_format_is_read() -> None:
    found = profile.parse(SAMPLE)
    assert found.total == 10 + 5 + 8 + 60 + 40
    assert found.own[Function("/lib/alloc.so", "refill")] == 40
    assert found.called[Function("/bin/program", "helper")] == 2
    assert (found.entry_calls, found.entry_instructions, found.per_call) == (4, 100, 25.0)
    assert found.around_calls == 100 + 15


def test_what_lies_in_a_second_mapping_is_the_librarys(build: Build) -> None:
    library = build("a.so")
    found = profile.parse("ob=???\nfn=work\n0 40\nfn=stranger\n0 2\n", library)
    assert found.own == {Function(str(library), "work"): 40, Function("???", "stranger"): 2}


def test_single_stepping_counts_what_callgrind_counts(build: Build, program: Path) -> None:
    arm = Arm("a", build("a.so", "HOT=3"))
    target = Program((str(program),), is_workload=False)
    by_valgrind, by_steps = profile.callgrind(target, arm), stepping.count(target, arm)
    assert by_steps.entry_calls == 2000
    assert by_steps.per_call == pytest.approx(by_valgrind.per_call, rel=0.02)
    work = Function(str(arm.library), "work")
    assert by_steps.own[work] == pytest.approx(by_valgrind.own[work], rel=0.02)


def test_single_stepping_finds_what_changed(build: Build, program: Path) -> None:
    a, b = Arm("a", build("a.so", "HOT=3")), Arm("b", build("b.so", "HOT=4"))
    target = Program((str(program),), is_workload=False)
    found = reach(a, b, lambda arm: stepping.count(target, arm))
    assert found.executed == ("work",)
    unreached = reach(a, Arm("c", build("c.so", "HOT=3", "COLD=1")), lambda arm: stepping.count(target, arm))
    assert unreached.executed == ()


def test_what_valgrind_cannot_run_is_stepped(
    build: Build, program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends_early(*_: object) -> Profile:
        raise profile.EndedEarly("program under a ends early in valgrind: unhandled instruction")

    monkeypatch.setattr(profile, "callgrind", ends_early)
    count = ab.counter(Program((str(program),), is_workload=False), (), Console(width=200))
    assert count(Arm("a", build("a.so"))).entry_calls == 2000
    assert "unhandled instruction; single-stepping instead" in capsys.readouterr().out


def test_a_function_is_known_by_all_its_names(build: Build) -> None:
    library = build("a.so", "ALIAS")
    assert Symbols(library).aliases({"work"}) == {"work", "other_name_of_work"}
    assert "other_name_of_work" in (changed_functions(library, build("b.so", "ALIAS", "HOT=9")) or set())


def test_a_program_without_calls_has_no_count() -> None:
    assert Profile().per_call == 0.0
