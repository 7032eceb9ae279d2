"""A feed that lacks batches because a replay failed is whole again by a later one."""

import pytest

from kvindex.feed import FeedSettings
from kvindex.mending import TRIES, Mending
from kvindex.standing import FeedState
from tests.kvindex.engine import Clock, removed, stored
from tests.kvindex.recovering import Recovering

PAUSE_S = FeedSettings().replay_pause_s


def late() -> Recovering:
    """Joined after three batches, whose replay did not end; a fourth came."""
    stream = Recovering()
    stream.publish(stored(1), lose=True)
    stream.publish(stored(2, parent=1), lose=True)
    stream.publish(removed(2), stored(3, parent=1), lose=True)
    stream.publish(stored(4, parent=3))
    assert stream.feed.replay_from == 0
    stream.feed.replaying(0)
    stream.feed.replay_ended(False)
    assert (stream.feed.state, stream.feed.complete) == ("live", False)
    assert stream.held(1, 3, 4) == 0
    return stream


def after(stream: Recovering, seconds: float) -> None:
    """Time passes."""
    stream.clock.now += seconds
    stream.feed.tick()


def test_a_late_join_whose_replay_failed() -> None:
    """Half a minute later all is asked for, and known; live batches wait meanwhile."""
    stream = late()
    feed = stream.feed
    after(stream, PAUSE_S - 1)
    assert feed.replay_from is None
    after(stream, 1)
    assert feed.state is FeedState.REPLAYING
    assert feed.replay_from == 0
    assert feed.reason == "asking for all batches anew"
    stream.publish(stored(5, parent=4))
    assert feed.last_sequence == 3
    assert stream.replay() == 1
    assert (feed.state, feed.reason, feed.complete) == ("live", "", True)
    assert (stream.held(1, 3, 4, 5), stream.held(1, 2)) == (4, 1)
    assert (feed.counters.restarts, stream.emptied) == (0, 0)
    assert (stream.owner.blocks, stream.owner.suspect_blocks) == (4, 0)
    stream.publish(removed(5))
    after(stream, 10 * PAUSE_S)
    assert feed.replay_from is None
    assert stream.held(1, 3, 4, 5) == 3


def test_a_gap_whose_replay_failed() -> None:
    """One copy of a block is one after it, too: one removal and it is gone."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.publish(stored(2, parent=1), lose=True)
    stream.publish(stored(3, parent=2))
    stream.feed.replaying(0)
    stream.feed.replay_ended(False)
    assert (stream.feed.state, stream.feed.complete) == ("degraded", False)
    after(stream, PAUSE_S)
    assert stream.replay() == 1
    feed = stream.feed
    assert (feed.state, feed.reason, feed.complete) == ("live", "", True)
    assert (stream.held(1, 2, 3), stream.owner.suspect_blocks) == (3, 0)
    stream.publish(removed(3, 2, 1))
    assert stream.owner.blocks == 0


def test_what_is_missed_while_none_is_wanted() -> None:
    """A gap in the pause after a failed replay is mended with the other."""
    stream = late()
    stream.publish(stored(5, parent=4), lose=True)
    stream.publish(stored(6, parent=5))
    assert (stream.feed.counters.gaps, stream.feed.replay_from) == (1, None)
    after(stream, PAUSE_S)
    assert stream.replay() == 1
    assert (stream.feed.state, stream.feed.complete) == ("live", True)
    assert stream.held(1, 3, 4, 5, 6) == 5


def test_a_publisher_without_its_first_batch() -> None:
    """Nothing is built anew of a part, and it is not asked again."""
    stream = late()
    del stream.kept[0]
    stream.publish(stored(7))
    after(stream, PAUSE_S)
    assert stream.replay() == 1
    feed = stream.feed
    assert (feed.state, feed.complete) == ("live", False)
    assert feed.reason == "not all blocks are indexed"
    assert (stream.held(7), stream.held(1), stream.owner.suspect_blocks) == (1, 0, 0)
    for _ in range(100):
        after(stream, PAUSE_S)
        assert feed.replay_from is None


def test_tries_that_fail_change_nothing_and_end() -> None:
    """Each comes after twice the time; what is held stays without doubt."""
    stream = late()
    stream.publish(stored(7))
    waits = []
    for _ in range(TRIES):
        begun = stream.clock.now
        while stream.feed.replay_from is None:
            after(stream, 1)
        waits.append(stream.clock.now - begun)
        stream.feed.replaying(0)
        stream.feed.replay_ended(False)
        assert (stream.feed.state, stream.feed.complete) == ("live", False)
        assert (stream.held(7), stream.owner.suspect_blocks) == (1, 0)
    assert waits == [PAUSE_S * 2**n for n in range(TRIES)]
    after(stream, 1_000 * PAUSE_S)
    assert stream.feed.replay_from is None


def test_a_try_that_breaks_off() -> None:
    """What it brought is all there is; the next batch shows that some are missing."""
    stream = late()
    after(stream, PAUSE_S)
    stream.replay(complete=False, limit=2)
    feed = stream.feed
    assert (feed.state, feed.reason) == ("degraded", "the replay did not end")
    assert (stream.held(1, 2), feed.last_sequence) == (2, 1)
    stream.publish(stored(9))
    assert (feed.state, feed.complete, feed.counters.gaps) == ("degraded", False, 1)
    after(stream, 2 * PAUSE_S)
    assert stream.replay() == 1
    assert (feed.state, feed.complete) == ("live", True)
    assert (stream.held(1, 3, 4), stream.held(1, 2), stream.held(9)) == (3, 1, 1)


def test_an_idle_worker_whose_replay_failed() -> None:
    """No batch comes that would end the doubt; the later replay does."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.publish(stored(2, parent=1))
    stream.feed.disconnected("connection lost")
    stream.publish(stored(3, parent=2), lose=True)
    stream.feed.connected()
    stream.feed.replaying(1)
    stream.feed.replay_ended(False)
    assert stream.feed.reason == "the replay did not end"
    after(stream, PAUSE_S)
    assert stream.replay() == 1
    assert (stream.feed.state, stream.feed.complete) == ("live", True)
    assert stream.held(1, 2, 3) == 3


@pytest.mark.parametrize("way", ["lost", "no replay"])
def test_when_nobody_can_be_asked(way: str) -> None:
    """A connection that is lost, a publisher without replay: nothing is wanted."""
    stream = late()
    if way == "lost":
        stream.feed.disconnected("connection lost")
    else:
        stream.feed.can_replay = False
    after(stream, 10 * PAUSE_S)
    assert stream.feed.replay_from is None


def test_a_restart_begins_anew() -> None:
    """What an earlier process lacked does not matter."""
    clock = Clock()
    mending = Mending(clock, 30.0)
    mending.missed()
    mending.over()
    clock.now += 1_000
    assert not mending.due
    stream = late()
    stream.restart()
    stream.publish(stored(1))
    assert (stream.feed.counters.restarts, stream.feed.complete) == (1, True)
    after(stream, 10 * PAUSE_S)
    assert stream.feed.replay_from is None


def test_a_restart_is_one_whoever_tells_of_it_first() -> None:
    """A replay without the last batch shows it; the new first batch does not again."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.publish(stored(2, parent=1))
    stream.feed.disconnected("connection lost")
    stream.restart()
    stream.feed.connected()
    assert stream.replay() == 2
    assert (stream.owner.blocks, stream.feed.counters.restarts) == (0, 1)
    stream.publish(stored(3))
    assert (stream.feed.counters.restarts, stream.emptied) == (1, 1)
    assert (stream.feed.complete, stream.held(3)) == (True, 1)
