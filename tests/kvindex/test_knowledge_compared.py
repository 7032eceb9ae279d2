"""What requests find cached against what was indexed when they were sent."""

from kvindex.knowledge import Knowledge
from kvindex.owner import Held
from kvindex.standing import FeedState
from kvindex.unknown import IN_A_ROW, LATE_S
from tests.kvindex.engine import CLEARED, own, payload, removed, stored
from tests.kvindex.test_knowledge import World


def holding() -> Knowledge:
    """A worker whose live feed says that it holds blocks 1 to 4."""
    worker = World().worker()
    worker.feed.receive(0, payload())
    worker.feed.receive(1, payload(stored(1, 2, 3, 4)))
    assert worker.feed.state is FeedState.LIVE
    return worker


def held_by(worker: Knowledge, *numbers: int) -> Held:
    """What the index says of these blocks."""
    assert worker.feed.index
    assert worker.feed.owner
    return worker.feed.index.match(own(*numbers), [worker.feed.owner])[0]


def asked(worker: Knowledge, delivered: int) -> None:
    """A request for these blocks is over; it found so many of them."""
    worker.ended(
        own(1, 2, 3, 4), streamed=True, delivered_blocks=delivered, predicted_blocks=4
    )


def test_two_that_find_less_than_half_are_a_contradiction() -> None:
    """The index is stale: events were missed without a gap."""
    worker = holding()
    for expected in (FeedState.LIVE, FeedState.DEGRADED):
        worker.sent(own(1, 2, 3, 4))
        asked(worker, 0)
        assert worker.feed.state is expected


def test_what_was_evicted_while_requests_waited_is_none() -> None:
    """Events said so; under load that happens all the time."""
    worker = holding()
    for number in range(2, 20, 2):
        worker.sent(own(1, 2, 3, 4))
        worker.feed.receive(number, payload(removed(2, 3, 4)))
        asked(worker, 1)
        worker.feed.receive(number + 1, payload(stored(1, 2, 3, 4)))
    assert worker.feed.state is FeedState.LIVE


def found(world: World, worker: Knowledge, *numbers: int) -> None:
    """A request found all of these blocks, each some seconds after the last."""
    world.clock.now += LATE_S
    hashes = own(*numbers)
    worker.sent(hashes)
    worker.ended(
        hashes, streamed=True, delivered_blocks=len(hashes), predicted_blocks=0
    )


def complete(world: World) -> Knowledge:
    """A worker of which all events were seen."""
    worker = world.worker()
    worker.feed.receive(0, payload(stored(1, 2)))
    assert worker.feed.complete
    return worker


def test_a_feed_that_does_not_tell_all_is_not_complete() -> None:
    """The worker finds more than it announced, again and again: history counts, too."""
    world = World()
    worker = complete(world)
    for number in range(1 + IN_A_ROW):
        assert worker.feed.complete
        found(world, worker, 1, 2, 10 + number)
    feed = worker.feed
    assert (feed.state, feed.complete) == (FeedState.LIVE, False)
    assert feed.reason == "the worker finds more than is indexed"
    assert worker.credit(own(1, 2, 10), held_by(worker, 1, 2, 10)).blocks == 3


def test_events_that_come_late_are_no_unknown_blocks() -> None:
    """Each block is announced a while after it was found."""
    world = World()
    worker = complete(world)
    for number in range(1, 8):
        found(world, worker, 1, 2, 10 + number)
        worker.feed.receive(number, payload(stored(10 + number, parent=2)))
    assert worker.feed.complete


def test_a_cache_that_was_emptied_is_no_unknown_block() -> None:
    """What it found before, no event will tell."""
    world = World()
    worker = complete(world)
    for number in range(1, 8):
        found(world, worker, 1, 2, 10 + number)
        worker.feed.receive(number, payload(CLEARED, stored(1, 2)))
    assert worker.feed.complete
