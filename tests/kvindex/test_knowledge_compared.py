"""What requests find cached against what was indexed when they were sent."""

from kvindex.knowledge import Knowledge
from kvindex.standing import FeedState
from tests.kvindex.engine import own, payload, removed, stored
from tests.kvindex.test_knowledge import World


def holding() -> Knowledge:
    """A worker whose live feed says that it holds blocks 1 to 4."""
    worker = World().worker()
    worker.feed.receive(0, payload())
    worker.feed.receive(1, payload(stored(1, 2, 3, 4)))
    assert worker.feed.state is FeedState.LIVE
    return worker


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
