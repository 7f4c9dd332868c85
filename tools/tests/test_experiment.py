"""The order of the runs, their number, and when a verdict is withheld, with runs that are drawn instead of measured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tslab import experiment
from tslab.arms import Arm
from tslab.errors import LabError
from tslab.experiment import PILOT_ROUNDS, Experiment
from tslab.runner import Program, Row, Run
from tslab.stats import Kind, Verdict

A, B = Arm("a"), Arm("b", variables={"SIDE": "b"})
WORKLOAD = Program(("/bench/random-mixed",), is_workload=True)
Draw = Callable[[Arm, int], float]


class Lab:
    """Stands for the machine: every run's throughput comes from `draw`, and is written down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, draw: Draw) -> None:
        self.order: list[str] = []
        self.seeds: list[str] = []
        self.now = 0.0

        def run(program: Program, arm: Arm, *, pad_to: int, options: Sequence[str]) -> Run:
            self.order.append(arm.name)
            self.seeds.append(options[-1] if options else "")
            self.now += 1.0
            value = draw(arm, len(self.order))
            row = Row("w", "v", 1, {"ops_per_s": value, "peak_rss_bytes": 2.0**20}, {}, {})
            return Run((row,), 1 / value, 0.5, 2.0**20, 0)

        monkeypatch.setattr(experiment, "run", run)
        monkeypatch.setattr(experiment.time, "monotonic", lambda: self.now)


def noisy(change: float, sd: float, seed: int = 7) -> Draw:
    random = np.random.default_rng(seed)
    return lambda arm, _: 100 * (1 + (change if arm.variables else 0)) * (1 + sd * random.standard_normal())


def test_rounds_are_interleaved_and_mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(monkeypatch, noisy(0, 0.001))
    Experiment(WORKLOAD, A, B).run()
    runs = "".join(lab.order[1:])  # the first run is the warm-up, which finds the metric
    assert runs[:12] == "abaaba" + "baaaab"
    assert len(runs) == 6 * PILOT_ROUNDS
    assert runs.count("b") * 2 == runs.count("a")
    # All runs of a round play the same numbers, and the next round plays others.
    assert set(lab.seeds[1:7]) == {"--seed=1000"} and set(lab.seeds[7:13]) == {"--seed=1001"}


def test_each_round_runs_new_copies_of_the_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files: list[tuple[str, int]] = []
    held = contextlib.ExitStack()  # keeps a file that is removed, so that no new one gets its inode

    def draw(arm: Arm, _: int) -> float:
        assert arm.library is not None and arm.library.read_bytes() == name_of[arm.name].read_bytes()
        files.append((arm.library.parent.name, arm.library.stat().st_ino))
        held.enter_context(arm.library.open())
        return 100.0

    name_of = {"a": tmp_path / "a.so", "b": tmp_path / "b.so"}
    for name, file in name_of.items():
        file.write_text(name)
    Lab(monkeypatch, draw)
    with held:
        Experiment(WORKLOAD, Arm("a", name_of["a"]), Arm("b", name_of["b"]), metric="ops_per_s").run()
    assert "".join(letter for letter, _ in files[:12]) == "ABXXBA" + "BAXXAB"
    originals = {file.stat().st_ino for file in name_of.values()}
    first, second = ({inode for _, inode in files[at : at + 6]} for at in (0, 6))
    assert len(first) == len(second) == 3  # a file for each arm
    assert not first & second and not (first | second) & originals


def test_an_arm_that_names_its_preload_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shim = tmp_path / "shim.so"
    shim.touch()
    arms: list[Arm] = []
    Lab(monkeypatch, lambda arm, _: arms.append(arm) or 100.0)
    slowed = Arm("slowed", shim, {"LD_PRELOAD": f"{shim}:/lib/other.so"})
    Experiment(WORKLOAD, A, slowed, metric="ops_per_s").run()
    assert all(arm.library in (None, shim) for arm in arms)


def test_a_seed_of_the_command_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(monkeypatch, noisy(0, 0.001))
    Experiment(Program((*WORKLOAD.command, "--seed=5"), is_workload=True), A, B).run()
    assert set(lab.seeds) == {""}


def test_the_noise_decides_the_number_of_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    Lab(monkeypatch, noisy(0, 0.02))
    loud = Experiment(WORKLOAD, A, B, budget_s=1e6).run()
    Lab(monkeypatch, noisy(0, 0.005))
    quiet = Experiment(WORKLOAD, A, B, budget_s=1e6).run()
    assert loud.planned_rounds == loud.wanted_rounds
    assert loud.planned_rounds > 2 * quiet.planned_rounds >= 2 * PILOT_ROUNDS


def test_the_budget_bounds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(monkeypatch, noisy(0, 0.02))
    outcome = Experiment(WORKLOAD, A, B, budget_s=90).run()
    assert outcome.wanted_rounds is not None and outcome.wanted_rounds > outcome.planned_rounds
    assert lab.now <= 90
    assert outcome.verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(("change", "verdict"), [(0.05, Verdict.GO), (-0.03, Verdict.NO_GO), (0.0, Verdict.NEUTRAL)])
def test_verdicts(monkeypatch: pytest.MonkeyPatch, change: float, verdict: Verdict) -> None:
    Lab(monkeypatch, noisy(change, 0.004))
    outcome = Experiment(WORKLOAD, A, B, budget_s=1e6).run()
    assert outcome.verdict is verdict
    assert not outcome.withheld
    assert outcome.peak_rss == {"A": 2.0**20, "B": 2.0**20}


def test_a_drift_of_the_machine_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    still = noisy(0, 0.002)
    Lab(monkeypatch, lambda arm, number: still(arm, number) * (1 + 0.002 * number))
    outcome = Experiment(WORKLOAD, A, B, budget_s=1e6).run()
    assert outcome.verdict is Verdict.NEUTRAL


def test_a_verdict_is_withheld_when_a_differs_from_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    # The third and fourth run of each round are A's second series: a machine that favours them fools no one.
    still = noisy(0.05, 0.001)
    Lab(monkeypatch, lambda arm, number: still(arm, number) * (1.04 if (number - 2) % 6 in (2, 3) else 1))
    outcome = Experiment(WORKLOAD, A, B, budget_s=1e6).run()
    assert outcome.judgement.verdict is Verdict.GO
    assert outcome.withheld
    assert outcome.verdict is Verdict.UNDECIDED


def test_one_disturbed_round_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    still = noisy(0, 0.001)
    Lab(monkeypatch, lambda arm, number: still(arm, number) * (0.5 if number == 9 else 1))
    outcome = Experiment(WORKLOAD, A, B).run()
    assert outcome.verdict is Verdict.NEUTRAL


def test_a_command_is_judged_by_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(monkeypatch, noisy(0, 0.001))
    plain = Program(("/bin/true",), is_workload=False)

    def run(program: Program, arm: Arm, *, pad_to: int, options: Sequence[str]) -> Run:
        assert not options
        lab.now += 1
        return Run((), 1.05 if arm.variables else 1.0, 0.5, None, 0)

    monkeypatch.setattr(experiment, "run", run)
    outcome = Experiment(plain, A, B).run()
    assert (outcome.metric, outcome.verdict) == ("wall_s", Verdict.NO_GO)
    with pytest.raises(LabError, match=r"a command has the metrics wall_s, cpu_s|no metric 'ops_per_s'"):
        Experiment(plain, A, B, metric="ops_per_s").run()


def test_metrics_and_variants_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Lab(monkeypatch, noisy(0, 0.001))
    with pytest.raises(LabError, match=r"no metric 'speed'; it has .*ops_per_s"):
        Experiment(WORKLOAD, A, B, Kind.FEATURE, metric="speed").run()
    with pytest.raises(LabError, match=r"--variant must single out one row"):
        Experiment(WORKLOAD, A, B, Kind.FEATURE, variant="threads=9").run()
