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
