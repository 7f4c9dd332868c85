#!/usr/bin/env python3
"""DuckDB in a Python process: three clients that sort, group and join text, each in its own thread; then rest.

python3 bench/adopt/duckdb_queries.py build/release/libtslab.so.0     installs the wheel duckdb into build/adopt
"""

import subprocess
import sys
from contextlib import AbstractContextManager

import adopt

SERVICE = """
import sys
from concurrent.futures import ThreadPoolExecutor
import duckdb
database = duckdb.connect(config={"threads": 2, "memory_limit": "1GB"})
database.execute("SET enable_progress_bar = false")
database.execute("CREATE TABLE rows AS SELECT i, md5(i::text) AS key, repeat('x', (i * 37 % 200)::int) AS text "
                 "FROM range(60000) t(i)")
QUERIES = [
    "SELECT key, text FROM rows ORDER BY key DESC LIMIT 20000",
    "SELECT substr(key, 1, 3) AS k, list(text), string_agg(key, ',') FROM rows GROUP BY k",
    "SELECT count(*) FROM rows a JOIN rows b ON substr(a.key, 1, 4) = substr(b.key, 1, 4) WHERE a.i < 20000",
]
def serve(query):
    client = database.cursor()
    answer = client.execute(QUERIES[query % 3]).fetchall()
    client.close()
    return len(answer)
with ThreadPoolExecutor(3) as clients:
    for line in sys.stdin:
        list(clients.map(serve, range(9)))
        print("served", flush=True)
"""


def start(environment: adopt.Environment) -> AbstractContextManager[adopt.Program]:
    folder = adopt.FETCHED / "duckdb"
    if not (folder / "duckdb").exists():
        words = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), "duckdb"]
        if subprocess.run(words, check=False, capture_output=True).returncode:
            raise adopt.MissingError("pip cannot install duckdb")
    return adopt.worker([sys.executable, "-c", SERVICE], {**environment, "PYTHONPATH": str(folder)})


if __name__ == "__main__":
    sys.exit(adopt.compare("DuckDB, three clients", ["at the last query's end", "4 s later"], start))
