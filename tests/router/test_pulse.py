"""Signs of life: when silence counts, and from when."""

from router.pulse import Pulse
from tests.router.fleet import Clock


def test_silence_counts_from_what_is_owed() -> None:
    """Nobody waits: no silence, however long; then from the first that is owed."""
    clock = Clock()
    pulse = Pulse(clock)
    clock += 100
    assert pulse.silent_s(0.1) == 0
    pulse.owe()
    clock += 3
    pulse.owe()
    assert pulse.silent_s(0.1) == 3
    pulse.settle()
    assert pulse.silent_s(0.1) == 3
    pulse.settle()
    assert pulse.silent_s(0.1) == 0


def test_what_came_later_is_not_what_is_waited_for() -> None:
    """The least that was in flight since the silence began; all anew after it."""
    clock = Clock()
    pulse = Pulse(clock)
    pulse.owe()
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
    pulse = Pulse(clock)
    pulse.owe()
    clock += 5
    pulse.beats += 1
    assert pulse.silent_s(0.1) == 0
    clock += 2
    assert pulse.silent_s(0.1) == 2


def test_a_prefill_that_is_waited_for_is_in_time_for_as_long_as_it_may_take() -> None:
    """Three times what it should, and anew from each sign of life."""
    clock = Clock()
    pulse = Pulse(clock)
    assert not pulse.in_time(0.0)
    pulse.sent("long", 10.0)
    clock += 29
    assert pulse.in_time(0.0)
    clock += 2
    assert not pulse.in_time(0.0)
    assert pulse.in_time(0.5)
    pulse.beats += 1
    assert pulse.in_time(0.0)
    clock += 31
    assert not pulse.in_time(0.0)
    pulse.over("long")
    assert not pulse.in_time(1000.0)


def test_what_is_sent_again_and_again_is_no_prefill() -> None:
    """A worker that hangs is silent since the first of it; a long one may follow."""
    clock = Clock()
    pulse = Pulse(clock)
    for number in range(100):
        pulse.sent(number, 0.2)
        clock += 0.1
    assert not pulse.in_time(0.0)
    pulse.sent("long", 10.0)
    assert pulse.in_time(0.0)
    clock += 21
    assert not pulse.in_time(0.0)


def test_a_request_is_unheard_until_anything_comes() -> None:
    """Also what comes of others; and of what is over, nothing is said."""
    pulse = Pulse(Clock())
    pulse.beats += 1
    pulse.sent("a", 1.0)
    assert pulse.unheard("a")
    pulse.beats += 1
    pulse.sent("b", 1.0)
    assert (pulse.unheard("a"), pulse.unheard("b")) == (False, True)
    pulse.over("b")
    assert not pulse.unheard("b")
