"""Connections of one stream: restarts and reconnects, or two publishers at once."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.events.publishers import Publishers
from gateway.events.turns import ALONE, ENOUGH

PAUSES = st.floats(0, 3_600)
ONE, OTHER, THIRD = 15, 16, 17


def taken(
    publishers: Publishers, connection: int, *numbers: int, now: float = 0.0
) -> list[int]:
    """The numbers that are handed on."""
    given = [
        batch
        for number in numbers
        for batch in publishers.take(connection, number, b"%d" % connection, now)
    ]
    return [number for number, _ in given]


def test_a_restart() -> None:
    """The old connection is gone: what the new one brings counts at once."""
    publishers = Publishers()
    assert taken(publishers, ONE, 100, 101) == [100, 101]
    assert publishers.closed(ONE)
    assert taken(publishers, OTHER, 0, 1) == [0, 1]
    assert (publishers.shared, publishers.anew) == (False, False)
    assert publishers.closed(OTHER)
    assert taken(publishers, ONE, 0) == [0]  # the number of a connection is used again


def test_a_connection_made_anew() -> None:
    """The old one may seem open for a while: numbers that go on are the same one's."""
    publishers = Publishers()
    taken(publishers, ONE, 100, 101)
    assert publishers.is_one_more(OTHER)
    assert taken(publishers, OTHER, 102, 104) == [102, 104]
    assert not publishers.is_one_more(OTHER)
    assert not publishers.closed(ONE)
    assert taken(publishers, OTHER, 105) == [105]
    assert not publishers.shared


def test_a_restart_before_the_old_connection_is_seen_to_be_gone() -> None:
    """Nothing counts until it is; then the new process does, from the start."""
    publishers = Publishers()
    taken(publishers, ONE, 100)
    assert taken(publishers, OTHER, 0, 1) == []
    assert publishers.shared
    assert publishers.closed(ONE)
    assert (publishers.shared, publishers.anew) == (False, True)
    assert taken(publishers, OTHER, 2) == [2]


@given(
    st.integers(0, 12),
    st.integers(0, 12),
    st.lists(st.tuples(st.integers(1, 3 * ENOUGH), PAUSES), min_size=3, max_size=12),
)
def test_two_at_once(first: int, second: int, bursts: list[tuple[int, float]]) -> None:
    """However slowly, however many by turns: told, and never a step back."""
    publishers, numbers, now = Publishers(), {ONE: first, OTHER: second}, 0.0
    passed: list[int] = []
    for turn, (burst, pause) in enumerate(bursts):
        connection = (ONE, OTHER)[turn % 2]
        for _ in range(burst):
            passed += taken(publishers, connection, numbers[connection], now=now)
            numbers[connection] += 1
            now += pause
            passed += [number for number, _ in publishers.settle(now)]
    assert publishers.shared
    assert passed == sorted(passed)
    assert not publishers.anew


def test_the_one_that_was_followed_is_left() -> None:
    """By the other's end, or as that says nothing any more: it goes on."""
    publishers = Publishers()
    taken(publishers, ONE, 100)
    taken(publishers, OTHER, 7)
    assert publishers.closed(OTHER)
    assert (publishers.shared, publishers.anew) == (False, False)
    assert taken(publishers, ONE, 102) == [102]
    taken(publishers, OTHER, 8)
    numbers = range(103, 103 + ALONE)
    assert taken(publishers, ONE, *numbers) == []
    assert taken(publishers, ONE, 103 + ALONE) == [103 + ALONE]
    taken(publishers, OTHER, 9)
    assert publishers.shared


def test_the_other_is_left() -> None:
    """What is held is not its own; nor is it where the newer one has gone."""
    publishers = Publishers()
    taken(publishers, ONE, 100)
    taken(publishers, OTHER, 7)
    numbers = range(8, 8 + 2 * ALONE)
    assert taken(publishers, OTHER, *numbers) == []
    publishers.closed(ONE)
    assert publishers.anew
    publishers = Publishers()
    taken(publishers, ONE, 5)
    assert taken(publishers, OTHER, 6) == [6]
    assert publishers.closed(OTHER)
    assert taken(publishers, ONE, 7) == [7]
    assert publishers.anew


def test_all_are_gone() -> None:
    """Whoever comes is judged by its numbers."""
    publishers = Publishers()
    taken(publishers, ONE, 100)
    taken(publishers, OTHER, 7)
    taken(publishers, THIRD, 8)
    for connection, shared in ((ONE, True), (OTHER, False), (THIRD, False)):
        publishers.closed(connection)
        assert publishers.shared == shared
    assert taken(publishers, THIRD, 101) == [101]
    assert not publishers.closed(ONE)
