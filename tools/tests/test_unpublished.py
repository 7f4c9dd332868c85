"""A process without figures is told why: the one cause that holds, each made to hold here."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import REPOSITORY, Build

from tslab import preload, unpublished
from tslab.errors import LabError
from tslab.figures import Source

LIBRARY = Path(os.environ.get("LIBRARY_UNDER_TEST", REPOSITORY / "build" / "release" / "libtslab.so"))

pytestmark = [
    pytest.mark.usefixtures("clean_environment"),
    pytest.mark.skipif(not LIBRARY.exists(), reason="build/release/libtslab.so is not built"),
]

# Small: `cat` waits for its input. Large: 5 MB at the start, and nothing afterwards.
SMALL = ["cat"]
LARGE = [sys.executable, "-S", "-c", "import signal; x = [bytearray(900) for _ in range(5000)]; signal.pause()"]


@contextmanager
def process(command: list[str], *settings: str, library: Path = LIBRARY, **how: Callable[[], None]) -> Iterator[int]:
    environment = preload.environment(library.resolve(), list(settings))
    child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **how)
    try:
        time.sleep(1.5)  # a process without figures never says that it will have none
        yield child.pid
    finally:
        child.kill()
        child.communicate()
        Path(f"/dev/shm/tslab.{child.pid}").unlink(missing_ok=True)


def reason(pid: int) -> str:
    with pytest.raises(LabError) as told:
        Source(str(pid)).read()
    return str(told.value)


@pytest.fixture
def grown_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpublished, "YOUNG_S", 0.0)


def test_a_heap_that_was_made_at_the_start_is_read() -> None:
    with process(LARGE) as pid:
        assert Source(str(pid)).read()["process"]["live_bytes"] > 4_500_000


def test_it_is_young() -> None:
    with process(SMALL) as pid:
        assert "is too young: it publishes after its first second" in reason(pid)


@pytest.mark.usefixtures("grown_up")
def test_its_heap_is_small() -> None:
    with process(SMALL) as pid:
        said = reason(pid)
        assert "has a heap of" in said
        assert "KiB and has allocated nothing since its first second" in said


@pytest.mark.parametrize("name", ["TSLAB_PUBLISH", "TSLAB_SCAVENGER"])
def test_it_was_switched_off(name: str) -> None:
    with process(LARGE, f"{name}=0") as pid:
        assert f"has {name}=0 in its environment" in reason(pid)


@pytest.mark.usefixtures("grown_up")
def test_it_is_a_fork_child() -> None:
    script = "import os, signal, sys; x = [bytearray(900) for _ in range(5000)]; child = os.fork();\n"
    script += "if child: print(child, flush=True)\nsignal.pause()"
    environment = preload.environment(LIBRARY.resolve(), [])
    with subprocess.Popen([sys.executable, "-S", "-c", script], env=environment, stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        try:
            assert f"was forked by process {parent.pid} and has allocated little since" in reason(child)
        finally:
            os.kill(child, signal.SIGKILL)
            parent.kill()
    Path(f"/dev/shm/tslab.{parent.pid}").unlink(missing_ok=True)


@pytest.mark.usefixtures("grown_up")
def test_a_first_thread_that_blocks_every_signal_is_not_the_scavenger() -> None:
    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

    with process(SMALL, preexec_fn=block) as pid:
        assert "has allocated nothing since its first second" in reason(pid)


def test_somebody_removed_the_file() -> None:
    with process(LARGE) as pid:
        Path(f"/dev/shm/tslab.{pid}").unlink()
        assert "published, but somebody removed" in reason(pid)


@pytest.mark.usefixtures("grown_up")
def test_a_limit_of_file_sizes() -> None:
    with process(LARGE, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))) as pid:
        assert "cannot publish: its limit of file sizes is 4096 bytes" in reason(pid)


@pytest.mark.usefixtures("grown_up")
@pytest.mark.parametrize(
    ("options", "said"), [("ro", "mounted read-only"), ("size=4k", "is full"), ("mode=0", "may not write to its")]
)
def test_its_directory(options: str, said: str) -> None:
    may_mount = os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0
    if not may_mount or not shutil.which("setpriv"):
        pytest.skip("needs root, who may mount")
    mount = f"mount -t tmpfs -o {options} none /dev/shm && exec "
    user = "setpriv --reuid 65534 --clear-groups " if options == "mode=0" else ""
    with process(["unshare", "-m", "sh", "-c", mount + user + '"$@"', "sh", *LARGE]) as pid:
        assert said in reason(pid)


@pytest.mark.usefixtures("grown_up")
def test_its_directory_is_small_for_so_many() -> None:
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0:
        pytest.skip("needs root, who may mount")
    fill = "mount -t tmpfs -o size=1m none /dev/shm && touch /dev/shm/tslab.1 /dev/shm/tslab.$PPID && exec "
    with process(["unshare", "-m", "sh", "-c", fill + '"$@"', "sh", *LARGE]) as pid:
        assert "the files of 2 processes take the quarter of its /dev/shm that is theirs" in reason(pid)


def forbid_threads() -> None:
    """A seccomp filter: clone3 is unknown, and clone is refused."""
    clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    load, equals, answer = 0x20, 0x15, 0x06
    rules = [(load, 0, 0, 0), (equals, 2, 0, 435), (equals, 2, 0, clone), (answer, 0, 0, 0x7FFF0000)]
    rules += [(answer, 0, 0, 0x00050000 | 38), (answer, 0, 0, 0x00050000 | 1)]
    code = b"".join(struct.pack("HBBI", *rule) for rule in rules)
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, program, 0, 0) != 0:
        os._exit(1)


@pytest.mark.usefixtures("grown_up")
def test_a_filter_forbids_threads() -> None:
    with process(LARGE, preexec_fn=forbid_threads) as pid:
        assert "cannot publish: its seccomp filter forbids making a thread" in reason(pid)


def test_a_build_without_telemetry(build: Build) -> None:
    with process(SMALL, library=build("libtslab.so")) as pid:
        assert "was built without TSLAB_TELEMETRY" in reason(pid)
