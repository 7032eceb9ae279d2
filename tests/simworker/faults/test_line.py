"""The way of messages: each fault on it, alone."""

import asyncio

import pytest
import uvloop

from simworker.faults.line import Line
from simworker.faults.record import Faults

TEN = list(range(10))


def passed(faults: Faults) -> list[int]:
    """The numbers that arrive of ten messages."""
    arrived: list[int] = []
    line = Line(lambda number, payload: arrived.append(number), json=False)
    line.play(faults)
    for number in TEN:
        line.take(number, b"")
    return arrived


@pytest.mark.parametrize(
    ("faults", "arrived"),
    [
        (Faults(), TEN),
        (Faults(drop=3), TEN[3:]),
        (Faults(mute=True), []),
        (Faults(duplicate=2), [0, 0, 1, 1, *TEN[2:]]),
        (Faults(reorder=4), [3, 2, 1, 0, *TEN[4:]]),
        (Faults(drop=1, duplicate=1), [1, 1, *TEN[2:]]),
        (Faults(reorder=20), []),
    ],
)
def test_what_arrives(faults: Faults, arrived: list[int]) -> None:
    """Lost, repeated or reversed: so many, and then no more."""
    assert passed(faults) == arrived


def test_what_is_held_back_goes_out() -> None:
    """When other faults are played, or none; and the line is at rest then."""
    arrived: list[int] = []
    line = Line(lambda number, payload: arrived.append(number), json=False)
    line.play(Faults(reorder=20))
    line.take(0, b"")
    line.take(1, b"")
    assert not line.at_rest
    line.play(Faults())
    assert arrived == [1, 0]
    assert line.at_rest


def test_spoilt_messages() -> None:
    """The next two are; the count of what was played tells."""
    payloads: list[bytes] = []
    line = Line(lambda number, payload: payloads.append(payload), json=True)
    line.play(Faults(spoil="malformed", spoil_count=2))
    for number in range(3):
        line.take(number, b"{}")
    assert [payload == b"{}" for payload in payloads] == [False, False, True]
    assert line.played == {"malformed": 2}
    assert line.at_rest


async def test_delay() -> None:
    """Messages come late and in order, also those sent once the delay is over."""
    arrived: list[int] = []
    line = Line(lambda number, payload: arrived.append(number), json=False)
    line.play(Faults(delay_s=0.1))
    line.take(0, b"")
    line.play(Faults())
    line.take(1, b"")
    assert (arrived, line.at_rest) == ([], False)
    await asyncio.sleep(0.2)
    assert (arrived, line.at_rest) == ([0, 1], True)
    line.take(2, b"")
    assert arrived == [0, 1, 2]


def test_delays_on_the_loop_of_a_server() -> None:
    """uvloop's timers tell less of themselves than asyncio's."""

    async def late() -> list[int]:
        arrived: list[int] = []
        line = Line(lambda number, payload: arrived.append(number), json=False)
        line.play(Faults(delay_s=0.05))
        for number in range(3):
            line.take(number, b"")
            await asyncio.sleep(0.02)
        line.play(Faults())
        line.take(3, b"")
        line.take(4, b"")
        await asyncio.sleep(0.15)
        assert line.at_rest
        return arrived

    assert uvloop.run(late()) == list(range(5))


async def test_clear() -> None:
    """What is under way never arrives."""
    arrived: list[int] = []
    line = Line(lambda number, payload: arrived.append(number), json=False)
    line.play(Faults(delay_s=0.05))
    line.take(0, b"")
    line.clear()
    await asyncio.sleep(0.1)
    assert arrived == []
