"""tslab profile on programs that are hard to read: without frame pointers or symbols, with a library that was closed,
and with another program executed since."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import DATA, REPOSITORY

from tslab.cli import main
from tslab.errors import LabError
from tslab.figures import Source
from tslab.sites import HeapProfile, profile_of
from tslab.symbolize import Symbolizer

LIBRARY = Path(os.environ.get("LIBRARY_UNDER_TEST", REPOSITORY / "build" / "release" / "libtslab.so"))
ROWS, ROW, REQUESTS = 4000, 1000, 300
HELD = ROWS * ROW
PATIENCE_S = 60

pytestmark = [
    pytest.mark.usefixtures("clean_environment"),
    pytest.mark.skipif(not LIBRARY.exists(), reason="build/release/libtslab.so is not built"),
]


def _compile(out: Path, source: str, *flags: str) -> Path:
    every = ["-O1", "-fno-builtin", f"-I{REPOSITORY / 'include'}"]
    subprocess.run(["cc", *every, *flags, "-o", str(out), str(DATA / source)], check=True)
    return out


@contextlib.contextmanager
def _running(*command: str | Path, interval: str = "1K") -> Iterator[subprocess.Popen[str]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TSLAB_", "LD_"))}
    environment |= {"LD_PRELOAD": str(LIBRARY.resolve()), "TSLAB_PROFILE": interval}
    child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
    finally:
        child.kill()
        child.wait()
        Path(f"/dev/shm/tslab.{child.pid}").unlink(missing_ok=True)


def _read(pid: int, least: int) -> HeapProfile:
    """When all of it is published."""
    end = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(LabError):
            profile = profile_of(Source(str(pid)).read())
            if profile.live_bytes > 0.9 * least:
                return profile
        assert time.monotonic() < end, "no profile came"
        time.sleep(0.1)


def _held(profile: HeapProfile, pid: int) -> dict[str, int]:
    """By the innermost place of the program, without its line."""
    symbolizer = Symbolizer(pid)
    held: dict[str, int] = {}
    for site in profile.sites:
        name = symbolizer.callers(site.stack)[0].text.partition(" (")[0] if site.stack else "?"
        held[name] = held.get(name, 0) + site.live_bytes
    return held


def _is_near(estimate: int, true: int) -> bool:
    return abs(estimate - true) < 0.25 * true  # more than five standard deviations


# ---- how a program was compiled --------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [("-g", "-fomit-frame-pointer"), ("-fno-omit-frame-pointer",), ("-O3", "-g")])
def test_a_call_site_has_its_name(tmp_path: Path, flags: tuple[str, ...]) -> None:
    program = _compile(tmp_path / "holds", "holds.c", *flags)
    with _running(program, str(ROWS), str(REQUESTS)) as child:
        held = _held(_read(child.pid, HELD), child.pid)
    assert _is_near(held["keep_row"], HELD)


def test_a_stripped_program_has_addresses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = _compile(tmp_path / "holds", "holds.c", "-s", "-fomit-frame-pointer")
    with _running(program, str(ROWS), str(REQUESTS)) as child:
        profile = _read(child.pid, HELD)
        held = _held(profile, child.pid)
        assert main(["profile", str(child.pid), "--stacks"]) == 0
        for option in ("-o", "--flame"):
            assert main(["profile", str(child.pid), option, str(tmp_path / "out")]) == 0
    assert " in holds" in capsys.readouterr().out
    assert _is_near(max(held.values()), HELD)
    assert all(name.startswith("0x") and name.endswith(" in holds") for name, held in held.items() if held > HELD // 2)


def test_a_stripped_program_has_names_by_its_file_of_symbols(tmp_path: Path) -> None:
    if not shutil.which("objcopy") or not shutil.which("addr2line"):
        pytest.skip("binutils is not installed")
    program = _compile(tmp_path / "holds", "holds.c", "-g", "-fno-omit-frame-pointer")
    symbols = tmp_path / "holds.debug"
    subprocess.run(["objcopy", "--only-keep-debug", program, symbols], check=True)
    subprocess.run(["objcopy", "--strip-all", f"--add-gnu-debuglink={symbols}", program], check=True)
    with _running(program, str(ROWS), str(REQUESTS)) as child:
        profile = _read(child.pid, HELD)
        assert _is_near(_held(profile, child.pid)["keep_row"], HELD)
        places = [Symbolizer(child.pid).callers(site.stack)[0].text for site in profile.sites]
    assert any(place.startswith("keep_row (holds.c:") for place in places)


# ---- a library that was closed ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reaching(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reaches") / "reaches"
    return _compile(out, "reaches.c", "-g", "-fno-omit-frame-pointer", "-ldl")


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugin")
    source = folder / "plugin.c"
    source.write_text(
        "#include <stdlib.h>\n#include <string.h>\n"
        'void *keep_row(size_t n) { void *p = malloc(n); __asm__ volatile("" : "+r"(p)); return memset(p, 1, n); }\n'
    )
    flags = ["-O1", "-g", "-fno-builtin", "-fno-omit-frame-pointer", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", str(folder / "plugin.so"), str(source)], check=True)
    return folder / "plugin.so"


def test_a_library_that_is_open_has_its_names(reaching: Path, plugin: Path) -> None:
    with _running(reaching, "keep", plugin) as child:
        held = _held(_read(child.pid, 2 * HELD), child.pid)
    assert _is_near(held["keep_row"], HELD)
    assert _is_near(held["keep_own"], HELD)


def test_of_a_library_that_was_closed_addresses_are_known(
    reaching: Path, plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with _running(reaching, "close", plugin) as child:
        held = _held(_read(child.pid, 2 * HELD), child.pid)
        assert str(plugin) not in Path(f"/proc/{child.pid}/maps").read_text()
        assert main(["profile", str(child.pid), "--stacks"]) == 0
        assert main(["holders", str(child.pid)]) == 0
        for option in ("-o", "--flame"):
            assert main(["profile", str(child.pid), option, str(tmp_path / "out")]) == 0
    assert _is_near(held["keep_own"], HELD)
    assert "keep_row" not in held
    (address,) = [name for name, bytes_held in held.items() if name.startswith("0x") and bytes_held > HELD // 2]
    assert _is_near(held[address], HELD)
    assert address in capsys.readouterr().out


# ---- a request from outside ------------------------------------------------------------------------------------------


def _ask(pid: str, interval: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Asks until the process follows: on a busy machine it may publish later than the command waits."""
    end = time.monotonic() + PATIENCE_S
    while True:
        assert main(["profile", pid, "--interval", interval]) == 0
        said = capsys.readouterr().out
        if "from now on" in said:
            return said
        assert time.monotonic() < end, said


def test_a_process_that_runs_samples_when_it_is_asked_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = _compile(tmp_path / "holds", "holds.c", "-g", "-fno-omit-frame-pointer")
    with _running(program, str(ROWS), str(REQUESTS), interval="0") as child:
        pid, end = str(child.pid), time.monotonic() + PATIENCE_S
        while main(["stats", pid]) != 0:
            assert time.monotonic() < end, "nothing is published"
            time.sleep(0.1)
        assert main(["profile", pid]) != 0
        assert "`tslab profile --interval=512K PID` starts one" in capsys.readouterr().err
        assert f"process {pid} samples one block in about 4.0 KiB from now on (" in _ask(pid, "1", capsys)
        while profile_of(Source(pid).read()).samples < 10:
            assert time.monotonic() < end, "nothing is sampled"
            time.sleep(0.1)
        assert "samples as many blocks as it chooses from now on (" in _ask(pid, "auto", capsys)
        assert "samples none from now on (as many blocks as it chooses before)" in _ask(pid, "0", capsys)
        child.send_signal(signal.SIGSTOP)
        assert main(["profile", pid, "--interval", "8M"]) == 0
        assert "is at rest: it samples one block in about 8.0 MiB from when it next" in capsys.readouterr().out
        assert main(["profile", pid, "--interval", "8M", "--stacks"]) != 0
        assert "--interval takes a process and nothing else" in capsys.readouterr().err
        child.kill()  # it stays as a zombie
        assert main(["profile", pid, "--interval", "4M"]) != 0
        assert f"process {pid} has ended" in capsys.readouterr().err
    for text in ("", "1X", "-1", "1025M", "4,096", "Auto"):
        with pytest.raises(SystemExit):
            main(["profile", pid, f"--interval={text}"])
    (tmp_path / "saved").write_bytes(b"")
    assert main(["profile", str(tmp_path / "saved"), "--interval", "8M"]) != 0
    assert "--interval takes a process, and" in capsys.readouterr().err


def test_a_large_heap_is_sampled_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = _compile(tmp_path / "holds", "holds.c", "-g", "-fno-omit-frame-pointer")
    with _running(program, str(20 * ROWS), "0", str(100 * ROWS), interval="auto") as child:
        profile = _read(str(child.pid), 0)
        assert profile.is_automatic and profile.interval_bytes == 8 << 20
        assert main(["profile", str(child.pid)]) == 0
        assert "one in about 8.0 MiB allocated, as the process chose;" in capsys.readouterr().out


# ---- another program was executed ------------------------------------------------------------------------------------


def _executed(child: subprocess.Popen[str], name: str) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
    end = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{child.pid}/comm").read_text() != f"{name}\n":
        assert time.monotonic() < end, f"{name} is not executed"
        time.sleep(0.01)


def test_no_figures_are_those_of_the_program_before(reaching: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The segment's file stays, and has the number of a process that lives."""
    env = shutil.which("env")
    assert env
    with _running(reaching, "execute", "-", env, "-u", "LD_PRELOAD", "sleep", "600") as child:
        _read(child.pid, 2 * HELD)
        assert main(["profile", str(child.pid)]) == 0
        _executed(child, "sleep")
        end = time.monotonic() + PATIENCE_S
        while main(["profile", str(child.pid)]) == 0:
            assert time.monotonic() < end, "the program before is still told of"
            time.sleep(0.1)
        assert main(["profile", str(child.pid)]) != 0
        assert main(["stats", str(child.pid)]) != 0
    said = capsys.readouterr().err
    assert "was left by the program that" in said
    assert "runs without temporal-slab" in said


def test_a_program_that_is_executed_has_figures_of_its_own(reaching: Path, tmp_path: Path) -> None:
    program = _compile(tmp_path / "holds", "holds.c", "-g", "-fno-omit-frame-pointer")
    with _running(reaching, "execute", "-", program, str(ROWS), str(REQUESTS)) as child:
        _read(child.pid, 2 * HELD)
        _executed(child, "holds")
        end = time.monotonic() + PATIENCE_S
        while "keep_row" not in (held := _held(_read(child.pid, HELD), child.pid)):
            assert time.monotonic() < end, "the new program publishes nothing"
            time.sleep(0.1)
    assert _is_near(held["keep_row"], HELD)
    assert "keep_own" not in held
