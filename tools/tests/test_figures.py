"""Figures as a person and a program read them: text, JSON by its schema, samples and differences."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import segments

from tslab import attribution, figures, metrics
from tslab.attribution import Cause, CsvWriter, Sample, classify, percentile
from tslab.cli import main
from tslab.segment import Field

PATHS = ["fast", "magazine", "remote", "fresh", "map", "large", "purge", "lock"]
NO_CPU = NO_LABEL = 2**64 - 1


def rows(**process: int) -> dict[str, list[dict[str, Any]]]:
    total = {
        "allocations": 1_000_000, "frees": 990_000, "live_blocks": 10_000, "live_bytes": 64 << 20,
        "in_use_bytes": 80 << 20, "slow_allocations": 5000, "requested_bytes": 50 << 20,
        "requested_error": 1 << 20, "samples": 977,
    }  # fmt: skip
    return {
        "process": [total | process],
        "class": [
            {"object_size": 16},
            {
                "object_size": 128, "allocations": 1000, "frees": 900, "live_blocks": 100, "live_bytes": 12800,
                "from_list": 990, "lock_fast_acquire": 30, "lock_contended": 10, "slab_take_attempts": 50,
                "slab_take_cas_retries": 5, "samples": 4, "sampled_requested_bytes": 400,
                "sampled_requested_squares": 40400,
            },
        ],
        "path": [
            {"name": name, "entries": 1000, "wall_ns_sum": 10**6, "wall_ns_max": 900,
             "buckets": [0] * 5 + [980, 15, 4, 1]}
            for name in PATHS
        ],
        "thread": [{"thread_id": 77, "alive": 1, "allocations": 9, "alloc_samples": 3, "alloc_wall_ns_sum": 90,
                    "alloc_cpu_samples": 1, "alloc_cpu_ns_sum": 10, "alloc_wait_ns_sum": 20, "repair_count": 1}],
        "label": [{"label": "request", "opened": 5, "open": 1, "allocations": 50}],
        "epoch": [{"epoch": 9, "state": 2, "age_ns": 10**9, "label": "[red]request"}],
        "lock": [{"name": "heap", "fast": 99, "contended": 1, "wait_ns": 500}],
        "sample": [
            {"number": 7, "thread_id": 77, "wall_ns": 50, "cpu_ns": NO_CPU, "path": 0, "label": NO_LABEL},
            {"number": 8, "thread_id": 77, "wall_ns": 9000, "cpu_ns": 8000, "path": 3, "label": 0},
            {"number": 10, "thread_id": 77, "wall_ns": 9000, "cpu_ns": 100, "path": 0, "label": 0},
        ],
    }  # fmt: skip


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "a.seg"
    path.write_bytes(segments.make(segments.published(), rows()))
    return path


def stats(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["stats", *words]) == 0
    return capsys.readouterr().out


# ---- JSON ------------------------------------------------------------------------------------------------------------


def test_json_is_what_the_schema_says(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = metrics.published_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    found = json.loads(stats(capsys, str(saved), "--json"))
    jsonschema.validate(found, schema)
    assert found["pid"] == 4711
    assert found["process"]["allocations"] == 1_000_000
    row = found["classes"][1]
    promised = ("object_size", "live_blocks", "live_bytes", "allocations", "frees")
    assert [row[name] for name in promised] == [128, 100, 12800, 1000, 900]
    assert set(row) == {*metrics.known_fields()["classes"], "derived"}


def test_the_schema_refuses_what_is_no_count() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema_version": 1, "pid": -1}, metrics.published_schema())


def test_a_json_file_reads_as_its_segment(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.json"
    file.write_text(stats(capsys, str(saved), "--json"))
    again = json.loads(stats(capsys, str(file), "--json"))
    before = json.loads(file.read_text())
    assert {**again, "age_ns": 0} == {**before, "age_ns": 0}


def test_fields_and_tables_of_a_newer_library_are_passed_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    specs = segments.published(4)
    specs.append(segments.Spec("numa_node", "one node", [Field("node", "its number", 0, 1, "gauge", "none")]))
    specs[0] = segments.Spec("process", "p", [*specs[0].fields, Field("new_figure", "new", 0, 1, "counter", "none")], 1)
    made = {"process": [{"new_figure": 3}], "numa_node": [{"node": 1}]}
    path = tmp_path / "new.seg"
    path.write_bytes(segments.make(specs, made))
    found = json.loads(stats(capsys, str(path), "--json"))
    assert found["process"]["new_figure"] == 3
    assert found["numa_nodes"] == [{"node": 1}]
    jsonschema.validate(found, metrics.published_schema())
    assert "numa_nodes: 1 rows of a newer library" in stats(capsys, str(path), "--all")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "schema version 2"),
        ({"process": None}, "schema_version and process are missing"),
        ({"classes": [{"allocations": 1}]}, "classes is not a list of rows with a object_size"),
        ({"process": {"allocations": "many"}}, "allocations in process is 'many', which is no counter"),
        ({"process": {"allocations": True}}, "allocations in process is True"),
        ({"process": {"live_bytes": -1}}, "live_bytes in process is -1"),
        ({"process": {"live_bytes": 1e300}}, "live_bytes in process is"),
        ({"paths": [{"name": "x", "buckets": [1, 2]}]}, r"buckets in paths is \[1, 2\], which is no histogram"),
        ({"pid": "x"}, "pid is 'x'"),
    ],
)
def test_json_that_is_damaged(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps(json.loads(stats(capsys, str(saved), "--json")) | change))
    assert main(["stats", str(file)]) == 5
    with pytest.raises(figures.Unreadable, match=message):
        figures.Source(str(file)).read()


def test_json_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("{", "{}", "[]", "", "{" * 100_000, '{"a":' * 100_000, "\x7fELF"):
        file = tmp_path / "x"
        file.write_text(text)
        assert main(["stats", str(file)]) == 5
        assert "Traceback" not in capsys.readouterr().err


# ---- text ------------------------------------------------------------------------------------------------------------


def test_the_text_leaves_out_what_is_not_used(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = stats(capsys, str(saved), "--all")
    assert "process 4711, saved figures" in text
    assert "temporal-slab 0.1.0" in text
    assert "live 64.0 MiB in 10,000 blocks · in use 80.0 MiB (80.0 % of it live)" in text
    assert "asked for 50.0 MiB ± 1.0 MiB" in text
    assert "0.5 % of allocations slow" in text
    sizes = text[text.index("size classes") : text.index("paths:")]
    assert "128 bytes" in sizes
    assert "16 bytes" not in sizes
    assert "[red]request" in text  # a label is text, never an instruction to the screen


def test_percentiles_are_upper_bounds() -> None:
    buckets = [{"le_ns": 8, "count": 98}, {"le_ns": 16, "count": 1}, {"le_ns": None, "count": 1}]
    row = {"buckets": buckets, "wall_ns_max": 5000}
    shares = (0.5, 0.98, 0.99, 0.999)
    assert [figures.bucket_percentile(row, share) for share in shares] == [8, 8, 16, 5000]
    assert figures.bucket_percentile({"buckets": [], "wall_ns_max": 0}, 0.5) is None
    assert figures.bucket_percentile({"buckets": buckets[:1], "wall_ns_max": 6}, 0.99) == 6


def test_rates_are_worked_out_by_the_reader(saved: Path) -> None:
    found = figures.Source(str(saved)).read()
    unused, used = (row["derived"] for row in found["classes"])
    assert used["slow_share"] == pytest.approx(0.01)
    assert used["lock_contention_rate"] == pytest.approx(0.25)
    assert used["bitmap_alloc_retry_rate"] == pytest.approx(0.1)
    assert used["mean_requested_bytes"] == pytest.approx(100)
    assert used["mean_requested_error"] == pytest.approx((100 / 3) ** 0.5)
    assert set(unused.values()) == {None}  # a share of nothing is none, not 0
    assert found["locks"][0]["derived"] == {"contention_rate": 0.01, "mean_wait_ns": 500.0}


# ---- samples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wall", "cpu", "lock_wait", "path", "cause"),
    [
        (1000, None, 600, "fresh", Cause.CONTENTION),
        (1000, 100, 600, "map", Cause.CONTENTION),  # asleep, but for a lock
        (1000, 100, 400, "lock", Cause.SCHEDULER),  # most of the sleep was not the lock's
        (1000, 100, 0, "fast", Cause.SCHEDULER),
        (9_000_000, 50, 0, "map", Cause.SCHEDULER),
        (1000, 900, 0, "remote", Cause.CONTENTION),
        (1000, None, 0, "lock", Cause.CONTENTION),
        (1000, 900, 0, "free: remote", Cause.CONTENTION),
        (1000, 900, 0, "fresh", Cause.FRESH),
        (1000, None, 0, "run", Cause.FRESH),
        (1000, None, 0, "map", Cause.FRESH),
        (1000, None, 0, "birth", Cause.FRESH),
        (1000, 900, 0, "large", Cause.LARGE),
        (1000, 900, 0, "purge", Cause.PURGE),
        (1000, 900, 0, "magazine", Cause.REFILL),
        (1000, None, 0, "a path of a newer library", Cause.REFILL),
        (40, None, 0, "fast", Cause.FAST),
        (40, 300, 0, "fast", Cause.FAST),  # the thread's clock runs ahead of the short wall time
        (20_000, 15_000, 0, "fast", Cause.FAST),
        (20_000, None, 0, "fast", Cause.UNKNOWN),
    ],
)
def test_the_truth_table(wall: int, cpu: int | None, lock_wait: int, path: str, cause: Cause) -> None:
    assert classify(wall, cpu, lock_wait, path) is cause


def test_every_cause_has_its_words() -> None:
    assert set(attribution.MEANINGS) == set(Cause)


def test_samples_in_words(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["samples", str(saved)]) == 0
    text = capsys.readouterr().out
    for words in ("3 newest samples", "fresh memory", "scheduler", "fast path", "by the label", "request", "repairs"):
        assert words in text


def test_raw_samples_go_through_csv_unchanged(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.csv"
    assert main(["samples", str(saved), "--csv", str(file)]) == 0
    assert "3 samples in" in capsys.readouterr().out
    assert attribution.read_csv(file) == attribution.samples_of(figures.Source(str(saved)).read())
    table = list(csv.DictReader(file.open()))
    assert [(row["path"], row["label"], row["cpu_ns"]) for row in table] == [
        ("fast", "", ""), ("fresh", "request", "8000"), ("fast", "request", "100"),
    ]  # fmt: skip
    assert main(["samples", str(file)]) == 0
    assert "3 samples" in capsys.readouterr().out


def test_a_sample_is_written_once_and_gaps_are_counted(tmp_path: Path) -> None:
    def sample(number: int) -> Sample:
        return Sample(number, 0, 1, 1, 16, 10, None, 0, "fast", "")

    with (tmp_path / "s.csv").open("w") as stream:
        writer = CsvWriter(stream)
        writer.add([sample(5), sample(6)])
        writer.add([sample(6), sample(7), sample(10)])
    assert (writer.written, writer.missed) == (4, 2)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", ",".join(attribution.COLUMNS) + "\n1,2,x\n", "\0"])
def test_csv_that_is_none(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.csv"
    file.write_text(text)
    assert main(["samples", str(file)]) == 5
    assert "s.csv" in capsys.readouterr().err


def test_percentile_is_a_value_that_was_measured() -> None:
    values = list(range(1, 101))
    assert [percentile(values, share) for share in (0.5, 0.99, 0.999, 1.0)] == [50, 99, 100, 100]
    assert percentile([7], 0.5) == 7


# ---- difference ------------------------------------------------------------------------------------------------------


def test_resident_memory_that_one_side_does_not_know_is_no_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Segments saved by an earlier tslab have 0 there, as has a process that is gone."""
    sides = []
    for resident in (0, 90 << 20, 70 << 20):
        sides.append(tmp_path / f"{resident}.seg")
        sides[-1].write_bytes(segments.make(segments.published(), rows(resident_bytes=resident)))
    unknown, large, small = map(str, sides)
    for a, b in ((unknown, large), (large, unknown)):
        assert main(["diff", a, b]) == 0
        assert capsys.readouterr().out.endswith("nothing changed\n")
    assert main(["diff", large, small]) == 0
    assert "resident_bytes" in capsys.readouterr().out
    assert "resident –" in stats(capsys, unknown)
    assert "resident 90.0 MiB" in stats(capsys, large)


def test_what_changed_largest_first(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    later = tmp_path / "b.seg"
    made = rows(allocations=1_500_000, frees=1_000_000, live_bytes=32 << 20)
    made["class"][1]["live_bytes"] = 25600
    later.write_bytes(segments.make(segments.published(), made, number=2, realtime_ns=1_700_000_010 * 10**9))
    assert main(["diff", str(saved), str(later)]) == 0
    text = capsys.readouterr().out
    lines = [line.split() for line in text.splitlines()]
    assert "10 s between the figures" in text
    assert ["process", "allocations", "+500,000", "+50.0", "k/s", "1,500,000", "1,000,000"] in lines
    assert ["process", "live_bytes", "-32.0", "MiB", "-3.2", "MiB/s", "32.0", "MiB", "64.0", "MiB"] in lines
    assert text.splitlines()[1].startswith("live -32.0 MiB, -11,520.0 MiB an hour")
    starts = [line[:2] for line in lines]
    assert starts.index(["process", "live_bytes"]) < starts.index(["class", "128"])
    assert starts.index(["process", "allocations"]) < starts.index(["process", "frees"])


def test_two_lives_have_no_rate(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    later = tmp_path / "b.seg"
    later.write_bytes(segments.make(segments.published(), rows(allocations=5), pid=4712))
    assert main(["diff", str(saved), str(later)]) == 0
    text = capsys.readouterr().out
    assert "A is process 4711, B is process 4712" in text
    assert "/s" not in text


def test_nothing_changed(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(saved), str(saved)]) == 0
    text = capsys.readouterr().out
    assert "nothing changed" in text
    assert "process 4711: B is not later than A, so nothing is per second" in text


# ---- misuse ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["stats", "0"], 2, "'0' is no process number"),
        (["stats", "99999999999999999999999"], 2, "is no process number"),
        (["stats", "nowhere.seg"], 2, "'nowhere.seg' is neither the number of a process nor a file"),
        (["stats", "-1"], 2, ""),
        (["stats", "/"], 5, "/ is no regular file"),
        (["stats", "/dev/zero"], 5, "is no regular file"),
        (["stats", "1", "--watch", "0"], 2, "--watch takes 0.1 to 86400 seconds"),
        (["stats", "1", "--watch", "nan"], 2, "--watch takes 0.1 to 86400 seconds"),
        (["samples", "x.csv", "--watch"], 2, "a CSV file is read as it is"),
        (["samples", "x.csv"], 5, "cannot read x.csv: No such file"),
        (["run"], 2, "no command: tslab run"),
        (["run", "--lib", "/etc/passwd", "--", "true"], 2, "/etc/passwd is not the library of temporal-slab"),
        (["run", "--lib", "/nowhere", "--", "true"], 2, "/nowhere is not the library"),
    ],
)
def test_misuse_is_told_in_one_line(
    words: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        assert main(words) == status
    except SystemExit as exit_:  # argparse's own refusals
        assert exit_.code == status
    assert message in capsys.readouterr().err


def test_a_file_does_not_change(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("stats", "samples"):
        assert main([command, str(saved), "--watch"]) == 2
        assert "a file does not change" in capsys.readouterr().err


def test_a_place_that_cannot_be_written(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(saved), "--save", "/nowhere/x"]) == 2
    assert "cannot write /nowhere/x" in capsys.readouterr().err
    assert main(["samples", str(saved), "--csv", "/nowhere/x"]) == 2
    assert "cannot write /nowhere/x" in capsys.readouterr().err
