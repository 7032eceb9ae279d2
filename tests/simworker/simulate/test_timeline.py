"""The virtual clock."""

import math

import pytest

from simworker.simulate.timeline import END_S, Timeline, TooLate


def test_things_happen_in_the_order_of_time() -> None:
    """At one time in the order they were planned; the past is now."""
    timeline, seen = Timeline(), list[tuple[float, str]]()

    def later(name: str) -> None:
        seen.append((timeline.clock(), name))

    timeline.at(2.0, lambda: later("c"))
    timeline.at(1.0, lambda: later("a"))
    timeline.at(1.0, lambda: later("b"))
    timeline.at(2.0, lambda: timeline.at(0.0, lambda: later("d")))
    timeline.at(2.0, lambda: timeline.after(0.5, lambda: later("e")))
    timeline.run()
    assert seen == [(1.0, "a"), (1.0, "b"), (2.0, "c"), (2.0, "d"), (2.5, "e")]


def test_it_tells_what_it_has_done_and_when_it_goes_on() -> None:
    """Whoever waits in the meantime need not look every second."""
    timeline, seen = Timeline(), list[tuple[int, float]]()

    def look() -> None:
        seen.append((timeline.happened, timeline.free_s))

    timeline.at(1.0, look)
    timeline.at(4.0, look)
    assert timeline.free_s == 1.0
    timeline.run()
    assert seen == [(1, 3.0), (2, math.inf)]


@pytest.mark.parametrize("when", [math.nextafter(END_S, math.inf), math.inf, math.nan])
def test_there_is_an_end(when: float) -> None:
    """A clock that no longer tells seconds apart would stand still for ever."""
    timeline = Timeline()
    timeline.at(END_S, lambda: None)
    with pytest.raises(TooLate, match="more than"):
        timeline.at(when, lambda: None)
