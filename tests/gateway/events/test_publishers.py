"""Connections of one stream: restarts and reconnects, or two publishers at once."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.events.publishers import Publishers
from gateway.events.turns import ALONE, ENOUGH

PAUSES = st.floats(0, 3_600)
ONE, OTHER, THIRD = 15, 16, 17


class Stream(Publishers):
    """With the numbers that were handed on."""

    def __init__(self) -> None:
        super().__init__()
        self.passed: list[int] = []
        self.now = 0.0

    def bring(self, connection: int, *numbers: int) -> list[int]:
        """Batches, not all of which need be taken yet."""
        given = [
            batch
            for number in numbers
            for batch in self.take(connection, number, b"%d" % connection, self.now)
        ]
        return self._pass([number for number, _ in given])

    def taken(self, connection: int, *numbers: int) -> list[int]:
        """All that has come is taken then; what is handed on."""
        passed = self.bring(connection, *numbers)
        return passed + self.all_taken()

    def all_taken(self) -> list[int]:
        """Nothing waits any more."""
        return self._pass([number for number, _ in self.quiet(self.now)])

    def _pass(self, numbers: list[int]) -> list[int]:
        self.passed += numbers
        return numbers


def test_a_restart() -> None:
    """The old connection is gone: what the new one brings counts at once."""
    stream = Stream()
    assert stream.taken(ONE, 100, 101) == [100, 101]
    assert stream.closed({ONE})
    assert stream.bring(OTHER, 0, 1) == []
    assert stream.waits
    assert stream.all_taken() == [0, 1]
    assert stream.bring(OTHER, 2) == [2]
    assert (stream.shared, stream.anew) == (False, False)


def test_old_batches_that_are_taken_late() -> None:
    """They come first, though a new connection's are there, or even all of several."""
    stream = Stream()
    stream.taken(ONE, 0)
    assert stream.bring(ONE, 1, 2) == [1, 2]
    assert stream.bring(OTHER, 4) == []
    assert stream.bring(ONE, 3) == [3]
    assert stream.bring(THIRD, 0) == []
    assert stream.bring(OTHER, 5) == []
    assert stream.closed({ONE})
    assert not stream.closed({OTHER})
    assert stream.all_taken() == [4, 5, 0]
    assert (stream.shared, stream.anew) == (False, False)
    assert stream.taken(THIRD, 1) == [1]


def test_a_connection_made_anew() -> None:
    """The old one may seem open for a while: numbers that go on are the same one's."""
    stream = Stream()
    stream.taken(ONE, 100, 101)
    assert stream.taken(OTHER, 102, 104) == [102, 104]
    assert not stream.closed({ONE})
    assert stream.taken(OTHER, 105) == [105]
    assert not stream.shared


def test_a_restart_before_the_old_connection_is_seen_to_be_gone() -> None:
    """Nothing counts until it is; then the new process does, from the start."""
    stream = Stream()
    stream.taken(ONE, 100)
    assert stream.taken(OTHER, 0, 1) == []
    assert stream.shared
    assert not stream.closed({ONE})  # the other one is there
    assert (stream.shared, stream.anew) == (False, True)
    assert stream.taken(OTHER, 2) == [2]


@given(
    st.integers(0, 12),
    st.integers(0, 12),
    st.lists(st.tuples(st.integers(1, 3 * ENOUGH), PAUSES), min_size=3, max_size=12),
    st.integers(1, 9),
)
def test_two_at_once(
    first: int, second: int, bursts: list[tuple[int, float]], each: int
) -> None:
    """However slowly, however many by turns: told, and never a step back."""
    stream, numbers, count = Stream(), {ONE: first, OTHER: second}, 0
    for turn, (burst, pause) in enumerate(bursts):
        connection = (ONE, OTHER)[turn % 2]
        for _ in range(burst):
            stream.bring(connection, numbers[connection])
            numbers[connection] += 1
            count += 1
            stream.now += pause
            stream.passed += [number for number, _ in stream.settle(stream.now)]
            if count % each == 0:
                stream.all_taken()
        stream.all_taken()
    assert stream.shared
    assert stream.passed == sorted(stream.passed)
    assert not stream.anew


def test_the_one_that_was_followed_is_left() -> None:
    """By the other's end, or as that says nothing any more: it goes on."""
    stream = Stream()
    stream.taken(ONE, 100)
    stream.taken(OTHER, 7)
    assert not stream.closed({OTHER})
    assert (stream.shared, stream.anew) == (False, False)
    stream.taken(OTHER, 8)
    assert stream.taken(ONE, *range(103, 103 + ALONE)) == []
    assert not stream.shared
    assert stream.taken(THIRD, 0) == []  # no number of its own was handed on yet
    assert stream.shared
    assert stream.taken(ONE, *range(200, 200 + ALONE)) == []
    assert stream.taken(ONE, 300) == [300]
    stream.taken(OTHER, 9)
    assert stream.shared
    assert not stream.anew


def test_the_other_is_left() -> None:
    """What is held is not its own; nor is it where the newer one has gone."""
    stream = Stream()
    stream.taken(ONE, 100)
    assert stream.taken(OTHER, *range(7, 7 + 2 * ALONE)) == []
    stream.closed({ONE})
    assert stream.anew
    stream = Stream()
    stream.taken(ONE, 5)
    assert stream.taken(OTHER, 6) == [6]
    assert stream.taken(ONE, 6) == []
    stream.closed({ONE})
    assert stream.anew
    assert stream.taken(OTHER, 7) == [7]


def test_a_third_that_is_open_and_quiet() -> None:
    """Of those that are left one may go on, where the followed one is gone."""
    stream = Stream()
    stream.taken(ONE, 100)
    stream.taken(OTHER, 7)
    stream.taken(THIRD, 3)
    stream.closed({ONE})
    assert stream.shared
    assert stream.taken(OTHER, *range(8, 8 + ALONE)) == []
    assert (stream.shared, stream.anew) == (False, True)
    assert stream.taken(OTHER, 90) == [90]


def test_all_are_gone() -> None:
    """Whoever comes is judged by its numbers, unless what is held is of several."""
    stream = Stream()
    stream.taken(ONE, 100)
    stream.taken(OTHER, 7)
    stream.taken(THIRD, 8)
    for connection, shared in ((ONE, True), (OTHER, False), (THIRD, False)):
        stream.closed({connection})
        assert stream.shared == shared
    assert stream.taken(THIRD + 1, 101) == [101]
    assert not stream.closed({ONE})


def test_one_that_came_and_went() -> None:
    """All before it was looked at: its batches are nobody's."""
    stream = Stream()
    stream.taken(ONE, 100)
    stream.bring(OTHER, 3, 4)
    assert not stream.closed({OTHER})
    assert stream.all_taken() == []
    assert not stream.shared
    assert stream.taken(ONE, 101) == [101]


def test_another_publisher_that_is_known_to_be_one() -> None:
    """Its numbers may be higher by now, and it is quiet at times: another still."""
    stream = Stream()
    stream.taken(ONE, 100)
    stream.taken(OTHER, *range(7, 50))
    stream.taken(ONE, *range(101, 101 + ALONE))
    assert not stream.shared
    assert stream.taken(OTHER, 1_000) == []
    assert stream.shared
    stream = Stream()
    stream.taken(OTHER, 5)
    assert stream.taken(ONE, 501) == []  # an older connection never comes after a newer
    assert stream.shared


def test_an_old_connection_has_no_part_once_it_is_lost() -> None:
    """What was handed on of it stays when a stranger goes: it was the same one's."""
    stream = Stream()
    stream.taken(ONE, 5)
    assert stream.taken(OTHER, 6) == [6]
    assert not stream.closed({ONE})
    stream.taken(THIRD, 0)
    assert not stream.closed({THIRD})
    assert (stream.shared, stream.anew) == (False, False)
    assert stream.taken(OTHER, 8) == [8]
