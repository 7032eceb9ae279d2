"""Writing log lines: in order, and never in anybody's way."""

import errno
import io
import logging
import os
import threading
import time
from collections.abc import Iterator

import pytest

from gateway.logs import writing
from gateway.logs.writing import LineWriter


class Slow(io.StringIO):
    """A stream whose reader takes nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()

    def write(self, text: str) -> int:
        self.may.wait(10)
        return super().write(text)


class Full(io.StringIO):
    """A file on a disk that is full at first."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger of its own."""
    logger = logging.Logger("written")
    yield logger
    logger.handlers.clear()


def test_in_order(logger: logging.Logger) -> None:
    """Every line, as it came, once flushed."""
    stream = io.StringIO()
    writer = LineWriter(stream)
    logger.addHandler(writer)
    for number in range(1000):
        logger.info("line %d", number)
    writer.flush()
    assert stream.getvalue() == "".join(f"line {n}\n" for n in range(1000))


def test_a_reader_that_does_not_read(logger: logging.Logger) -> None:
    """Nobody waits for it; what exceeds the bound is lost, and that is told."""
    stream = Slow()
    writer = LineWriter(stream, limit=10)
    logger.addHandler(writer)
    logger.info("first")
    while writer._lines:
        time.sleep(0.001)
    begun = time.perf_counter()
    for number in range(1000):
        logger.info("line %d", number)
    assert time.perf_counter() - begun < 1
    stream.may.set()
    writer.flush()
    lines = stream.getvalue().splitlines()
    assert lines[:11] == ["first", *(f"line {n}" for n in range(10))]
    assert lines[11:] == ["990 log lines were lost: they were read too slowly"]


def test_the_end_does_not_wait_for_ever(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever never reads gets two seconds."""
    monkeypatch.setattr(writing, "CLOSE_S", 0.05)
    stream = Slow()
    writer = LineWriter(stream)
    logger.addHandler(writer)
    logger.info("line")
    writer.flush()
    assert stream.getvalue() == ""
    stream.may.set()


def test_a_stream_that_is_closed(logger: logging.Logger) -> None:
    """No fault of whoever logs."""
    stream = io.StringIO()
    stream.close()
    writer = LineWriter(stream)
    logger.addHandler(writer)
    logger.info("line")
    writer.flush()
    logger.info("line")
    writer.flush()


def test_a_disk_that_is_full_for_a_while(logger: logging.Logger) -> None:
    """What was lost is counted once, however often it could not be told."""
    stream = Full()
    writer = LineWriter(stream)
    logger.addHandler(writer)
    for number in range(5):
        logger.info("line %d", number)
        writer.flush()
    stream.full = False
    logger.info("room")
    writer.flush()
    assert stream.getvalue().splitlines() == [
        "room",
        "5 log lines were lost: they were read too slowly",
    ]


def test_after_a_fork(logger: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process writes, too: its thread is a new one."""
    stream = io.StringIO()
    writer = LineWriter(stream)
    logger.addHandler(writer)
    logger.info("before")
    writer.flush()
    writer._wake = threading.Event()  # nobody waits for this one
    real = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: real + 1)
    logger.info("after")
    writer.flush()
    assert stream.getvalue() == "before\nafter\n"
