#!/usr/bin/env python3
"""apps: real programs under a preloaded allocator, with real work; rows as the C workloads print them.

    bench/apps.py [--app=NAME,...] [--preload=LIBRARY] [--repeat=N] [--csv] [--seed=N]

redis      redis-server, loaded and then half emptied by redis-benchmark and redis-cli over a socket of this machine
sqlite3    an in-memory database: inserts, an index, updates, deletes, queries
python     CPython building and dropping dictionaries, strings and JSON (PYTHONMALLOC=malloc)
gcc        compiles a large generated C file with -O2
lua, perl  strings and tables, built and dropped
nginx      serves a small file over a socket of this machine, 16 connections, keep-alive

A row states wall and CPU time, the peak of resident memory (looked up every 10 ms, so growth in the last 10 ms is
missed) and what the app itself reports. Before its first run each program is started once under the loader's own
record of bindings: where its malloc is not the preloaded library's, there is no row and the exit status is 4. A program
that is not installed is a row with "missing", one that crashes a row with "failed"; both make the exit status 1.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

CONNECTIONS = 16


class MissingError(Exception):
    """A program that the app needs is not installed."""


class FailedError(Exception):
    """The app's program crashed or its work went wrong."""


class NotServedError(Exception):
    """Another allocator than the preloaded one serves the program."""


def program(*names: str) -> str:
    for name in names:
        path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
        if path:
            return path
    raise MissingError(f"{names[0]} is not installed")


def c_library() -> str:
    """The path of glibc's own library in this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split()[-1]
        if re.search(r"/libc(-[\d.]+)?\.so", path):
            return path
    raise FailedError("this Python runs without glibc")


class Lab:
    """Runs one app's programs under the allocator and adds up what they used."""

    def __init__(self, preload: str, folder: Path, seed: int) -> None:
        self.preload, self.folder, self.seed = preload, folder, seed
        self.wall = self.cpu = 0.0
        self.peak = self.end = 0
        self.malloc_from = ""

    def environment(self, **more: str) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        return own | {"LD_PRELOAD": self.preload, "LC_ALL": "C.UTF-8"} | more

    def prove(self, command: Sequence[str]) -> None:
        """Reads in the loader's record which object the program's malloc binds to."""
        log = self.folder / "bindings"
        subprocess.run(
            command,
            env=self.environment(LD_DEBUG="bindings", LD_DEBUG_OUTPUT=str(log), LD_BIND_NOW="1"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=60,
        )
        bound: set[str] = set()
        for path in self.folder.glob("bindings.*"):
            found = re.findall(r"to (\S+) \[\d+\]: normal symbol `malloc'", path.read_text(errors="replace"))
            bound |= {str(Path(library).resolve()) for library in found}
            path.unlink()
        if not bound:
            raise NotServedError(f"{command[0]} binds no malloc at all, so no allocator is measured")
        if bound != {self.preload}:
            raise NotServedError(f"{command[0]}: malloc comes from {', '.join(sorted(bound))}, not from {self.preload}")
        self.malloc_from = bound.pop()

    def look(self, pid: int) -> None:
        """Peak and present resident memory of a process, where it still has any."""
        try:
            text = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        for name, field in (("peak", "VmHWM"), ("end", "VmRSS")):
            found = re.search(rf"{field}:\s+(\d+)", text)
            if found:
                value = int(found[1]) * 1024
                setattr(self, name, max(self.peak, value) if name == "peak" else value)

    def run(self, command: Sequence[str], **variables: str) -> None:
        """A program from start to end; its time is the app's."""
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            env=self.environment(**variables),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        used = None
        while used is None:
            self.look(process.pid)
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                used = usage
            else:
                time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.wall += time.monotonic() - started
        self.cpu += used.ru_utime + used.ru_stime
        said = process.stderr.read().strip() if process.stderr else ""
        if process.returncode != 0:
            raise FailedError(f"{command[0]} ended with status {process.returncode}: {said[-200:]}")

    def cpu_of(self, pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def served(self, command: Sequence[str], ready: Callable[[], bool], load: Callable[[int], None]) -> None:
        """A server: started, loaded by `load`, which gets its process id, and stopped."""
        process = subprocess.Popen(
            command, env=self.environment(), cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            for _ in range(500):
                if process.poll() is not None:
                    raise FailedError(f"{command[0]} ended with status {process.returncode} before it served")
                if ready():
                    break
                time.sleep(0.02)
            else:
                raise FailedError(f"{command[0]} did not serve within 10 s")
            started, cpu = time.monotonic(), self.cpu_of(process.pid)
            load(process.pid)
            if process.poll() is not None:
                raise FailedError(f"{command[0]} ended with status {process.returncode} under load")
            self.wall += time.monotonic() - started
            self.cpu += self.cpu_of(process.pid) - cpu
            self.look(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


# ---- the apps: each returns what it measures besides time and memory ----


def client(command: Sequence[str]) -> str:
    """A load generator, which runs without the preload; its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise FailedError(f"{command[0]} ended with status {done.returncode}: {done.stderr.strip()[-200:]}")
    return done.stdout


def redis(lab: Lab) -> dict[str, float]:
    bench, cli = program("redis-benchmark"), program("redis-cli")
    # Debian builds the server and redis-check-rdb as one program that goes by its name. redis-tools holds it.
    link = lab.folder / "redis-server"
    link.symlink_to(program("redis-server", "redis-check-rdb"))
    server = str(link)
    lab.prove([server, "--version"])
    at = str(lab.folder / "redis.sock")
    command = [server, "--port", "0", "--unixsocket", at, "--save", "", "--appendonly", "no"]
    measured: dict[str, float] = {}

    def load(pid: int) -> None:
        said = client(
            [bench, "-s", at, "-n", "300000", "-r", "200000", "-d", "256", "-P", "8", "-t", "set,get", "--csv"]
        )
        for row in csv.DictReader(said.splitlines()):
            measured[f"{row['test'].lower()}_requests_per_s"] = float(row["rps"])
            measured[f"{row['test'].lower()}_p99_ns"] = float(row["p99_latency_ms"]) * 1e6
        lab.look(pid)
        half = "for i = 0, 199999, 2 do redis.call('del', string.format('key:%012d', i)) end"
        client([cli, "-s", at, "eval", half, "0"])
        time.sleep(2)

    lab.served(command, Path(at).exists, load)
    return measured


def sqlite3(lab: Lab) -> dict[str, float]:
    shell = program("sqlite3")
    lab.prove([shell, ":memory:", "select 1"])
    script = lab.folder / "work.sql"
    script.write_text(
        "create table t(id integer primary key, name text, value real, body blob);\n"
        "with recursive n(i) as (select 1 union all select i+1 from n where i < 200000)\n"
        " insert into t select i, 'name' || (i * 7919 % 100003), i * 0.5, zeroblob(i % 700) from n;\n"
        "create index by_name on t(name);\n"
        "update t set name = name || '-changed' where id % 3 = 0;\n"
        "delete from t where id % 5 = 0;\n"
        "select count(*), sum(length(body)) from t where name like 'name1%';\n"
        "select name, count(*) c from t group by name order by c desc, name limit 10;\n"
    )
    lab.run([shell, ":memory:", f".read {script}"])
    return {}


def python(lab: Lab) -> dict[str, float]:
    interpreter = program("python3")
    lab.prove([interpreter, "-S", "-c", "pass"])
    code = (
        f"import json, random; random.seed({lab.seed})\n"
        "for turn in range(4):\n"
        "    rows = [{'id': i, 'name': 'n%d' % (i * 7919 % 10007), 'tags': [str(i + k) for k in range(i % 9)]}"
        " for i in range(30000)]\n"
        "    text = json.dumps(rows); random.shuffle(rows); del rows[::2]; back = json.loads(text)\n"
        "    index = {}\n"
        "    for row in back: index.setdefault(row['name'], []).append(row)\n"
    )
    lab.run([interpreter, "-c", code], PYTHONMALLOC="malloc")
    return {}


def gcc(lab: Lab) -> dict[str, float]:
    driver = program("gcc")
    compiler = client([driver, "-print-prog-name=cc1"]).strip()
    lab.prove([compiler, "--version"])
    draw = random.Random(lab.seed)
    lines = ["struct s { int a, b; struct s *next; };"]
    for i in range(200):
        steps = "".join(
            f" x = x * {draw.randrange(3, 99)} + p->{draw.choice('ab')};"
            f" if (x & {1 << draw.randrange(12)}) p = p->next;"
            for _ in range(8)
        )
        lines.append(f"int f{i}(struct s *p, int x) {{ for (int i = 0; i < x; i++) {{{steps} }} return x; }}")
    (lab.folder / "large.c").write_text("\n".join(lines) + "\n")
    lab.run([compiler, "-quiet", "-O2", "large.c", "-o", "large.s"])
    return {}


def lua(lab: Lab) -> dict[str, float]:
    interpreter = program("lua5.4", "lua5.3", "lua")
    lab.prove([interpreter, "-v"])
    code = (
        "for turn = 1, 12 do local t = {} "
        "for i = 1, 150000 do t[i] = { id = i, name = 'n' .. (i * 7919 % 10007) } end "
        "local index = {} for i = 1, #t do index[t[i].name] = (index[t[i].name] or '') .. (i % 10) end end"
    )
    lab.run([interpreter, "-e", code])
    return {}


def perl(lab: Lab) -> dict[str, float]:
    interpreter = program("perl")
    lab.prove([interpreter, "-e", "1"])
    code = (
        "for my $turn (1 .. 6) { my (%h, @l); for my $i (1 .. 120000) { "
        "push @l, { id => $i, name => 'n' . ($i * 7919 % 10007) }; $h{$l[-1]{name}} .= $i % 10 } "
        "@l = sort { $a->{name} cmp $b->{name} } @l[0 .. 20000] }"
    )
    lab.run([interpreter, "-e", code])
    return {}


def nginx(lab: Lab) -> dict[str, float]:
    server = program("nginx")
    lab.prove([server, "-v"])
    at = str(lab.folder / "nginx.sock")
    (lab.folder / "page.txt").write_text("temporal-slab\n" * 64)
    (lab.folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {lab.folder}/pid; error_log {lab.folder}/error.log;\n"
        "events { worker_connections 256; }\n"
        "http { access_log off; keepalive_requests 1000000; gzip on; gzip_types text/plain;\n"
        "  client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;\n"
        "  types { text/plain txt; }\n"
        f"  server {{ listen unix:{at}; root {lab.folder}; }} }}\n"
    )
    measured: dict[str, float] = {}
    requests = 20000
    question = b"GET /page.txt HTTP/1.1\r\nHost: here\r\nAccept-Encoding: gzip\r\n\r\n"

    def load(_: int) -> None:
        connections = []
        for _ in range(CONNECTIONS):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(at)
            connections.append(connection)
        started = time.monotonic()
        for _ in range(requests // CONNECTIONS):
            for connection in connections:
                connection.sendall(question)
            for connection in connections:
                if not connection.recv(65536).startswith(b"HTTP/1.1 200"):
                    raise FailedError("nginx did not answer 200")
        measured["requests_per_s"] = requests / (time.monotonic() - started)
        for connection in connections:
            connection.close()

    lab.served([server, "-p", str(lab.folder), "-c", str(lab.folder / "nginx.conf")], Path(at).exists, load)
    return measured


APPS: dict[str, Callable[[Lab], dict[str, float]]] = {
    "redis": redis,
    "sqlite3": sqlite3,
    "python": python,
    "gcc": gcc,
    "lua": lua,
    "perl": perl,
    "nginx": nginx,
}


def one_row(name: str, preload: str, seed: int) -> dict[str, object]:
    row: dict[str, object] = {"workload": "apps", "variant": f"app={name}", "seed": seed}
    with tempfile.TemporaryDirectory(prefix="tslab-app-") as folder:
        lab = Lab(preload, Path(folder), seed)
        try:
            measured = APPS[name](lab)
        except MissingError as reason:
            return row | {"missing": str(reason)}
        except (FailedError, subprocess.TimeoutExpired, OSError) as reason:
            return row | {"failed": str(reason)}
        metrics = {
            "wall_ns": lab.wall * 1e9,
            "cpu_ns": lab.cpu * 1e9,
            "peak_rss_bytes": float(lab.peak),
            "end_rss_bytes": float(lab.end),
        }
        proof = {"malloc_from": lab.malloc_from, "glibc": preload == c_library()}
        return row | {"metrics": metrics | measured, "proof": proof}


def print_csv(rows: Sequence[dict[str, object]]) -> None:
    out = csv.writer(sys.stdout)
    out.writerow(["workload", "variant", "seed", "metric", "value", "malloc_from"])
    for row in rows:
        metrics, proof = row.get("metrics", {}), row.get("proof", {})
        assert isinstance(metrics, dict) and isinstance(proof, dict)
        for metric, value in metrics.items():
            out.writerow([row["workload"], row["variant"], row["seed"], metric, value, proof["malloc_from"]])


def main() -> int:
    parser = argparse.ArgumentParser(prog="apps", description="Runs real programs under an allocator.")
    parser.add_argument(
        "--app", default=",".join(APPS), help=f"which ones, by commas; all by default: {', '.join(APPS)}"
    )
    parser.add_argument("--preload", default=os.environ.get("LD_PRELOAD") or None, help="the allocator's library")
    parser.add_argument("--expect", help="as the C workloads': 'glibc', or a path that must be the preloaded library")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--csv", action="store_true")
    options = parser.parse_args()
    names = options.app.split(",")
    unknown = [name for name in names if name not in APPS]
    if unknown:
        parser.error(f"no app '{unknown[0]}'; choose from: {', '.join(APPS)}")
    # Some programs bring an allocator of their own (Debian's redis-server links jemalloc): for glibc's malloc its
    # library is preloaded too, so that every run measures what it says.
    preload = str(Path(options.preload or c_library()).resolve())
    os.environ.pop("LD_PRELOAD", None)
    if not Path(preload).exists():
        parser.error(f"no library {options.preload}")
    if options.expect:
        expected = c_library() if options.expect == "glibc" else str(Path(options.expect).resolve())
        if expected != preload:
            print(f"apps: no row: {expected} was expected, but {preload} is preloaded", file=sys.stderr)
            return 4
    rows = []
    for turn in range(options.repeat):
        for name in names:
            try:
                rows.append(one_row(name, preload, options.seed + turn))
            except NotServedError as reason:
                print(f"apps: no row: {reason}", file=sys.stderr)
                return 4
            if not options.csv:
                print(json.dumps(rows[-1], separators=(",", ":")), flush=True)
    if options.csv:
        print_csv(rows)
    return 0 if all("metrics" in row for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
