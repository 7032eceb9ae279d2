"""Useless topics: a line for each, however many there were before."""

import logging

import pytest

from gateway.events.strangers import LIVES_S, STRANGERS, SUM_S, Strangers

WHY = "is no worker's"
ENDPOINT = "tcp://*:5557"


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said since the last look."""
    said = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return said


def test_more_topics_than_get_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """They are summed up at once, and then once a minute while more come."""
    caplog.set_level(logging.WARNING)
    clock = Clock()
    strangers = Strangers(clock)
    for number in range(STRANGERS):
        strangers.note(ENDPOINT, b"topic %d" % number, WHY)
    assert len(lines(caplog)) == STRANGERS
    for second in range(121):
        clock.now = float(second)
        strangers.note(ENDPOINT, b"late %d" % second, WHY)
        strangers.note(ENDPOINT, b"topic 1", WHY)
    sums = lines(caplog)
    assert [text.split(": ")[1].split()[0] for text in sums] == ["1", "60", "60"]
    assert SUM_S == 60.0


def test_a_topic_that_comes_still(caplog: pytest.LogCaptureFixture) -> None:
    """It is said again after a while, and new ones get lines of their own again."""
    clock = Clock()
    strangers = Strangers(clock)
    for number in range(STRANGERS):
        strangers.note(ENDPOINT, b"topic %d" % number, WHY)
    assert len(lines(caplog)) == STRANGERS
    clock.now = LIVES_S
    for topic in (b"topic 0", b"new", b"topic 0"):
        strangers.note(ENDPOINT, topic, WHY)
    assert [text.split("'")[1] for text in lines(caplog)] == ["topic 0", "new"]
