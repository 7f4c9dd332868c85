"""The figures of every process for Prometheus, and a page with live charts. Nothing runs inside the processes.

tslab export                        serves http://127.0.0.1:9766/ (the page) and /metrics
tslab export --once                 one scrape to standard output
tslab export --listen 0.0.0.0:9766  also for other machines; the figures name programs and labels

It reads the processes of the user; as root all of the machine, containers included.
"""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from tslab.errors import LabError
from tslab.exposition import NAMESPACE
from tslab.live import LISTEN, Exporter, Server, address_of

OPENMETRICS = "application/openmetrics-text"


def prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--listen", default=LISTEN, metavar="ADDRESS:PORT", help=f"where to serve (default: {LISTEN})")
    parser.add_argument("--once", action="store_true", help="print one scrape and end")
    parser.add_argument("--openmetrics", action="store_true", help="with --once: OpenMetrics, not Prometheus text")
    parser.add_argument("--namespace", default=NAMESPACE, metavar="NAME", help=f"of all names (default: {NAMESPACE})")
    parser.add_argument("--classes", action="store_true", help="class_* families for each size class, not their sums")


def run(arguments: argparse.Namespace, console: Console) -> int:
    exporter = Exporter(arguments.namespace, arguments.classes)
    if arguments.once:
        body, _ = exporter.metrics(OPENMETRICS if arguments.openmetrics else "")
        sys.stdout.write(body.decode())
        return 0
    address = address_of(arguments.listen)
    try:
        server = Server(address, exporter)
    except OSError as error:
        raise LabError(f"cannot listen on {arguments.listen}: {error.strerror}; choose another --listen") from error
    with server:
        host, port = server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        place = f"http://{shown}:{port}/"
        print(f"tslab export: {place} has the page, {place}metrics the figures", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0  # how a person ends it
    return 0
