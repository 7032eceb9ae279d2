"""When what a feed's index holds is in doubt, and how that ends."""

from kvindex.doubt import WALKED
from kvindex.feed import FeedSettings
from kvindex.prefix_index import SAMPLE
from kvindex.standing import FeedState
from tests.kvindex.engine import (
    CLEARED,
    Stream,
    own,
    removed,
    stored,
)


def test_a_second_gap_doubts_what_was_fresh() -> None:
    """Another fresh bit."""
    stream = Stream()
    stream.send(stored(1, 2))
    stream.lose()
    stream.send(stored(1))
    stream.lose()
    stream.send(stored(9))
    held = stream.index.match(own(1, 2), [stream.owner])[0]
    assert held.suspects == (0, 1)
    assert stream.feed.counters.gaps == 2


def test_suspects_are_dropped_when_their_time_is_over() -> None:
    """After the TTL they stop to match at once, and leave in slices."""
    stream = Stream(settings=FeedSettings(suspect_ttl_s=60))
    blocks = list(range(1, 10_001))
    stream.send(stored(*blocks))
    stream.lose()
    stream.send(stored(0), stored(1))
    stream.clock.now += 59
    stream.feed.tick()
    assert stream.held(*blocks) == 10_000
    stream.clock.now += 1
    stream.feed.tick()
    assert stream.held(*blocks) == 1
    assert stream.feed.state == "degraded"
    before = stream.owner.blocks
    assert before > 2
    while stream.feed.tick():
        assert before - stream.owner.blocks <= WALKED
        before = stream.owner.blocks
    assert (stream.feed.state, stream.feed.complete) == ("live", False)
    assert (stream.owner.blocks, stream.owner.suspect_blocks) == (2, 0)
    stream.send(removed(1), removed(0), removed(5))
    assert stream.owner.blocks == 0


def test_delivered_tokens_confirm_and_contradict() -> None:
    """What the worker found is fresh, the rest is dropped."""
    stream = Stream()
    stream.send(stored(1, 2, 3, 4), stored(7))
    stream.lose()
    stream.send()
    stream.feed.confirmed(own(1, 2, 3, 4), 2)
    held = stream.index.match(own(1, 2, 3, 4), [stream.owner])[0]
    assert (held.blocks, held.suspects) == (2, ())
    stream.feed.tick()
    assert stream.feed.state == "degraded"
    stream.feed.confirmed(own(7), 1)
    stream.feed.tick()
    assert stream.feed.state == "live"
    stream.send(removed(2))
    assert stream.held(1, 2) == 1
    stream.feed.confirmed(own(1), 0)
    assert stream.held(1) == 1


def test_a_lost_connection_that_missed_nothing() -> None:
    """In doubt until the next batch follows on, then as before."""
    stream = Stream()
    stream.send(stored(1))
    stream.feed.disconnected("peer closed")
    stream.feed.disconnected("peer closed")
    assert (stream.feed.state, stream.feed.reason) == ("degraded", "peer closed")
    assert stream.owner.suspect_blocks == 1
    stream.feed.connected()
    stream.feed.tick()
    assert stream.feed.state == "degraded"
    stream.send(stored(2, parent=1))
    assert (stream.feed.state, stream.feed.complete) == ("live", True)
    assert stream.owner.suspect_blocks == 0
    stream.send(removed(2))
    assert stream.held(1, 2) == 1


def test_a_lost_connection_that_missed_batches() -> None:
    """The gap shows when the next batch comes."""
    stream = Stream()
    stream.send(stored(1))
    stream.feed.disconnected("peer closed")
    stream.lose()
    stream.send(stored(2))
    assert (stream.feed.state, stream.feed.reason) == ("degraded", "missed batches")
    held = stream.index.match(own(1), [stream.owner])[0]
    assert held.suspects == (0,)


def test_a_connection_lost_while_degraded_stays_degraded() -> None:
    """What was missed before does not come back."""
    stream = Stream()
    stream.send(stored(1), stored(2))
    stream.lose()
    stream.send(stored(1))
    stream.feed.disconnected("peer closed")
    stream.send(stored(3))
    assert (stream.feed.state, stream.feed.reason) == ("degraded", "missed batches")
    assert stream.owner.suspect_blocks == 2


def test_a_late_joiner_that_lost_its_connection() -> None:
    """It goes back to what it was: live, incomplete."""
    stream = Stream()
    stream.lose()
    stream.send(stored(1))
    stream.feed.disconnected("peer closed")
    stream.send(stored(2))
    assert (stream.feed.state, stream.feed.complete) == ("live", False)
    assert stream.feed.reason == "not all blocks are indexed"


def test_a_connection_lost_before_the_first_batch() -> None:
    """Nothing can be stale; connected is as good as new."""
    stream = Stream(block_size=16)
    stream.feed.disconnected("refused")
    stream.feed.tick()
    assert stream.feed.state == "degraded"
    stream.feed.connected()
    assert (stream.feed.state, stream.feed.reason) == ("live", "no batch yet")
    stream.feed.connected()
    stream.send(stored(1))
    assert stream.feed.complete


def test_suspects_of_a_lost_connection_time_out() -> None:
    """They are dropped; what then follows on is live but no longer complete."""
    stream = Stream(settings=FeedSettings(suspect_ttl_s=60))
    stream.send(stored(1))
    stream.feed.disconnected("peer closed")
    stream.clock.now += 61
    stream.feed.tick()
    stream.feed.tick()
    assert stream.owner.blocks == 0
    assert stream.feed.state == "degraded"
    stream.send(stored(2))
    assert stream.feed.state == "degraded"
    stream.feed.tick()
    assert (stream.feed.state, stream.feed.complete) == ("live", False)


def test_silent_at_the_start() -> None:
    """Requests stored blocks and no event has ever come."""
    stream = Stream()
    feed = stream.feed
    feed.request_ended(stores_new_block=False, sent_at=100.0)
    stream.clock.now += 60
    feed.tick()
    assert feed.state == "live"
    feed.request_ended(stores_new_block=True, sent_at=stream.clock.now - 5)
    stream.clock.now += 9.9
    feed.request_ended(stores_new_block=True, sent_at=stream.clock.now)
    feed.tick()
    assert feed.state == "live"
    stream.clock.now += 0.1
    feed.tick()
    assert (feed.state, feed.since) == (FeedState.SILENT, stream.clock.now)
    stream.send(stored(1))
    assert (feed.state, feed.complete) == ("live", True)


def test_silent_later_and_back() -> None:
    """What is held is in doubt while silent, and right when the next follows on."""
    stream = Stream()
    stream.send(stored(1))
    stream.clock.now += 1
    stream.feed.request_ended(stores_new_block=True)
    stream.clock.now += 10
    stream.feed.tick()
    stream.feed.tick()
    assert stream.feed.state == "silent"
    assert stream.index.match(own(1), [stream.owner])[0].suspects == (0,)
    stream.send(stored(2, parent=1))
    assert (stream.feed.state, stream.feed.complete) == ("live", True)
    assert stream.index.match(own(1, 2), [stream.owner])[0].suspects == ()


def test_silence_that_ends_in_a_gap() -> None:
    """Then batches were missed."""
    stream = Stream()
    stream.send(stored(1))
    stream.clock.now += 1
    stream.feed.request_ended(stores_new_block=True)
    stream.clock.now += 10
    stream.feed.tick()
    stream.lose()
    stream.send(stored(2))
    assert stream.feed.state == "degraded"


def test_events_during_the_request_are_heard() -> None:
    """Engines announce blocks before the request ends."""
    stream = Stream()
    sent_at = stream.clock.now
    stream.clock.now += 1
    stream.send(stored(1))
    stream.clock.now += 1
    stream.feed.request_ended(stores_new_block=True, sent_at=sent_at)
    stream.clock.now += 100
    stream.feed.tick()
    assert stream.feed.state == "live"


def test_a_lost_connection_is_not_silent() -> None:
    """It is known why nothing comes."""
    stream = Stream()
    stream.send(stored(1))
    stream.feed.disconnected("peer closed")
    stream.clock.now += 1
    stream.feed.request_ended(stores_new_block=True)
    stream.clock.now += 11
    stream.feed.tick()
    assert (stream.feed.state, stream.feed.reason) == ("degraded", "peer closed")


def test_holes_make_a_feed_doubt() -> None:
    """A sampled match that finds one."""
    stream = Stream()
    stream.send(stored(1, 2, 3, 4, 5))
    stream.send(removed(2))
    assert stream.held(1, 2, 3, 4, 5) == 5
    stream.feed.tick()
    stream.index._matches = SAMPLE - 1
    assert stream.held(1, 2, 3, 4, 5) == 1
    stream.feed.tick()
    assert stream.feed.state == "degraded"
    assert stream.feed.reason == "holes in the held prefixes"


def test_doubts_before_any_block_is_known() -> None:
    """There is nothing to suspect."""
    stream = Stream()
    stream.send(removed(1))
    stream.lose()
    stream.send(removed(1))
    assert stream.feed.state == "degraded"
    stream.send(CLEARED)
    stream.feed.disconnected("peer closed")
    stream.send(removed(1))
    assert (stream.feed.state, stream.feed.complete) == ("live", True)


def test_a_doubt_before_any_block_ends_with_the_first() -> None:
    """Nothing stale can be left."""
    stream = Stream()
    stream.send()
    stream.lose()
    stream.send()
    stream.feed.tick()
    assert (stream.feed.state, stream.feed.complete) == ("live", False)


def test_gaps_that_recur_do_not_keep_doubtful_blocks() -> None:
    """The time to live counts from the first gap, or they would never be dropped."""
    stream = Stream(settings=FeedSettings(suspect_ttl_s=60))
    stream.send(stored(1))
    for block in range(2, 8):
        stream.lose()
        stream.send(stored(block))
        stream.clock.now += 10
        stream.feed.tick()
    assert (stream.owner.blocks, stream.held(7)) == (1, 1)
    assert stream.feed.state == "live"
    stream.lose()
    stream.send()
    stream.clock.now += 59
    stream.feed.tick()
    assert (stream.feed.state, stream.held(7)) == ("degraded", 1)
