#!/usr/bin/env python3
"""PostgreSQL: twelve connections that sort and hash in turn, then stay idle, as a pool keeps them.

python3 bench/adopt/postgres.py build/release/libtslab.so.0     Debian package: postgresql; as root or as postgres
"""

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import adopt

CONNECTIONS, AT_ONCE = 12, 3
WORK = """SELECT count(*) FROM (SELECT md5(i::text) AS t FROM generate_series(1, 60000) i ORDER BY 1) q;
SELECT count(*) FROM (SELECT md5(i::text) AS t, count(*) FROM generate_series(1, 60000) i GROUP BY 1) q;
SELECT count(*) FROM information_schema.columns;
\\echo served
"""


def programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found:
        raise adopt.MissingError("PostgreSQL is not here: apt-get install postgresql")
    return found[-1]


def as_postgres() -> dict[str, object]:
    user = pwd.getpwnam("postgres")
    return {"cwd": "/", **({"user": user.pw_uid, "group": user.pw_gid} if os.geteuid() == 0 else {})}


def connected(folder: str) -> subprocess.Popen[str]:
    words = ["psql", "-qAt", "-h", folder, "-U", "postgres", "postgres"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    client: subprocess.Popen[str] = subprocess.Popen(words, **pipes, **as_postgres())  # type: ignore[call-overload]
    assert client.stdin
    client.stdin.write("SET work_mem = '32MB';\n")
    return client


def work(clients: list[subprocess.Popen[str]], burst: int) -> None:
    for i in range(AT_ONCE):
        client = clients[(burst * AT_ONCE + i) % CONNECTIONS]
        assert client.stdin and client.stdout
        client.stdin.write(WORK)
        client.stdin.flush()
        while (line := client.stdout.readline()) != "served\n":
            assert line, "psql ended"


@contextlib.contextmanager
def start(environment: adopt.Environment) -> Iterator[adopt.Program]:
    where = programs()
    folder = tempfile.mkdtemp(prefix="adopt-postgres-")
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    data = f"{folder}/data"
    made = [str(where / "initdb"), "-D", data, "-A", "trust", "-N"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL, **as_postgres())  # type: ignore[call-overload]
    words = [str(where / "postgres"), "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
    with adopt.server(words, environment, stderr=subprocess.DEVNULL, **as_postgres()) as process:
        while not Path(folder, ".s.PGSQL.5432").exists():
            time.sleep(0.1)
        clients = [connected(folder) for _ in range(CONNECTIONS)]
        yield adopt.Program(process.pid, lambda burst: work(clients, burst))
        for client in clients:
            client.communicate()
    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(adopt.compare("PostgreSQL", ["the server, at once", "4 s later"], start))
