"""Steps back in the numbers of a stream: restarts, or two publishers by turns."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.events.turns import ALONE, ENOUGH, WAIT_S, Turns


def taken(
    turns: Turns, *numbers: int, now: float = 0.0, tag: bytes = b"a"
) -> list[int]:
    """The numbers that are handed on."""
    given = [batch for n in numbers for batch in turns.take(n, tag + b"%d" % n, now)]
    return [number for number, _ in given]


@given(st.lists(st.integers(0, 5), min_size=1))
def test_numbers_that_rise_pass(steps: list[int]) -> None:
    """At once, with gaps and repeated batches."""
    numbers = [sum(steps[: i + 1]) for i in range(len(steps))]
    assert taken(Turns(), *numbers) == numbers


def test_a_restart() -> None:
    """After some batches or some time, in order and from the first on."""
    turns = Turns()
    taken(turns, 100, 101)
    assert taken(turns, *range(ENOUGH - 1)) == []
    assert taken(turns, ENOUGH - 1, ENOUGH) == list(range(ENOUGH + 1))
    turns = Turns()
    taken(turns, 100, 101)
    assert taken(turns, 3, 4, now=5.0) == []
    assert list(turns.settle(5.0 + WAIT_S / 2)) == []
    assert [n for n, _ in turns.settle(5.0 + WAIT_S)] == [3, 4]
    assert taken(turns, 5) == [5]


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_two_by_turns(first: int, second: int) -> None:
    """However their numbers lie: shared, and nothing is handed on that goes back."""
    turns, passed = Turns(), list[int]()
    for step in range(20):
        passed += taken(turns, first + step, tag=b"a")
        passed += taken(turns, second + step, tag=b"b")
    assert passed == sorted(passed)
    assert turns.shared


def test_one_that_is_left() -> None:
    """After enough batches in a row the stream is one publisher's again."""
    turns = Turns()
    taken(turns, 100, 7, 101)
    assert turns.shared
    passed = taken(turns, *range(8, 8 + ALONE + 3))
    assert not turns.shared
    assert passed == list(range(8 + ALONE, 8 + ALONE + 3))
