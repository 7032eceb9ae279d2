"""Whatever a publisher replays, it is asked in measure, and nothing false is held."""

from collections.abc import Sequence

from kvindex.mending import TRIES
from kvindex.pace import AHEAD_S, PART_S, WHOLE_S
from tests.kvindex.engine import payload, removed, stored
from tests.kvindex.recovering import Recovering

ENOUGH = AHEAD_S / WHOLE_S + 1
"""Replays of all batches that may be asked for with no time between."""


def answer(stream: Recovering, batches: Sequence[tuple[int, bytes]]) -> int:
    """Replay these whenever it is wanted; how often that is, 50 times at most."""
    asked = 0
    while (start := stream.feed.replay_from) is not None and asked < 50:
        asked += 1
        stream.feed.replaying(start)
        for sequence, batch in batches:
            if sequence >= start:
                stream.feed.replayed(sequence, batch)
        stream.feed.replay_ended(True)
    return asked


def kept_over_a_restart(stream: Recovering) -> list[tuple[int, bytes]]:
    """Batches 0 to 5 of a process that is gone, and then 0 to 9 of the one there is."""
    old = [(number, payload(stored(number))) for number in range(6)]
    new = [(number, payload(stored(100 + number))) for number in range(10)]
    stream.kept, stream.next = dict(new), 10
    return old + new


def test_a_late_join_at_a_buffer_that_was_kept_over_a_restart() -> None:
    """None of it is known to be so: nothing is held, and half a minute nothing asked.

    Neither is it taken for a restart, each of which would empty the history.
    """
    stream = Recovering()
    feed = stream.feed
    batches = kept_over_a_restart(stream)
    feed.connected()
    assert answer(stream, batches) == 1
    assert (stream.owner.blocks, stream.held(0), stream.held(100)) == (0, 0, 0)
    assert (feed.state, feed.complete, feed.counters.restarts) == ("live", False, 0)
    assert "two batches of one number" in feed.reason
    stream.publish(stored(110))
    assert (feed.replay_from, stream.held(110)) == (None, 1)
    assert feed.last_sequence == 10
    stream.publish(removed(110))
    assert stream.owner.blocks == 0


def test_the_buffer_is_asked_for_again_later_and_ever_more_seldom() -> None:
    """Live batches count meanwhile; after some tries in an hour it is left alone."""
    stream = Recovering()
    batches = kept_over_a_restart(stream)
    stream.publish(stored(110))
    asked = answer(stream, batches)
    held = stream.held(0), stream.held(100), stream.held(110)
    assert (asked, held) == (1, (0, 0, 1))
    for minute in range(1, 120):
        stream.publish(stored(110 + minute))
        for _ in range(60):
            asked += answer(stream, batches)
            stream.clock.now += 1
            stream.feed.tick()
        held = stream.held(0), stream.held(100), stream.held(110 + minute)
        assert held[:2] == (0, 0)
        assert held[2] or stream.feed.last_sequence is None  # just built anew
    assert TRIES < asked <= 2 * TRIES + 1
    assert held[2]


def test_a_buffer_that_is_right_again() -> None:
    """The old batches are pushed out of it: all is known."""
    stream = Recovering()
    feed = stream.feed
    batches = kept_over_a_restart(stream)
    stream.publish(stored(110))
    answer(stream, batches)
    stream.clock.now += feed.settings.replay_pause_s
    feed.tick()
    assert stream.replay() == 1
    assert (feed.state, feed.complete, feed.counters.restarts) == ("live", True, 0)
    assert (stream.owner.blocks, stream.held(100), stream.held(0)) == (11, 1, 0)


def test_a_gap_before_such_a_buffer() -> None:
    """The last batch seen comes with other bytes: a restart; then none of it counts."""
    stream = Recovering()
    feed = stream.feed
    stream.publish(stored(1))
    stream.publish(stored(2), lose=True)
    batches = [(0, stream.kept[0]), (0, payload(stored(7))), (1, stream.kept[1])]
    stream.publish(stored(3))
    assert answer(stream, batches) == 2
    assert (feed.counters.restarts, feed.complete, feed.last_sequence) == (1, False, 2)
    assert (stream.owner.blocks, stream.held(3)) == (1, 1)


def test_restarts_without_end() -> None:
    """Each asks for all batches, but not more often than is good for anybody."""
    stream = Recovering()
    feed = stream.feed
    asked = 0
    for number in range(200):
        batch = payload(stored(number))
        feed.receive(7, batch)
        asked += answer(stream, [(7, batch)])
    assert 1 < asked <= ENOUGH
    assert (stream.owner.blocks, stream.held(199)) == (1, 1)
    stream.clock.now += 2 * WHOLE_S
    feed.receive(7, payload(stored(200)))
    assert feed.replay_from == 0


def test_gaps_without_end() -> None:
    """Who counts by twos is asked after some batches, then about once a second."""
    stream = Recovering()
    batches = [(number, payload(stored(number))) for number in range(0, 440, 2)]
    asked = []
    for so_far, batch in enumerate(batches, start=1):
        stream.clock.now += PART_S / 2 if so_far > 200 else 0
        stream.feed.receive(*batch)
        asked.append(answer(stream, batches[:so_far]))
    assert 10 < sum(asked[:200]) <= AHEAD_S / PART_S + 1
    assert 0 < sum(asked[200:]) <= 20 / 2 + 1
    assert stream.held(438) == 1
