"""A feed's states: gaps, restarts, silence, doubt and its end."""

import logging

import pytest

from kvindex.feed import Feed
from kvindex.index import Indexes
from kvindex.standing import LINES, LINES_S, FeedState
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


def test_nobody_publishes_before_the_first_batch() -> None:
    """Silent with that reason, until somebody is there or a batch comes."""
    stream = Stream()
    feed = stream.feed
    feed.unanswered("nothing publishes there")
    assert (feed.state, feed.reason) == ("silent", "nothing publishes there")
    stream.clock.now += 100
    feed.tick()
    assert (feed.state, feed.reason) == ("silent", "nothing publishes there")
    feed.connected()
    assert (feed.state, feed.reason, feed.reached) == ("live", "no batch yet", True)
    feed.unanswered("nothing publishes there")
    stream.send(stored(1))
    assert (feed.state, feed.reason, feed.complete) == ("live", "", True)
    feed.unanswered("nothing publishes there")  # then it is a lost connection
    assert (feed.state, stream.held(1), stream.owner.suspect_blocks) == ("live", 1, 0)


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


def test_a_feed_that_changes_all_the_time_is_not_logged_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Some lines, one that says no more come, and a minute later more."""
    stream = Stream()
    with caplog.at_level(logging.INFO):
        for _ in range(100):
            stream.lose()
            stream.send(CLEARED)
        assert len(caplog.messages) == LINES + 1
        assert "too often" in caplog.messages[-1]
        stream.clock.now += LINES_S
        stream.lose()
        stream.send()
    assert "degraded (missed batches)" in caplog.messages[-1]
    assert len(caplog.messages) == LINES + 2
