"""tslab doctor finds what was planted, and says nothing of programs that are well. They all run at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import segments
from conftest import DATA, REPOSITORY
from segments import small_segment

from tslab import preload
from tslab.cli import main
from tslab.culprits import grown_sites, holding_sites
from tslab.figures import Source, document
from tslab.findings import Finding, findings
from tslab.looks import Case, Look, watch
from tslab.segment import of_bytes, read_layout, read_snapshot
from tslab.sites import CLOSING, OPEN, Site

LIBRARY = Path(os.environ.get("LIBRARY_UNDER_TEST", REPOSITORY / "build" / "release" / "libtslab.so"))

pytestmark = [
    pytest.mark.usefixtures("clean_environment"),
    pytest.mark.skipif(not LIBRARY.exists(), reason="build/release/libtslab.so is not built"),
]

WATCH_S = 8.0
# These keep every processor busy. Beside them a leak has no steady rate, so they have a turn of their own.
SPIN = ("lock-hog", "starved", "remote-storm")
SPIN_WATCH_S = 3.0

# The name of the fault in faults.c, and the rule that must report it.
FAULTS = {
    "leak-in-epoch": "epoch-grows",
    "never-leaves": "epoch-never-left",
    "forgotten-close": "close-forgotten",
    "deep-scopes": "scopes-deep",
    "wasted-class": "class-waste",
    "burst": "burst-not-returned",
    "lock-hog": "lock-contention",
    "starved": "cpu-starved",
    "failing-madvise": "purge-failures",
    "remote-storm": "remote-frees",
    "unbounded-epoch": "epoch-unbounded",
    "limit-near": "limit-near",
    "refused": "allocation-failures",
    "leak": "leak",
}
HEALTHY = ("requests", "sessions", "idle", "workers", "burst-in-epoch", "within-budget", "pipeline", "cache")

# Servers, each with a client in a thread of its own.
SERVER = """
import {modules}, threading, time
def client(port):
    while True:
        for _ in range(5): {ask}
        time.sleep(.05)
{serve}
"""
SERVERS = {
    "http": SERVER.format(
        modules="http.server, urllib.request",
        ask="urllib.request.urlopen(f'http://127.0.0.1:{port}/').read()",
        serve="class Handler(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b'x' * 5000)\n"
        "    def log_message(self, *_): pass\n"
        "server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)\n"
        "threading.Thread(target=client, args=(server.server_port,), daemon=True).start()\n"
        "server.serve_forever()",
    ),
    "echo": SERVER.format(
        modules="asyncio, socket",
        ask="s = socket.create_connection(('127.0.0.1', port)); s.sendall(b'y' * 9000); s.recv(9000); s.close()",
        serve="async def echo(reader, writer):\n"
        "    writer.write(await reader.read(9000)); await writer.drain(); writer.close()\n"
        "async def run():\n"
        "    server = await asyncio.start_server(echo, '127.0.0.1', 0)\n"
        "    port = server.sockets[0].getsockname()[1]\n"
        "    threading.Thread(target=client, args=(port,), daemon=True).start()\n"
        "    await server.serve_forever()\n"
        "asyncio.run(run())",
    ),
    "rpc": SERVER.format(
        modules="xmlrpc.client, xmlrpc.server",
        ask="xmlrpc.client.ServerProxy(f'http://127.0.0.1:{port}').pow(3, 7)",
        serve="server = xmlrpc.server.SimpleXMLRPCServer(('127.0.0.1', 0), logRequests=False)\n"
        "server.register_function(pow)\n"
        "threading.Thread(target=client, args=(server.server_address[1],), daemon=True).start()\n"
        "server.serve_forever()",
    ),
    "store": SERVER.format(
        modules="json, random, socketserver, socket",
        ask="s = socket.create_connection(('127.0.0.1', port)); s.sendall(json.dumps([random.randrange(3000), "
        "'v' * 200]).encode() + b'\\n'); s.recv(100); s.close()",
        serve="store = {key: 'v' * 200 for key in range(3000)}\n"
        "class Handler(socketserver.StreamRequestHandler):\n"
        "    def handle(self):\n"
        "        key, value = json.loads(self.rfile.readline()); store[key] = value; self.wfile.write(b'ok')\n"
        "server = socketserver.ThreadingTCPServer(('127.0.0.1', 0), Handler)\n"
        "threading.Thread(target=client, args=(server.server_address[1],), daemon=True).start()\n"
        "server.serve_forever()",
    ),
}


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("faults") / "faults"
    flags = ["-O1", "-fno-builtin", "-pthread", f"-I{REPOSITORY / 'include'}"]
    link = [str(LIBRARY.resolve()), f"-Wl,-rpath,{LIBRARY.resolve().parent}"]
    subprocess.run(["cc", *flags, "-o", str(out), str(DATA / "faults.c"), *link], check=True)
    return out


@contextmanager
def running(commands: dict[str, list[str]]) -> Iterator[dict[str, int]]:
    environment = preload.environment(LIBRARY.resolve(), [])
    children = {name: subprocess.Popen(words, env=environment) for name, words in commands.items()}
    try:
        end = time.monotonic() + 60
        for name, child in children.items():
            while not Path(f"/dev/shm/tslab.{child.pid}").exists():
                assert child.poll() is None, f"{name} ended"
                assert time.monotonic() < end, f"{name} publishes nothing"
                time.sleep(0.05)
        yield {name: child.pid for name, child in children.items()}
    finally:
        for child in children.values():
            child.kill()
            child.wait()
            Path(f"/dev/shm/tslab.{child.pid}").unlink(missing_ok=True)


def watched(pids: dict[str, int], seconds: float) -> dict[str, list[Finding]]:
    looks = watch([Source(str(pid)) for pid in pids.values()], seconds)
    return {name: findings(own) for name, own in zip(pids, looks, strict=True)}


@pytest.mark.soak  # half a minute, and rates that a loaded machine changes
def test_every_planted_fault_is_found(faults: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running({name: [str(faults), name] for name in SPIN}) as pids:
        found = watched(pids, SPIN_WATCH_S)
    with running({name: [str(faults), name] for name in FAULTS if name not in SPIN}) as pids:
        found |= watched(pids, WATCH_S)
        assert main(["doctor", str(pids["refused"]), "--for", "0", "--json"]) == 1
    told = {name: {finding.rule for finding in own} for name, own in found.items()}
    assert {name: FAULTS[name] in rules for name, rules in told.items()} == dict.fromkeys(FAULTS, True), told
    said = json.loads(capsys.readouterr().out)
    assert said["findings"][0]["severity"] == "critical"
    assert "the budget is spent" in said["findings"][0]["says"]


@pytest.mark.soak
def test_nothing_is_said_of_programs_that_are_well(faults: Path) -> None:
    commands = {name: [str(faults), name] for name in HEALTHY}
    commands |= {name: [sys.executable, "-S", "-c", text] for name, text in SERVERS.items()}
    assert len(commands) >= 12
    with running(commands) as pids:
        time.sleep(1.5)  # a program that starts grows
        found = watched(pids, WATCH_S)
    # On a machine with more work than processors they do wait for one, and it is right to say so.
    told = {name: [f"{f.rule}: {f.says}" for f in own if f.rule != "cpu-starved"] for name, own in found.items()}
    assert told == {name: [] for name in commands}


@pytest.mark.soak
def test_a_slow_leak_within_ten_minutes(faults: Path) -> None:
    with running({"slow-leak": [str(faults), "slow-leak"], "cache": [str(faults), "cache"]}) as pids:
        found = watched(pids, 600)
    leak = next(finding for finding in found["slow-leak"] if finding.rule == "leak")
    assert leak.figures["mib_per_hour"] == pytest.approx(60, rel=0.2)
    assert not [finding for finding in found["cache"] if finding.rule == "leak"]


def test_one_look_and_saved_figures_are_enough_for_what_has_no_rate(faults: Path, tmp_path: Path) -> None:
    with running({"refused": [str(faults), "refused"]}) as pids:
        saved = tmp_path / "now.seg"
        live: list[Finding] = []
        end = time.monotonic() + 60
        while not live:  # its first figures may be from before
            assert time.monotonic() < end, "nothing is found"
            live = findings([Look(Source(str(pids["refused"])).read_and_save(saved), None)])
    later = findings([Look(Source(str(saved)).read(), None)])
    assert [finding.rule for finding in live] == [finding.rule for finding in later]
    assert main(["doctor", str(saved)]) == 1
    assert main(["doctor", str(saved), "--for", "-1"]) == 2


@pytest.mark.parametrize(
    ("word", "status", "said"),
    [
        ("4194303", 5, "there is no process 4194303"),
        ("99999999", 2, "is no process number"),
        ("nobody", 2, "is neither the number of a process nor a file"),
    ],
)
@pytest.mark.parametrize("command", ["doctor", "stats", "top"])
def test_what_is_no_process_of_ours(
    command: str, word: str, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, word]) == status
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_damaged_figures_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytes(small_segment())
    for name, cut in (("cut", data[: len(data) // 2]), ("odd", data[:8] + b"\xff" * 40 + data[48:])):
        (tmp_path / name).write_bytes(cut)
        assert main(["doctor", str(tmp_path / name)]) == 5
        told = capsys.readouterr().err
        assert "is damaged" in told
        assert told.count("\n") == 1


# ---- call sites, made by hand ----------------------------------------------------------------------------------------


def _look(live: dict[int, int], **rows: list[dict[str, Any]]) -> Look:
    sites = [
        {"site": number, "stack": f"{0x1000 * number:x}", "live_bytes": size, "live_samples": 9, "error_bytes": 1 << 16}
        for number, size in live.items()
    ]
    tables = {"process": [{}], "profile": [{"interval_bytes": 4096}], "site": sites, **rows}
    raw = bytes(segments.make(segments.published(), tables))
    layout = read_layout(of_bytes(raw), len(raw))
    return Look(document(layout, read_snapshot(of_bytes(raw), layout), None), None)


def _name(site: Site) -> str:
    return f"f{site.number}"


def test_who_grew_is_named() -> None:
    looks = [_look({2: 1 << 20, 3: 5 << 20, 4: 1 << 20}), _look({2: 4 << 20, 3: 5 << 20, 4: 11 << 16, 5: 2 << 20})]
    assert grown_sites(Case(looks, _name)) == (
        " By the heap profile what grew was allocated at f2: 3.0 MiB more; f5: 2.0 MiB more."
    )
    assert grown_sites(Case(looks)) == ""
    assert grown_sites(Case(looks[:1], _name)) == ""
    assert grown_sites(Case([looks[0], looks[0]], _name)) == ""


def test_who_holds_is_named() -> None:
    holders = [
        {"site": 2, "state": CLOSING, "label": "query", "live_bytes": 3 << 20},
        {"site": 2, "state": CLOSING, "label": "query", "live_bytes": 1 << 20},
        {"site": 3, "state": OPEN, "label": "query", "live_bytes": 9 << 20},
        {"site": 4, "state": CLOSING, "label": "other", "live_bytes": 9 << 20},
        {"site": 5, "state": CLOSING, "label": "query", "live_bytes": 1 << 10},
    ]
    case = Case([_look({number: 1 << 20 for number in range(2, 6)}, holder=holders)], _name)
    assert holding_sites(case, CLOSING, "query") == (
        " By the heap profile what such epochs hold was allocated at f2: 4.0 MiB."
    )
    assert holding_sites(case, OPEN, "query").endswith("at f3: 9.0 MiB.")
    assert holding_sites(case, OPEN, "none") == ""
