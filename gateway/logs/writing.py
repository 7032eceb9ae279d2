"""Log lines on their way to stderr: whoever reads them slowly holds up no request."""

import logging
import os
import threading
import time
from collections import deque
from typing import TextIO

LIMIT = 10_000
"""Lines that wait to be written; further ones are lost, and counted."""
CLOSE_S = 2.0
"""Seconds that lines get to be written at the end."""
LOOK_S = 0.01


class LineWriter(logging.Handler):
    """Writes lines in a thread of its own, which begins with the first line."""

    def __init__(self, stream: TextIO, *, limit: int = LIMIT) -> None:
        super().__init__()
        self._stream = stream
        self._limit = limit
        self._lines: deque[str] = deque()
        self._lost = 0
        self._wake = threading.Event()
        self._writing = False
        self._process: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line; never waits."""
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        if len(self._lines) >= self._limit:
            self._lost += 1
            return
        self._lines.append(line)
        if self._process != os.getpid():  # also in a fork, whose threads are gone
            self._process = os.getpid()
            threading.Thread(target=self._run, name="log", daemon=True).start()
        self._wake.set()

    def flush(self) -> None:
        """Wait until all is written, for two seconds at most."""
        end = time.monotonic() + CLOSE_S
        while (self._lines or self._writing) and time.monotonic() < end:
            time.sleep(LOOK_S)

    def _run(self) -> None:
        while self._wake.wait():
            self._wake.clear()
            while self._lines:
                self._writing = True
                self._write()
                self._writing = False

    def _write(self) -> None:
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        lost, self._lost = self._lost, 0
        if lost:
            lines.append(f"{lost} log lines were lost: they were read too slowly")
        try:
            self._stream.write("\n".join(lines) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads, and nobody could be told
            self._lost += len(lines) + (lost - 1 if lost else 0)  # that line, too
