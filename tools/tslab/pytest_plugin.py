"""A pytest plugin: each test in an epoch, and a test fails when too much outlives it.

    tslab run -- pytest --tslab-epochs                  every test
    @pytest.mark.tslab_epoch                            this test, whether or not the option is given
    @pytest.mark.tslab_epoch(allow=1 << 20)             and it may leave a mebibyte

The limit is not zero, for Python itself keeps things: docs/python.md. Fixtures are outside the epoch.
"""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

from tslab import binding

ALLOWED = 64 << 10


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tslab")
    group.addoption("--tslab-epochs", action="store_true", help="run each test in an epoch, and fail it if it leaks")
    group.addoption(
        "--tslab-allow", type=int, default=ALLOWED, metavar="BYTES",
        help=f"what a test may leave in its epoch (default: {ALLOWED:,})",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tslab_epoch(allow=BYTES): run the test in an epoch, and fail it if it leaks")
    if config.getoption("--tslab-epochs") and not binding.available():
        raise pytest.UsageError("--tslab-epochs needs temporal-slab: run `tslab run -- pytest ...`")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    marker = pyfuncitem.get_closest_marker("tslab_epoch")
    if marker is None and not pyfuncitem.config.getoption("--tslab-epochs"):
        return (yield)
    if not binding.available():
        pytest.skip("temporal-slab does not serve this process: run `tslab run -- pytest ...`")
    allowed = pyfuncitem.config.getoption("--tslab-allow")
    if marker is not None:
        allowed = marker.kwargs.get("allow", allowed)
    scope = binding.epoch(pyfuncitem.name)
    gc.collect()
    with scope:
        result = yield
        gc.collect()
    left = scope.report
    if left and left.live_bytes > allowed:
        pytest.fail(
            f"{left.live_bytes:,} bytes in {left.live_blocks:,} blocks outlived the test's epoch; {allowed:,} bytes "
            "are allowed (--tslab-allow, or @pytest.mark.tslab_epoch(allow=BYTES))",
            pytrace=False,
        )
    return result
