"""A terminal of a given size with a program in it, which shows the screen that a person would see, key by key."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyte


class Terminal:
    def __init__(
        self, command: Sequence[str], columns: int, rows: int, variables: Mapping[str, str] | None = None
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.status: int | None = None
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            environment = {**os.environ, "TERM": "xterm-256color", **(variables or {})}
            for name in ("COLUMNS", "LINES", "NO_COLOR"):
                environment.pop(name, None)
            os.execvpe(command[0], list(command), environment)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def pump(self, seconds: float) -> bool:
        """Takes what the program writes within that time; False when it has ended."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._terminal], [], [], left)[0]:
                break
            try:
                data = os.read(self._terminal, 65536)
            except OSError:  # the program's end is closed
                data = b""
            if not data:
                return False
            self._stream.feed(data)
        return True

    def until(self, condition: Callable[[], bool], seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not condition():
            alive = self.pump(0.1)
            if condition():
                return
            assert alive, f"it ended:\n{self.text}"
            assert time.monotonic() < end, f"it did not come:\n{self.text}"

    def keys(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)

    def wait(self, seconds: float = 60) -> int:
        end = time.monotonic() + seconds
        while self.pump(0.5):
            assert time.monotonic() < end, f"it goes on:\n{self.text}"
        _, status = os.waitpid(self.pid, 0)
        self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def close(self) -> None:
        if self.status is None:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        os.close(self._terminal)


@contextlib.contextmanager
def opened(words: Sequence[str], columns: int = 80, rows: int = 24, **variables: str) -> Iterator[Terminal]:
    """`tslab WORDS...` in a terminal."""
    terminal = Terminal([sys.executable, "-m", "tslab.cli", *words], columns, rows, variables)
    try:
        yield terminal
    finally:
        terminal.close()
