"""tslab run: the command does not notice, and whoever waits sees what it would see without us."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
from conftest import REPOSITORY

from tslab import metrics, preload, project
from tslab.attribution import read_csv
from tslab.commands import diff, fields
from tslab.commands.run import _ignores_preload
from tslab.errors import LabError
from tslab.figures import Source

LIBRARY = Path(os.environ.get("LIBRARY_UNDER_TEST", REPOSITORY / "build" / "release" / "libtslab.so"))
TSLAB = [sys.executable, "-m", "tslab.cli"]
RUN = [*TSLAB, "run", "--lib", str(LIBRARY), "--"]

pytestmark = [
    pytest.mark.usefixtures("clean_environment"),
    pytest.mark.skipif(not LIBRARY.exists(), reason="build/release/libtslab.so is not built"),
]

# Allocates for as long as it is let, and has the interpreter of this test, so that no shell stands between.
BUSY = [
    sys.executable,
    "-S",
    "-c",
    "import time\nwhile True: x = [bytearray(1500) for _ in range(5000)]; time.sleep(.01)",
]


def script(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", text]


def run(*command: str, text: str = "", options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    words = [*TSLAB, "run", "--lib", str(LIBRARY), *options, "--", *command]
    return subprocess.run(words, input=text, capture_output=True, text=True, check=False, timeout=120)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


def test_input_output_and_status_are_the_commands() -> None:
    done = run(*script("import sys; sys.stdout.write(sys.stdin.read()[::-1]); sys.exit(7)"), text="abc")
    assert (done.returncode, done.stdout) == (7, "cba")
    for words in ("exit status 7", "allocations", "live", "locks", "peak resident"):
        assert words in done.stderr


def test_the_peak_is_the_commands_and_not_ours() -> None:
    """The kernel counts what this process had when it started the command into the command's own peak."""

    def peak(*command: str) -> tuple[str, float]:
        found = re.search(r"(, peak resident (?:at least )?)([\d.]+) (\w+)$", run(*command).stderr, re.MULTILINE)
        assert found, command
        return found[1], float(found[2]) * {"KiB": 2**10, "MiB": 2**20}[found[3]]

    words, size = peak("true")
    assert words == ", peak resident at least "
    assert 2**19 < size < 6 << 20
    # It has given back what it took long before its end.
    words, size = peak(*script("import time; x = b'x' * (10 << 20); x = 0; time.sleep(3)"))
    assert words == ", peak resident at least "
    assert 10 << 20 < size < 24 << 20
    words, size = peak(*script("x = b'x' * (100 << 20)"))
    assert words == ", peak resident "
    assert 100 << 20 < size < 120 << 20


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_command_that_is_killed_kills_us_the_same_way(number: int) -> None:
    done = run(*script(f"import os; os.kill(os.getpid(), {int(number)})"))
    assert done.returncode == -number
    assert f"killed by {signal.Signals(number).name}" in done.stderr


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGQUIT],
)
def test_signals_reach_the_command(number: int) -> None:
    text = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(.05)"
    )
    child = subprocess.Popen([*RUN, *script(text)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout and child.stdout.readline() == "ready\n"
    child.send_signal(number)
    assert child.wait(60) == 42


def test_a_signal_from_the_terminal_arrives_once() -> None:
    """The terminal sends it to the whole group, so it must not be passed on as well."""
    text = (
        "import signal, sys, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "print('ready', flush=True)\n"
        "while not seen: time.sleep(.05)\n"
        "time.sleep(1)\n"
        "print('seen', len(seen), flush=True)"
    )
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [*RUN, *script(text)])
    said = b""
    typed = False
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        said += piece
        if b"ready" in said and not typed:
            os.write(terminal, b"\x03")
            typed = True
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert b"seen 1" in said
    assert os.waitstatus_to_exitcode(status) == 0


def test_it_stops_and_goes_on_with_the_command() -> None:
    # A job of its own, as a shell makes it: in a group without a parent outside, SIGTSTP stops nobody.
    child = subprocess.Popen([*RUN, *script("import time\nprint('ready', flush=True)\ntime.sleep(60)")],
                             process_group=0, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                             text=True)  # fmt: skip
    assert child.stdout and child.stdout.readline() == "ready\n"

    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    inner = int(Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()[0])
    child.send_signal(signal.SIGTSTP)
    wait_for(lambda: state(inner) == "T" and state(child.pid) == "T")
    child.send_signal(signal.SIGCONT)
    wait_for(lambda: state(inner) != "T" and state(child.pid) != "T")
    child.terminate()
    assert child.wait(60) == -signal.SIGTERM


def test_a_command_that_is_not_there() -> None:
    done = run("no-such-command")
    assert (done.returncode, done.stderr) == (127, "tslab run: no command 'no-such-command' to run\n")


def test_a_file_that_may_not_be_run(tmp_path: Path) -> None:
    for mode, words in ((0o644, "Permission denied"), (0o755, "needs a first line such as #!/bin/sh")):
        file = tmp_path / "file"
        file.write_text("echo hello\n")
        file.chmod(mode)
        done = run(str(file))
        assert done.returncode == 126
        assert words in done.stderr


def test_a_static_program_is_not_served(tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text("int main(void) { return 3; }")
    subprocess.run(["cc", "-static", "-o", str(tmp_path / "a"), str(source)], check=True)
    done = run(str(tmp_path / "a"))
    assert done.returncode == 3
    assert "nothing was served" in done.stderr
    assert "linked statically" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_set_user_id_program_is_not_served(tmp_path: Path) -> None:
    program = tmp_path / "true"
    shutil.copy("/bin/true", program)
    os.chown(program, 12345, 12345)
    program.chmod(0o4755)
    assert "is set-user-id" in _ignores_preload(program)
    assert _ignores_preload(Path("/bin/true")) == ""


def test_the_last_figures_as_json_and_samples_as_csv(tmp_path: Path) -> None:
    figures, samples = tmp_path / "f.json", tmp_path / "s.csv"
    options = ("--json", str(figures), "--samples", str(samples))
    done = run(*script("x = [bytes(600 + i % 900) for i in range(300000)]"), options=options)
    assert done.returncode == 0
    found = json.loads(figures.read_text())
    jsonschema.validate(found, metrics.published_schema())
    assert found["process"]["allocations"] >= 300_000
    assert found["state"] == "ended"
    assert len(read_csv(samples)) > 0
    assert not list(Path("/tmp").glob(f"tslab-run-*/{found['pid']}.json"))


def test_a_command_that_ends_without_its_exit_handlers() -> None:
    done = run(*script("import os; os._exit(5)"))
    assert done.returncode == 5
    assert "no figures" in done.stderr


def test_a_figure_line_now_and_then() -> None:
    done = run(*script("import time\nfor _ in range(25): x = [bytearray(1500) for _ in range(9000)]; time.sleep(.1)"),
               options=("--stats-interval", "0.5"))  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.count("s: live ") >= 1
    assert "allocations" in done.stderr


def test_settings_reach_the_command_and_others_are_refused() -> None:
    done = run(*script("import os; print(os.environ['TSLAB_CACHE'])"), options=("--set", "TSLAB_CACHE=64K"))
    assert done.stdout == "64K\n"
    assert "--set takes NAME=VALUE, not '=x'" in run("true", options=("--set", "=x")).stderr
    assert "use --json FILE" in run("true", options=("--set", "TSLAB_STATS_AT_EXIT=x")).stderr


def test_what_is_preloaded_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/lib/other.so")
    assert preload.environment(LIBRARY, [])["LD_PRELOAD"] == f"{LIBRARY}:/lib/other.so"


def test_a_library_whose_path_cannot_be_preloaded(tmp_path: Path) -> None:
    place = tmp_path / "a b.so"
    shutil.copy(LIBRARY, place)
    with pytest.raises(LabError, match=r"has a space or a colon in it"):
        preload.find_library(place)


# ---- a process, from outside -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("variable", "folder"), [("LD_LIBRARY_PATH", "."), ("HOME", ".local/lib")])
def test_an_installed_library_is_found(
    variable: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "find", lambda start=None: SimpleNamespace(library=tmp_path / "libtslab.so"))
    monkeypatch.setattr(preload, "CARRIED", tmp_path / "nowhere")
    monkeypatch.setattr(preload, "INSTALLED", ())
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    (tmp_path / "prefix" / folder).mkdir(parents=True)
    (tmp_path / "prefix" / folder / "libtslab.so.0").symlink_to(LIBRARY.resolve())
    with pytest.raises(LabError, match="none is installed"):
        preload.find_library(None)
    monkeypatch.setenv(variable, str(tmp_path / "prefix"))
    assert preload.find_library(None) == LIBRARY.resolve()


def test_a_process_that_runs_is_stopped_and_is_killed(tmp_path: Path) -> None:
    environment = preload.environment(LIBRARY.resolve(), [])
    child = subprocess.Popen(BUSY, env=environment)
    path = Path(f"/dev/shm/tslab.{child.pid}")
    source = Source(str(child.pid))
    try:
        wait_for(path.exists)
        found = source.read()
        jsonschema.validate(found, metrics.published_schema())
        total = found["process"]
        assert total["allocations"] - total["frees"] == total["live_blocks"]
        child.send_signal(signal.SIGSTOP)
        wait_for(lambda: source.read()["state"] == "stopped")
        saved = tmp_path / "s.seg"
        first = source.read_and_save(saved)
        assert source.read()["process"] == first["process"]
        assert first["process"]["resident_bytes"] > 1 << 20  # asked of the system, for the saved file too
        assert Source(str(saved)).read()["process"] == first["process"]
        assert list(diff.changes(Source(str(saved)).read(), source.read())) == []
        child.send_signal(signal.SIGCONT)
        wait_for(lambda: source.read()["process"]["allocations"] > first["process"]["allocations"])
        child.kill()
        child.wait()
        last = source.read()
        assert last["state"] == "gone"
        assert last["process"]["allocations"] >= first["process"]["allocations"]
    finally:
        child.kill()
        child.wait()
        path.unlink(missing_ok=True)


def test_a_process_that_may_not_publish() -> None:
    child = subprocess.Popen(BUSY, env=preload.environment(LIBRARY.resolve(), ["TSLAB_PUBLISH=0"]))
    try:
        wait_for(lambda: "libtslab" in Path(f"/proc/{child.pid}/maps").read_text())
        with pytest.raises(LabError, match=r"too young|TSLAB_PUBLISH=0 in its environment"):
            Source(str(child.pid)).read()
    finally:
        child.kill()
        child.wait()


def test_a_killed_command_leaves_nothing_in_shared_memory() -> None:
    child = subprocess.Popen([*RUN, *BUSY], stderr=subprocess.PIPE, text=True)

    def inner() -> str:
        words = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        return words[0] if words else ""

    wait_for(lambda: inner() != "")
    pid = inner()
    wait_for(lambda: Path(f"/dev/shm/tslab.{pid}").exists())
    os.kill(int(pid), signal.SIGKILL)
    _, said = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL
    assert "its last published ones" in said
    assert not Path(f"/dev/shm/tslab.{pid}").exists()


# ---- what is generated from the library is current -------------------------------------------------------------------


def test_the_schema_and_the_list_in_the_documentation_are_the_librarys() -> None:
    tables = fields.of_library(LIBRARY)
    schema = metrics.as_text(metrics.schema_of(tables, 1))
    file = REPOSITORY / "tools" / "tslab" / "schema" / metrics.SCHEMA_FILE
    assert file.read_text() == schema, "write it again: tslab fields --schema >tools/tslab/schema/stats.schema.json"
    document = (REPOSITORY / "docs" / "observability.md").read_text()
    assert metrics.markdown(tables).strip() in document, "tslab fields --into docs/observability.md --markdown"
