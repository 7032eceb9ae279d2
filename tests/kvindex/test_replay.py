"""Recovery by replay: what is asked, what waits, and what its outcome means."""

import pytest

from tests.kvindex.engine import payload, removed, stored
from tests.kvindex.recovering import Recovering


def test_a_gap_is_mended_by_one_replay() -> None:
    """Sequence 1, 2, 5: asked from the last seen batch inclusive, live and complete."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.publish(stored(2, parent=1))
    stream.publish(stored(3, parent=2), lose=True)
    stream.publish(removed(3), stored(4, parent=2), lose=True)
    stream.publish(stored(5, parent=4))
    feed = stream.feed
    assert (feed.state, feed.replay_from, feed.last_sequence) == ("replaying", 1, 1)
    assert (feed.counters.gaps, stream.held(1, 2, 4, 5)) == (0, 2)
    assert stream.replay() == 1
    assert (feed.state, feed.complete, feed.reason) == ("live", True, "")
    assert (stream.held(1, 2, 4, 5), stream.held(1, 2, 3)) == (4, 2)
    assert (feed.counters.replayed, feed.counters.restarts) == (3, 0)
    assert (stream.owner.suspect_blocks, feed.last_sequence) == (0, 4)


def test_recovered_batches_ahead_of_the_live_socket_cause_one_recovery() -> None:
    """The replay runs to 140 while the live socket is at 101: those 40 are known."""
    stream = Recovering()
    for block in range(99):
        stream.publish(stored(block))
    stream.publish(stored(99), lose=True)
    stream.publish(stored(100))
    for block in range(101, 141):
        stream.kept[stream.next] = payload(stored(block))
        stream.next += 1
    assert stream.replay() == 1
    for sequence in range(101, 141):
        stream.feed.receive(sequence, stream.kept[sequence])
    stream.publish(stored(141))
    feed = stream.feed
    assert (feed.state, feed.complete, feed.counters.gaps) == ("live", True, 0)
    assert (feed.counters.replayed, feed.counters.restarts) == (42, 0)
    assert (stream.owner.blocks, feed.replay_from) == (142, None)


def test_a_late_join_learns_what_was_stored_before() -> None:
    """A fresh gateway asks from 0 as soon as it is connected."""
    stream = Recovering()
    for block in range(1, 50):
        stream.publish(stored(block, parent=block - 1 or None), lose=True)
    stream.feed.connected()
    assert (stream.feed.state, stream.feed.replay_from) == ("replaying", 0)
    assert stream.replay() == 1
    assert (stream.feed.state, stream.feed.complete) == ("live", True)
    stream.publish(stored(50, parent=49))
    assert stream.held(*range(1, 51)) == 50


def test_a_late_join_without_a_connection_event_asks_at_its_first_batch() -> None:
    """What the worker's buffer no longer has is not known: live, not complete."""
    stream = Recovering()
    for block in range(1, 9):
        stream.publish(stored(block, parent=block - 1 or None), lose=True)
    del stream.kept[0]
    stream.publish(stored(9, parent=8))
    assert stream.feed.replay_from == 0
    assert stream.replay() == 1
    feed = stream.feed
    assert (feed.state, feed.complete, feed.last_sequence) == ("live", False, 8)
    assert (feed.orphans, stream.held(1)) == (8, 0)


def test_nothing_published_yet() -> None:
    """The replay of a new worker is empty."""
    stream = Recovering()
    stream.feed.connected()
    assert stream.replay() == 1
    assert (stream.feed.state, stream.feed.reason) == ("live", "no batch yet")
    stream.publish(stored(1))
    assert stream.feed.complete


@pytest.mark.parametrize("after", [1, 3, 4, 9])
def test_a_restart_whose_first_live_batch_is_higher(after: int) -> None:
    """Its numbers went past ours while nobody listened: the replay shows it."""
    stream = Recovering()
    for block in range(4):
        stream.publish(stored(block))
    stream.restart()
    for block in range(50, 50 + after):
        stream.publish(stored(block), lose=True)
    stream.feed.disconnected("connection lost")
    stream.feed.connected()
    assert stream.feed.replay_from == 3
    assert stream.replay() == 2
    feed = stream.feed
    assert (feed.state, feed.complete, feed.counters.restarts) == ("live", True, 1)
    assert (stream.owner.blocks, stream.held(0), stream.held(50)) == (after, 0, 1)
    assert stream.emptied == 1


def test_a_lost_connection_that_missed_nothing() -> None:
    """The replay returns just the last batch: live at once."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.feed.disconnected("connection lost")
    assert stream.owner.suspect_blocks == 1
    stream.feed.connected()
    assert stream.replay() == 1
    assert (stream.feed.state, stream.feed.complete) == ("live", True)
    assert stream.owner.suspect_blocks == 0


def test_a_replay_that_does_not_end_is_no_restart() -> None:
    """What is held stays, in doubt; the live batch is a gap; no other is asked soon."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.publish(stored(2), lose=True)
    stream.publish(stored(3))
    assert stream.replay(complete=False, limit=0) == 1
    feed = stream.feed
    assert (feed.state, feed.complete, feed.counters.restarts) == ("degraded", False, 0)
    assert (stream.held(1), stream.held(3), feed.counters.missed_batches) == (1, 1, 1)
    assert stream.owner.suspect_blocks == 1
    stream.publish(stored(4), lose=True)
    stream.publish(stored(5))
    assert feed.replay_from is None
    stream.clock.now += feed.settings.replay_pause_s
    stream.publish(stored(6), lose=True)
    stream.publish(stored(7))
    assert feed.replay_from == 4


def test_a_part_of_a_replay_is_used() -> None:
    """It was cut off behind batch 2: only what follows is missed."""
    stream = Recovering()
    stream.publish(stored(1))
    for block in (2, 3, 4):
        stream.publish(stored(block), lose=True)
    stream.publish(stored(5))
    stream.replay(complete=False, limit=3)
    assert stream.held(2) == stream.held(3) == stream.held(5) == 1
    assert stream.feed.counters.missed_batches == 1
    assert stream.owner.suspect_blocks == 3


def unheard(stream: Recovering) -> None:
    """A request has stored a block, and nothing comes for long."""
    stream.clock.now += 1
    stream.feed.request_ended(stores_new_block=True)
    stream.clock.now += stream.feed.settings.silent_after_s
    stream.feed.tick()


def test_a_last_batch_that_was_lost_is_asked_for() -> None:
    """No later one shows the gap; that a request must have stored something does."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.publish(stored(2, parent=1), lose=True)
    unheard(stream)
    feed = stream.feed
    assert (feed.state, feed.replay_from) == ("replaying", 0)
    assert "no event came" in feed.reason
    assert stream.replay() == 1
    feed.tick()
    assert (feed.state, feed.complete, feed.last_sequence) == ("live", True, 1)
    assert stream.held(1, 2) == 2
    stream.publish(stored(3, parent=2))
    assert (stream.held(1, 2, 3), feed.counters.gaps) == (3, 0)


def test_a_replay_without_news_leaves_a_silent_feed() -> None:
    """It is asked for once; then the likely cause is said."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.feed.likely_cause = "events are off"
    unheard(stream)
    assert stream.replay() == 1
    stream.feed.tick()
    assert (stream.feed.state, stream.feed.reason) == ("silent", "events are off")
    assert stream.feed.replay_from is None
    stream.publish(stored(2))
    assert stream.feed.state == "live"


def test_a_replay_that_is_not_answered_leaves_a_silent_feed() -> None:
    """What is behind the silence is told, not what was tried."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.feed.likely_cause = "events are off"
    unheard(stream)
    stream.replay(complete=False, limit=0)
    stream.feed.tick()
    assert (stream.feed.state, stream.feed.reason) == ("silent", "events are off")
    stream.publish(stored(2))
    assert stream.feed.state == "live"


def test_nobody_asks() -> None:
    """A replay that is wanted for too long is given up."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.lose()
    stream.publish(stored(2))
    stream.clock.now += stream.feed.settings.replay_limit_s
    stream.feed.tick()
    assert (stream.feed.state, stream.held(2)) == ("degraded", 1)
