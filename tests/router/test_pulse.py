"""Signs of life: when silence counts, and from when."""

import pytest

from router.answers import Longest
from router.pulse import Pulse
from tests.router.fleet import Clock


def test_silence_counts_from_what_is_owed() -> None:
    """Nobody waits: no silence, however long; then from the first that is owed."""
    clock = Clock()
    pulse = Pulse(clock, Longest())
    clock += 100
    assert pulse.silent_s(0.1) == 0
    pulse.sent("a", 0.1, streams=True)
    clock += 3
    pulse.sent("b", 0.1, streams=True)
    assert pulse.silent_s(0.1) == 3
    pulse.over("a")
    assert pulse.silent_s(0.1) == 3
    pulse.over("b")
    assert pulse.silent_s(0.1) == 0


def test_what_came_later_is_not_what_is_waited_for() -> None:
    """The least that was in flight since the silence began; all anew after it."""
    clock = Clock()
    pulse = Pulse(clock, Longest())
    pulse.sent("a", 0.1, streams=True)
    for prefill_s in (0.2, 0.1, 5.0):
        clock += 1
        pulse.silent_s(prefill_s)
    assert pulse.expected_s == 0.1
    pulse.beats += 1
    pulse.silent_s(5.0)
    assert pulse.expected_s == 5.0


def test_any_piece_of_an_answer_ends_it() -> None:
    """Whosever it is; it counts anew from the look that sees it."""
    clock = Clock()
    pulse = Pulse(clock, Longest())
    pulse.sent("a", 0.1, streams=True)
    clock += 5
    pulse.beats += 1
    assert pulse.silent_s(0.1) == 0
    clock += 2
    assert pulse.silent_s(0.1) == 2


def test_prefills_under_way_excuse_checks_for_as_long_as_they_may_take() -> None:
    """Three times what they should, and anew from each sign of life."""
    clock = Clock()
    pulse = Pulse(clock, Longest())
    assert not pulse.excuses(0.0)
    for sign_of_life in (pulse.checked, lambda: setattr(pulse, "beats", 1)):
        sign_of_life()
        assert pulse.excuses(10.0)
        clock += 29
        assert pulse.excuses(10.0)
        clock += 2
        assert not pulse.excuses(10.0)


def test_what_is_sent_to_a_worker_that_is_silent_prolongs_nothing() -> None:
    """It counts what it was to do when the first check got no answer."""
    clock = Clock()
    pulse = Pulse(clock, Longest())
    for number in range(1, 31):
        assert pulse.excuses(0.2 * number) is (number <= 6)
        clock += 0.1


def test_who_leaves_does_not_end_the_silence() -> None:
    """If it waited in vain for longer than it should have taken; all ends it."""
    clock = Clock()
    pulse = Pulse(clock, Longest())

    def leave(after_s: float) -> None:
        pulse.sent("a", 1.0, streams=True)
        clock.now += after_s
        pulse.gave_up("a")
        pulse.over("a")

    leave(0.5)
    assert pulse.silent_s(0.0) == 0
    leave(2.0)
    clock += 100  # nobody waits: this is no silence
    leave(3.0)
    assert (pulse.silent_s(0.0), pulse.missed) == (5.0, 2)
    assert pulse.late_s(0.0, 0.5) == pytest.approx(0.5)
    pulse.beats += 1
    assert (pulse.silent_s(0.0), pulse.missed) == (0.0, 0)


def test_a_request_is_unheard_until_anything_comes() -> None:
    """Also what comes of others; and of what is over, nothing is said."""
    pulse = Pulse(Clock(), Longest())
    pulse.beats += 1
    pulse.sent("a", 1.0, streams=False)
    assert pulse.unheard("a")
    pulse.beats += 1
    pulse.sent("b", 1.0, streams=False)
    assert (pulse.unheard("a"), pulse.unheard("b")) == (False, True)
    pulse.over("b")
    assert not pulse.unheard("b")
