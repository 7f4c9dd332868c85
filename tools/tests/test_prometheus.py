"""A real Prometheus scrapes the real exporter over a real redis-server and a program with epochs; rules by promtool."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import DATA, REPOSITORY

from tslab import preload, process

LIBRARY = Path(os.environ.get("LIBRARY_UNDER_TEST", REPOSITORY / "build" / "release" / "libtslab.so"))
SERVER = REPOSITORY / "build" / "release" / "examples" / "example_http_server"
DEPLOY = REPOSITORY / "deploy"
NEEDED = ("prometheus", "promtool", "redis-check-rdb", "redis-benchmark", "gdb")
pytestmark = [
    pytest.mark.skipif(not (LIBRARY.exists() and SERVER.exists()), reason="build/release is not built"),
    pytest.mark.skipif(not all(map(shutil.which, NEEDED)), reason=f"needs {', '.join(NEEDED)}"),
]

# One epoch stays open, one is closed with two mebibytes in use, and others come and go.
EPOCHS = """
import ctypes, time
lib = ctypes.CDLL(None)
lib.tslab_epoch_open.restype = ctypes.c_uint64
lib.tslab_epoch_malloc.restype = ctypes.c_void_p
def opened(label, blocks):
    epoch = ctypes.c_uint64(lib.tslab_epoch_open(label))
    for _ in range(blocks):
        lib.tslab_epoch_malloc(epoch, ctypes.c_size_t(1024))
    return epoch
opened(b"session", 100)
lib.tslab_epoch_close(opened(b"pinned", 2048), None)
while True:
    lib.tslab_epoch_close(opened(b"request", 0), None)
    held = [bytearray(900) for _ in range(3000)]
    time.sleep(0.02)
"""
# A client of the example server: arrays of numbers, one after the other.
CLIENT = """
import http.client, json, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
while True:
    connection.request("POST", "/", json.dumps(list(range(500))))
    connection.getresponse().read()
"""
PATTERNS = (
    "(rate(temporal_slab_class_lock_contended_total[5m]) / "
    "clamp_min(rate(temporal_slab_class_lock_acquisitions_total[5m]), 0.0001))",
    "(rate(temporal_slab_class_bitmap_alloc_cas_retries_total[5m]) / "
    "clamp_min(rate(temporal_slab_class_bitmap_alloc_attempts_total[5m]), 0.0001))",
    'temporal_slab_epoch_age_seconds{state="CLOSING"} > 1 AND temporal_slab_epoch_rss_bytes > 1048576',
)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_for(url: str) -> None:
    for _ in range(200):
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"{url} does not answer")


@contextmanager
def loaded_server() -> Iterator[None]:
    """The example of an HTTP server with an epoch a request, under load."""
    command = [str(SERVER), "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        port = server.stdout.readline().split()[1]
        client = subprocess.Popen([sys.executable, "-S", "-c", CLIENT, port])
        try:
            yield
        finally:
            client.kill()
            client.wait()
            server.kill()
            process.remove_segment(server.pid)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prometheus")
    exporter, server = free_port(), free_port()
    under = preload.environment(LIBRARY.resolve(), [])
    redis = folder / "redis-server"  # Debian's is one program with the checker, and goes by its name
    redis.symlink_to(str(shutil.which("redis-check-rdb")))
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DEPLOY / "rules.yml")]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{exporter}"]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    commands: list[tuple[list[str], dict[str, str] | None]] = [
        ([str(redis), "--port", "0", "--unixsocket", str(folder / "s"), "--save", ""], under),
        ([sys.executable, "-c", EPOCHS], under),
        (["redis-benchmark", "-s", str(folder / "s"), "-l", "-q", "-t", "set", "-r", "10000", "-c", "4"], None),
        ([sys.executable, "-m", "tslab.cli", "export", "--listen", f"127.0.0.1:{exporter}"], None),
        (["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
          f"--web.listen-address=127.0.0.1:{server}", "--log.level=error"], None),
    ]  # fmt: skip
    with ExitStack() as stack:
        for command, environment in commands:
            child = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
            stack.callback(process.remove_segment, child.pid)
            stack.callback(child.wait)
            stack.callback(child.kill)
            if command[0] == str(redis):
                while not (folder / "s").exists():
                    time.sleep(0.05)
        stack.enter_context(loaded_server())
        wait_for(f"http://127.0.0.1:{exporter}/metrics")
        wait_for(f"http://127.0.0.1:{server}/-/ready")
        yield f"http://127.0.0.1:{server}"


def ask(base: str, query: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{base}/api/v1/query?query={urllib.parse.quote(query)}") as answer:
        found = json.load(answer)
    assert found["status"] == "success", query
    result: list[dict[str, Any]] = found["data"]["result"]
    return result


def until_there(base: str, query: str, seconds: float = 15) -> list[dict[str, Any]]:
    end = time.monotonic() + seconds
    while not (found := ask(base, query)) and time.monotonic() < end:
        time.sleep(0.3)
    return found


def test_the_published_patterns_give_series(prometheus: str) -> None:
    for pattern in PATTERNS:
        assert until_there(prometheus, pattern), pattern
    programs = {row["metric"]["program"] for row in ask(prometheus, "temporal_slab_live_bytes")}
    assert {"redis-server", SERVER.name} <= programs
    opened = f'temporal_slab_label_opened_total{{program="{SERVER.name}",label="request"}}'
    assert until_there(prometheus, f"rate({opened}[10s]) > 0")


def test_every_expression_of_the_dashboard_gives_data(prometheus: str) -> None:
    panels = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
    assert len(panels) == 10
    for panel in panels:
        for target in panel["targets"]:
            query = target["expr"].replace("$program", ".*")
            assert until_there(prometheus, query), (panel["title"], query)


def test_every_rule_is_evaluated(prometheus: str) -> None:
    for group in yaml.safe_load((DEPLOY / "rules.yml").read_text())["groups"]:
        for rule in group["rules"]:
            if "record" in rule:
                assert until_there(prometheus, rule["record"]), rule
            else:
                # Its threshold is not met by healthy programs; the series that it compares are there.
                measured = re.split(r"\s(?:>|<=)\s", rule["expr"])[0]
                assert until_there(prometheus, measured), rule


# A program of faults.c, and the alerts that it must raise. One CAS takes all free blocks of a slab, and another
# processor rarely comes in between. So gdb holds the thread of `remote-storm` there, as a scheduler would that takes
# its processor away.
HELD = "remote-storm"
RAISED = {
    HELD: ["CasRetries"],
    "failing-madvise": ["MadviseFailures"],
    "never-leaves": ["EpochNotDrained"],
    "never-drains": ["ClosingEpochs"],
    "trim-hog": ["LockContention", "SlowPath"],
    "frozen": ["SlowTail"],
}


def pid_of_held(file: Path) -> int:
    end = time.monotonic() + 60
    while not (file.exists() and file.read_text().endswith("\n")):
        assert time.monotonic() < end, "gdb did not start the program"
        time.sleep(0.1)
    return int(file.read_text())


def test_faults_of_live_processes_raise_their_alerts(tmp_path: Path) -> None:
    """The thresholds are the rules' own; only their times are shorter: seconds for minutes."""
    faults, exporter, server = tmp_path / "faults", free_port(), free_port()
    link = [str(LIBRARY.resolve()), f"-Wl,-rpath,{LIBRARY.resolve().parent}"]
    flags = ["-O1", "-fno-builtin", "-pthread", f"-I{REPOSITORY / 'include'}"]
    subprocess.run(["cc", *flags, "-o", str(faults), str(DATA / "faults.c"), *link], check=True)
    rules = re.sub(r"for: 5m", "for: 0s", (DEPLOY / "rules.yml").read_text()).replace("[5m]", "[10s]")
    (tmp_path / "rules.yml").write_text(rules.replace("> 300 and", "> 3 and"))
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = ["rules.yml"]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{exporter}"]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    under = preload.environment(LIBRARY.resolve(), [])
    commands: list[tuple[list[str], dict[str, str] | None]] = [
        *[([str(faults), name], under) for name in RAISED],
        ([sys.executable, "-m", "tslab.cli", "export", "--listen", f"127.0.0.1:{exporter}"], None),
        (["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
          f"--web.listen-address=127.0.0.1:{server}", "--log.level=error"], None),
    ]  # fmt: skip
    pids = []
    held = ["gdb", "-nx", "-q", "-batch", "-x", str(DATA / "hold_cas.py"), "--args", str(faults), HELD]
    commands[0] = (held, None)
    with ExitStack() as stack:
        for command, environment in commands:
            child = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
            stack.callback(process.remove_segment, child.pid)
            stack.callback(child.wait)
            stack.callback(child.kill)
            pids.append(child.pid)
        wait_for(f"http://127.0.0.1:{server}/-/ready")
        pids[0] = pid_of_held(tmp_path / "held.pid")
        stack.callback(process.remove_segment, pids[0])
        for pid, alerts in zip(pids, RAISED.values(), strict=False):
            for alert in alerts:  # contention is a warning, or critical: the scheduler decides
                query = f'ALERTS{{alertname=~"TemporalSlab{alert}(Critical)?",alertstate="firing",pid="{pid}"}}'
                assert until_there(f"http://127.0.0.1:{server}", query, 90), alert


def test_the_rules_by_promtool() -> None:
    for words in ("check rules rules.yml", "check config prometheus.yml", "test rules rules_test.yml"):
        done = subprocess.run(["promtool", *words.split()], cwd=DEPLOY, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_in_the_tests_of_the_rules() -> None:
    groups = yaml.safe_load((DEPLOY / "rules.yml").read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    expected = re.findall(r'alertname="(\w+)"', (DEPLOY / "rules_test.yml").read_text())
    assert alerts == set(expected)


def test_the_dashboard_is_what_its_script_writes() -> None:
    done = subprocess.run([sys.executable, "dashboard.py"], cwd=DEPLOY, capture_output=True, text=True, check=True)
    assert done.stdout == (DEPLOY / "dashboard.json").read_text()
