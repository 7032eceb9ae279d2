"""What prefills take, seen from first tokens."""

import pytest

from router.meter import PrefillMeter
from router.rate import PrefillRate
from tests.router.fleet import Clock


class Told(PrefillRate):
    """A rate that notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.prefills: list[tuple[int, float]] = []

    def learn(self, tokens: int, took_s: float) -> None:
        """Note it."""
        self.prefills.append((tokens, took_s))


def metered() -> tuple[PrefillMeter, Told, Clock]:
    """A meter, what it tells, and its clock."""
    clock, told = Clock(), Told()
    return PrefillMeter(told, clock=clock), told, clock


def test_time_in_the_queue_does_not_count() -> None:
    """Three at once: each took what passed since the one before."""
    meter, told, clock = metered()
    prefills = [meter.begin() for _ in range(3)]
    for prefill, seconds in zip(prefills, (1.0, 2.0, 4.0), strict=True):
        clock += seconds
        prefill.first_token()
    clock += 100
    for prefill, tokens in zip(prefills, (10, 20, 40), strict=True):
        prefill.ended(tokens)
    meter.begin()
    assert told.prefills == [(10, 1.0), (20, 2.0), (40, 4.0)]


def test_idle_time_does_not_count() -> None:
    """A prefill begins when it is sent, if nothing else is in flight."""
    meter, told, clock = metered()
    for _ in range(2):
        clock += 50
        prefill = meter.begin()
        clock += 2
        prefill.first_token()
        prefill.ended(7)
    meter.begin()
    assert told.prefills == [(7, 2.0), (7, 2.0)]


def test_what_was_lost_is_not_known_nor_the_one_behind_it() -> None:
    """Nobody knows how far the worker had come."""
    meter, told, clock = metered()
    lost, behind, later = (meter.begin() for _ in range(3))
    clock += 1
    lost.ended(None)
    for prefill in (behind, later):
        clock += 1
        prefill.first_token()
        prefill.ended(5)
    meter.begin()
    assert told.prefills == [(5, 1.0)]


def test_beside_one_that_is_not_streamed_nothing_is_learnt() -> None:
    """Until its prefill is over, most likely."""
    meter, told, clock = metered()
    meter.unseen(3.0)
    for _ in range(5):
        prefill = meter.begin()
        clock += 1
        prefill.first_token()
        prefill.ended(5)
    meter.begin()
    assert told.prefills == [(5, 1.0)] * 2


def test_first_tokens_that_come_together_are_of_one_step() -> None:
    """Three prefills in one: what it took is for the tokens of all."""
    meter, told, clock = metered()
    prefills = [meter.begin() for _ in range(4)]
    for prefill, seconds in zip(prefills, (1.0, 0.001, 0.001, 2.0), strict=True):
        clock += seconds
        prefill.first_token()
    for prefill, tokens in zip(prefills, (10, 20, 30, 40), strict=True):
        prefill.ended(tokens)
    meter.begin()
    assert told.prefills == [(60, 1.0), (40, pytest.approx(2.002))]


def test_unknown_tokens_teach_nothing() -> None:
    """A request whose prompt nobody has counted."""
    meter, told, _ = metered()
    prefill = meter.begin()
    prefill.first_token()
    prefill.ended(None)
    assert told.prefills == []


def test_each_call_counts_once() -> None:
    """Whatever its order and number."""
    meter, told, clock = metered()
    prefill = meter.begin()
    clock += 1
    for _ in range(3):
        prefill.first_token()
    for _ in range(3):
        prefill.ended(9)
    prefill.first_token()
    behind = meter.begin()
    clock += 4
    behind.first_token()
    behind.ended(1)
    meter.begin()
    assert told.prefills == [(9, 1.0), (1, 4.0)]
