"""A feed's states: gaps, restarts, silence, doubt and its end."""

import logging

import pytest

from kvindex.feed import Feed, FeedSettings
from kvindex.index import Indexes
from kvindex.standing import FeedState
from tests.kvindex.engine import (
    CLEARED,
    MODEL,
    Clock,
    Stream,
    own,
    payload,
    removed,
    stored,
)


def test_a_whole_stream_is_live_and_complete() -> None:
    """From sequence 0 on, nothing missed."""
    stream = Stream()
    feed = stream.feed
    assert (feed.state, feed.reason, feed.complete) == ("live", "no batch yet", False)
    assert (feed.block_size, feed.index, feed.owner, feed.orphans) == (None,) * 3 + (0,)
    stream.send(stored(1, 2))
    stream.send(stored(3, parent=2), removed(9))
    assert (feed.state, feed.reason, feed.complete) == ("live", "", True)
    assert (feed.block_size, feed.last_sequence) == (16, 1)
    assert stream.held(1, 2, 3, 4) == 3
    assert feed.counters.events == {"BlockStored": 2, "BlockRemoved": 1}
    assert (feed.counters.stored, feed.counters.batches) == (3, 2)


def test_without_a_source_it_is_estimated() -> None:
    """History only; nothing makes it silent or degraded."""
    stream = Stream(has_source=False)
    feed = stream.feed
    feed.request_ended(stores_new_block=True)
    stream.clock.now += 100
    feed.tick()
    feed.disconnected("never was")
    feed.restarted("another start time")
    assert (feed.state, feed.reason) == (FeedState.ESTIMATED, "no event source")
    assert stream.emptied == 1


def test_a_late_join_is_live_but_incomplete() -> None:
    """What was stored before is unknown, what is known is right."""
    stream = Stream()
    stream.lose(7)
    stream.send(stored(1))
    assert (stream.feed.state, stream.feed.complete) == ("live", False)
    assert stream.feed.reason == "joined after the first batch"
    assert stream.held(1) == 1
    assert stream.feed.counters.gaps == 0


def test_a_gap_puts_what_is_held_in_doubt() -> None:
    """Suspects until stored again; new blocks count in full."""
    stream = Stream()
    stream.send(stored(1, 2, 3))
    stream.lose(2)
    stream.send(stored(4, parent=3))
    feed = stream.feed
    assert (feed.state, feed.reason, feed.complete) == (
        "degraded",
        "missed batches",
        False,
    )
    assert (feed.counters.gaps, feed.counters.missed_batches) == (1, 2)
    held = stream.index.match(own(1, 2, 3, 4), [stream.owner])[0]
    assert (held.blocks, held.suspects) == (4, (0, 1, 2))
    stream.send(stored(1, 2))
    feed.tick()
    assert feed.state == "degraded"
    stream.send(stored(3, parent=2))
    feed.tick()
    assert (feed.state, feed.complete) == ("live", False)
    assert stream.held(1, 2, 3, 4) == 4
    stream.send(removed(4), removed(3))
    assert stream.held(1, 2, 3, 4) == 2


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
    assert stream.owner.blocks > 2
    for _ in range(3):
        stream.feed.tick()
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


def test_a_lower_sequence_is_a_restart() -> None:
    """No replay socket needed: the old blocks vanish."""
    stream = Stream()
    for block in range(501):
        stream.send(stored(block))
    stream.next = 0
    stream.send(stored(9000))
    assert stream.owner.blocks == 1
    assert stream.held(9000) == 1
    feed = stream.feed
    assert (feed.state, feed.complete, feed.counters.restarts) == ("live", True, 1)
    assert (stream.emptied, feed.last_sequence) == (1, 0)


def test_a_restart_seen_late_is_incomplete() -> None:
    """Its first batches were missed."""
    stream = Stream()
    for block in range(10):
        stream.send(stored(block))
    stream.next = 3
    stream.send(stored(50))
    assert (stream.owner.blocks, stream.feed.complete) == (1, False)


def test_the_same_sequence_again() -> None:
    """The same bytes are a duplicate, other bytes a restart."""
    stream = Stream()
    stream.send(stored(1))
    stream.next -= 1
    stream.send(stored(1))
    assert stream.feed.counters.duplicates == 1
    stream.send(removed(1))
    assert stream.owner.blocks == 0
    stream.send(stored(2))
    stream.next -= 1
    stream.send(stored(3))
    assert stream.feed.counters.restarts == 1
    assert (stream.held(2), stream.held(3)) == (0, 1)


def test_another_start_time_is_a_restart() -> None:
    """As the monitor tells it; the next batch is the first."""
    stream = Stream()
    stream.send(stored(1))
    stream.feed.restarted("process start time changed")
    assert stream.owner.blocks == 0
    assert (stream.feed.state, stream.feed.complete) == ("live", False)
    assert (stream.feed.last_sequence, stream.emptied) == (None, 1)
    stream.next = 0
    stream.send(stored(2))
    assert stream.feed.complete
    assert stream.feed.counters.gaps == 0


def test_a_clearing_ends_every_doubt() -> None:
    """The cache is empty: nothing is stale, and nothing is missing."""
    stream = Stream()
    stream.send(stored(1))
    stream.lose()
    stream.send(stored(5, parent=4))
    assert stream.feed.orphans == 1
    stream.send(stored(2, parent=1), CLEARED, stored(3))
    feed = stream.feed
    assert (feed.state, feed.complete, feed.orphans) == ("live", True, 0)
    assert (stream.held(1), stream.held(3), stream.owner.blocks) == (0, 1, 1)
    assert (feed.counters.cleared, stream.emptied) == (1, 1)


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


def test_an_undecodable_batch_may_have_held_anything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Counted, logged once, the feed marked; it goes on."""
    stream = Stream()
    stream.send(stored(1))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            stream.feed.receive(stream.next, b"\xc1")
            stream.next += 1
    assert stream.feed.counters.undecodable == {"batch": 3}
    assert sum("undecodable: batch" in line for line in caplog.messages) == 1
    assert (stream.feed.state, stream.feed.complete) == ("degraded", False)
    stream.send(stored(2, parent=1))
    assert stream.held(1, 2) == 2


@pytest.mark.parametrize(
    ("event", "reason", "state"),
    [
        (b"\x81\xa4type\xabBlockStored", "BlockStored.block_hashes", "live"),
        (b"\x81\xa4type\xa3New", "unknown_type", "live"),
        (b"\x81\xa4type\xacBlockRemoved", "BlockRemoved.block_hashes", "degraded"),
        (b"\xc0", "not_an_event", "degraded"),
    ],
)
def test_an_undecodable_event_marks_the_feed(
    event: bytes, reason: str, state: str
) -> None:
    """A lost store hides hits; a lost removal leaves stale blocks."""
    stream = Stream()
    stream.send(stored(1))
    stream.feed.receive(1, b"\x93\xcb" + bytes(8) + b"\x91" + event + b"\x00")
    assert stream.feed.counters.undecodable == {reason: 1}
    assert (stream.feed.state, stream.feed.complete) == (state, False)
    assert stream.feed.reason == "undecodable events"
    assert stream.owner.suspect_blocks == (1 if state == "degraded" else 0)


def test_holes_make_a_feed_doubt() -> None:
    """A sampled match that finds one."""
    stream = Stream()
    stream.send(stored(1, 2, 3))
    stream.send(removed(1))
    assert stream.held(1, 2, 3) == 3
    stream.feed.tick()
    stream.index._until_sample = 1
    assert stream.held(1, 2, 3) == 0
    stream.feed.tick()
    assert stream.feed.state == "degraded"
    assert stream.feed.reason == "holes in the held prefixes"


def test_changes_are_told_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """One line per change of state, one call per change of anything."""
    with caplog.at_level(logging.INFO):
        stream = Stream()
        stream.send(stored(1))
        first = stream.changes
        assert first > 0
        for _ in range(5):
            stream.send(stored(2))
            stream.feed.tick()
        assert stream.changes == first
        for _ in range(3):
            stream.lose()
            stream.send(stored(3))
    assert [line for line in caplog.messages if "degraded" in line] == [
        "KV events of ('http://w1', 0): degraded (missed batches)"
    ]


def test_an_estimated_feed_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """One info line at the start."""
    with caplog.at_level(logging.INFO):
        Stream(has_source=False)
    assert caplog.messages == [
        "KV events of ('http://w1', 0): estimated (no event source)"
    ]


def test_retiring_empties_the_index() -> None:
    """A worker that left is not matched, and its late events change nothing."""
    stream = Stream()
    stream.feed.retire()
    stream.send(stored(1, 2))
    stream.feed.retire()
    stream.send(stored(3))
    assert stream.held(1, 2) == 0
    while stream.indexes.sweep(100):
        pass
    assert stream.indexes.memory.used_bytes == 0


def test_callbacks_are_optional() -> None:
    """A feed alone works."""
    feed = Feed(
        model=MODEL, indexes=Indexes(limit_bytes=1 << 20), key="w", clock=Clock()
    )
    feed.receive(0, payload(stored(1), CLEARED))
    feed.tick()
    assert feed.complete


def test_removals_before_any_block_size_is_known() -> None:
    """There is nothing to remove."""
    stream = Stream()
    stream.send(removed(1), CLEARED)
    stream.feed.tick()
    assert (stream.feed.block_size, stream.feed.complete) == (None, True)


def test_messages_without_frames_are_counted() -> None:
    """What is no message of the stream may have been a batch."""
    stream = Stream()
    stream.send(stored(1))
    stream.feed.unframed("2 frames")
    assert stream.feed.counters.undecodable == {"frames": 1}
    assert stream.feed.state == "degraded"


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
