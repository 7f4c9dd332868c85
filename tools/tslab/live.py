"""The server of `tslab export`: /metrics for Prometheus, / for a person, /live.json for the page behind it.

It answers GET alone and reads nothing that a request names. One look serves all requests of a quarter of a second.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from tslab.errors import LabError
from tslab.exposition import OTHER, STATES, Collector, kept_labels
from tslab.lines import Encoder, encodes
from tslab.scrape import Reading, Scraper
from tslab.segment import WITHOUT_BOUND, Row

LISTEN = "127.0.0.1:9766"
_SAME_LOOK_S = 0.25
_PAGE = "live.html"
# The page has its script and style within, and may fetch from nowhere but here.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:"


class Exporter:
    """The figures that every request gets. Thread: any; one look at a time."""

    def __init__(self, namespace: str, classes: bool) -> None:
        if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}", namespace):
            raise LabError(f"--namespace takes letters, digits and _, not {namespace!r:.80}")
        self._scraper = Scraper()
        self._lock = threading.Lock()
        self._seen: list[Reading] = []
        self._seen_at = float("-inf")
        self._encoder = Encoder()
        self._registry = CollectorRegistry()
        self._collector = Collector(self.look, self._scraper, namespace, classes)
        self._registry.register(_Quiet(self._collector))

    def look(self) -> list[Reading]:
        with self._lock:
            if time.monotonic() - self._seen_at > _SAME_LOOK_S:
                self._seen = self._scraper.look()
                self._seen_at = time.monotonic()
            return self._seen

    def metrics(self, accept: str) -> tuple[bytes, str]:
        encode, kind = choose_encoder(accept)
        if encodes(kind):
            return self._encoder.encode(self._collector.collect(), kind), kind
        return encode(self._registry), kind

    def live(self) -> bytes:
        seen = {"processes": [of_process(r) for r in self.look()], "refused": self._scraper.refused}
        return json.dumps(seen, separators=(",", ":")).encode()


class _Quiet:
    """A collector that need not be run to be registered."""

    def __init__(self, collector: Collector) -> None:
        self.collect = collector.collect

    def describe(self) -> list[Any]:
        return []


def of_process(reading: Reading) -> dict[str, Any]:
    """Returns the data from which the page draws one process."""
    total = reading.total
    names = ("live_bytes", "live_blocks", "in_use_bytes", "free_dirty_bytes", "allocations", "slow_allocations",
             "epochs_open", "epochs_closing", "epochs_opened", "purge_failures", "returned_bytes")  # fmt: skip
    return {
        "pid": reading.pid,
        "program": reading.program,
        "library": reading.library,
        "age_s": round(reading.age_s, 3),
        "resident_bytes": reading.resident_bytes,
        **{name: total.get(name, 0) for name in names},
        "classes": _most(reading.rows.get("class", []), "live_bytes", ("object_size", "live_bytes", "live_blocks")),
        "epochs": _by_label(reading),
        "paths": [
            {**{n: row.get(n, 0) for n in ("name", "entries", "wall_ns_sum", "wall_ns_max")},
             "buckets": [[None if upper == WITHOUT_BOUND else upper, count]
                         for upper, count in zip(reading.bounds, row.get("buckets", ()), strict=False) if count]}
            for row in reading.rows.get("path", []) if row.get("entries", 0)
        ],
        "locks": [{n: row.get(n, 0) for n in ("name", "fast", "contended", "wait_ns")}
                  for row in reading.rows.get("lock", [])],
        "retries": [sum(row.get(name, 0) for row in reading.rows.get("class", []))
                    for name in ("slab_take_attempts", "slab_take_cas_retries")],
    }  # fmt: skip


def _most(rows: list[Row], by: str, names: tuple[str, ...]) -> list[Row]:
    held = sorted((row for row in rows if row.get(by, 0)), key=lambda row: -row[by])[:10]
    return [{name: row.get(name, 0) for name in names} for row in held]


def _by_label(reading: Reading) -> list[Row]:
    kept = kept_labels(reading)
    groups: dict[tuple[str, str], Row] = {}
    for row in reading.rows.get("epoch", []):
        label = row.get("label", "")
        key = (label if label in kept else OTHER, STATES.get(row.get("state", 0), "UNKNOWN"))
        own = groups.setdefault(key, {"label": key[0], "state": key[1], "count": 0, "age_s": 0.0, "live": 0, "held": 0})
        own["count"] += 1
        own["age_s"] = max(own["age_s"], row.get("age_ns", 0) / 1e9)
        own["live"] += row.get("live_bytes", 0)
        own["held"] += row.get("committed_bytes", 0)
    return sorted(groups.values(), key=lambda own: -int(own["held"]))


def page() -> bytes:
    return resources.files("tslab").joinpath("reporters", _PAGE).read_bytes()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 10  # a client that says nothing holds a thread no longer than this

    def do_GET(self) -> None:
        exporter = self.server.exporter
        path = self.path.split("?", 1)[0]
        if path == "/metrics":
            body, kind = exporter.metrics(self.headers.get("Accept", ""))
        elif path == "/live.json":
            body, kind = exporter.live(), "application/json"
        elif path in ("/", "/index.html"):
            body, kind = page(), "text/html; charset=utf-8"
        else:
            self.send_error(404, "here are / and /metrics")
            return
        self.send_response(200)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), ("Cache-Control", "no-store"),
                            ("Content-Security-Policy", _POLICY), ("X-Content-Type-Options", "nosniff")):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """A scrape every 15 seconds is not worth a line."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], exporter: Exporter) -> None:
        self.exporter = exporter
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away before its answer came is no error."""


def address_of(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise LabError(f"--listen takes ADDRESS:PORT, as {LISTEN} or [::1]:9766, not {text!r:.80}")
    return host, int(port)
