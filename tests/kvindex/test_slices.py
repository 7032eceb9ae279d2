"""Large batches in slices: the same outcome, in the same order, a little at a time."""

import random

import pytest

from kvindex.blocks import pack_ids
from kvindex.events import BlockStored, KVEvent
from kvindex.intake import SLICE
from tests.kvindex.engine import CLEARED, Stream, payload, removed, stored

BLOCKS = range(1, 8 * SLICE + 1)


def sliced(**options: int) -> Stream:
    """A stream that is worked off by the caller."""
    stream = Stream(block_size=16, **options)  # type: ignore[arg-type]
    stream.feed.sliced = True
    return stream


def large(seed: int = 0) -> BlockStored:
    """One event of thousands of blocks."""
    rng = random.Random(seed)
    return BlockStored(
        hashes=tuple(BLOCKS),
        token_ids=pack_ids(rng.randrange(1 << 20) for _ in range(16 * len(BLOCKS))),
        block_size=16,
        medium="GPU",
    )


def finish(stream: Stream, budget: int = SLICE) -> int:
    """Work it all off; in how many steps."""
    steps = 1
    while stream.feed.work(budget):
        steps += 1
    return steps


def test_a_large_batch_is_applied_in_slices() -> None:
    """Nothing before `work`; then no step does much more than its budget."""
    stream = sliced()
    stream.send(large(), removed(BLOCKS[-1]))
    assert stream.owner.blocks == 0
    before, most = 0, 0
    while stream.feed.work(SLICE):
        most = max(most, stream.owner.blocks - before)
        before = stream.owner.blocks
    assert 0 < most <= SLICE
    assert stream.owner.blocks == len(BLOCKS) - 1
    assert stream.feed.complete


def test_slices_end_where_the_whole_does() -> None:
    """Stored, announced again in full, removed: the same blocks and counts."""
    whole, parts = Stream(block_size=16), sliced()
    for events in ((large(),), (large(),), (removed(*BLOCKS[SLICE:]),)):
        whole.send(*events)
        parts.send(*events)
        finish(parts)
    assert parts.owner.blocks == whole.owner.blocks == SLICE
    assert parts.feed.counters == whole.feed.counters


def test_what_was_put_in_is_worked_off_in_order() -> None:
    """Batches, a lost connection, a restart; as if each had been applied at once."""
    stream = sliced()
    stream.send(large())
    stream.feed.disconnected("connection lost")
    stream.feed.connected()
    stream.send(stored(9, parent=None))
    stream.feed.restarted("process start time changed")
    stream.next = 0
    stream.send(stored(5))
    assert stream.feed.state == "live"
    finish(stream)
    assert (stream.owner.blocks, stream.held(5)) == (1, 1)
    assert (stream.feed.state, stream.feed.complete) == ("live", True)
    assert stream.emptied == 1


@pytest.mark.parametrize("events", [(CLEARED,), (removed(1),), (large(), large(1))])
def test_states_between_slices_are_whole(events: tuple[KVEvent, ...]) -> None:
    """A tick and a match in between see a prefix of what is to come."""
    stream = sliced()
    stream.send(large(), *events)
    while stream.feed.work(100):
        stream.feed.tick()
        assert stream.feed.state == "live"
        stream.indexes.sweep(100)
    assert stream.feed.counters.orphans == 0


def test_the_bound_stops_an_event_where_it_is() -> None:
    """What follows the first refused block is refused, too, and is no orphan."""
    stream = sliced(limit_bytes=SLICE * 2 * 230)
    stream.send(large())
    finish(stream)
    counters = stream.feed.counters
    assert counters.orphans == 0
    assert counters.refused == len(BLOCKS) - stream.owner.blocks
    assert stream.index.refused == counters.refused


def test_too_many_waiting_batches_are_applied_at_once() -> None:
    """A caller that never works does not fill the memory."""
    stream = sliced()
    for block in range(3_000):
        stream.send(stored(block))
    assert stream.owner.blocks > 1_900


def test_calls_from_within_wait_their_turn() -> None:
    """`on_change` may put in more: it is worked off afterwards."""
    stream = Stream(block_size=16)
    feed = stream.feed
    done: list[int] = []

    def again(_: object) -> None:
        if feed.state == "degraded" and not done:
            done.append(1)
            feed.receive(9, payload(stored(3)))

    feed._on_change = again
    stream.send(stored(1))
    stream.lose(7)
    stream.send(stored(2))
    assert stream.held(3) == 1
    assert feed.last_sequence == 9
