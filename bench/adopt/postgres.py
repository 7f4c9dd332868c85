#!/usr/bin/env python3
"""PostgreSQL: twelve connections that each sort and hash once, then stay idle, as a pool keeps them.

python3 bench/adopt/postgres.py build/release/libtslab.so.0     Debian package: postgresql; as root or as postgres
"""

import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import adopt

CONNECTIONS, REST_SECONDS = 12, 4
WORK = """SET work_mem = '32MB';
SELECT count(*) FROM (SELECT md5(i::text) AS t FROM generate_series(1, 60000) i ORDER BY 1) q;
SELECT count(*) FROM (SELECT md5(i::text) AS t, count(*) FROM generate_series(1, 60000) i GROUP BY 1) q;
SELECT count(*) FROM information_schema.columns;
\\echo served
"""


def programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    assert found, "postgresql is not installed"
    return found[-1]


def as_postgres(environment: dict[str, str] | None = None) -> dict[str, object]:
    user = pwd.getpwnam("postgres")
    options: dict[str, object] = {"text": True, "env": environment, "cwd": "/"}
    return {**options, "user": user.pw_uid, "group": user.pw_gid} if os.geteuid() == 0 else options


def backends(server: int) -> list[int]:
    """Returns the processes that serve a connection each."""
    pids = [int(pid) for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
    return [pid for pid in pids if re.search(r"\bidle$", Path(f"/proc/{pid}/cmdline").read_text().strip("\0 "))]


def measure(environment: dict[str, str]) -> list[float]:
    folder = tempfile.mkdtemp(prefix="adopt-postgres-")
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    data = f"{folder}/data"
    made = [str(programs() / "initdb"), "-D", data, "-A", "trust", "-N"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL, **as_postgres())  # type: ignore[call-overload]
    words = [str(programs() / "postgres"), "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(words, **quiet, **as_postgres(environment))  # type: ignore[call-overload]
    while not Path(folder, ".s.PGSQL.5432").exists():
        time.sleep(0.1)
    client = ["psql", "-qAt", "-h", folder, "-U", "postgres", "postgres"]
    clients = []
    for _ in range(CONNECTIONS):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        one = subprocess.Popen(client, **pipes, **as_postgres())  # type: ignore[call-overload]
        one.stdin.write(WORK)
        one.stdin.flush()
        while one.stdout.readline() != "served\n":
            pass
        clients.append(one)
    time.sleep(REST_SECONDS)
    sizes = [adopt.resident(pid) for pid in backends(server.pid)]
    assert len(sizes) == CONNECTIONS, sizes
    for one in clients:
        one.stdin.close()
        one.wait(60)
    adopt.ended(server)
    shutil.rmtree(folder)
    return [sum(sizes) / CONNECTIONS / 1024, sum(sizes) / adopt.MIB]


if __name__ == "__main__":
    adopt.table("PostgreSQL, resident", ["an idle connection, KiB", "all twelve, MiB"], measure)
