"""Feed and history, combined."""

import pytest

from kvindex.credit import Credit
from kvindex.feed import FeedSettings
from kvindex.index import Indexes
from kvindex.knowledge import Knowledge, credits
from tests.kvindex.engine import CLEARED, MODEL, Clock, own, payload, removed, stored


class World:
    """A few workers, their feeds' sequences, one clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.indexes = Indexes(limit_bytes=1 << 28)
        self.sequence = 0

    def worker(
        self,
        name: str = "w1",
        *,
        has_source: bool = True,
        block_size: int | None = 16,
        settings: FeedSettings | None = None,
    ) -> Knowledge:
        """One more worker."""
        return Knowledge.open(
            model=MODEL,
            indexes=self.indexes,
            key=name,
            clock=self.clock,
            capacity_blocks=100,
            settings=settings,
            block_size=block_size,
            has_source=has_source,
        )


def test_nothing_is_known_of_a_new_worker() -> None:
    """No credit, with and without an index."""
    world = World()
    knowledges = [world.worker(), world.worker("w2", block_size=None)]
    assert credits(knowledges, own(1, 2)) == [Credit(), Credit()]


def test_before_the_first_batch_history_counts() -> None:
    """Until it is known that the stream is whole."""
    world = World()
    worker = world.worker()
    worker.sent(own(1, 2))
    worker.first_token(own(1, 2))
    world.clock.now += 100
    credit = credits([worker], own(1, 2, 3))[0]
    assert credit == Credit(history_blocks=2, blocks=2, weighted=2.0)


def test_room_is_what_the_cache_takes_before_it_pushes_something_out() -> None:
    """Of 100 blocks, less those the events tell of; without events, those sent."""
    world = World()
    told, guessed = world.worker(), world.worker("w2", has_source=False)
    told.feed.receive(0, payload(stored(1, 2, 3)))
    told.sent(own(1, 2, 3, 4))
    guessed.sent(own(*range(1, 91)))
    assert (told.room_blocks, guessed.room_blocks) == (97, 10)
    told.feed.receive(1, payload(removed(3)))
    guessed.sent(own(*range(101, 151)))
    assert (told.room_blocks, guessed.room_blocks) == (98, 0)


def test_a_live_and_complete_feed_speaks_for_itself() -> None:
    """History counts from the request's sending to five seconds after its token."""
    world = World()
    worker = world.worker()
    worker.feed.receive(0, payload(stored(1)))
    worker.sent(own(1, 2, 3))
    world.clock.now += 60
    assert credits([worker], own(1, 2, 3))[0].blocks == 3
    worker.first_token(own(1, 2, 3))
    world.clock.now += 5
    assert credits([worker], own(1, 2, 3))[0] == Credit(
        held_blocks=1, gpu_blocks=1, blocks=1, weighted=1.0
    )


def test_without_streaming_the_end_speaks() -> None:
    """There is no first token to see."""
    world = World()
    worker = world.worker()
    worker.feed.receive(0, payload(stored(9)))
    for streamed, blocks in ((True, 2), (False, 0)):
        worker.sent(own(1, 2))
        worker.ended(
            own(1, 2), streamed=streamed, delivered_blocks=0, predicted_blocks=0
        )
        world.clock.now += 5
        worker.feed.receive(1 + blocks, payload())
        assert credits([worker], own(1, 2))[0].history_blocks == blocks
        if streamed:
            worker.feed.receive(0, payload(stored(9)))
            worker.history.clear()


def test_a_late_joiner_keeps_its_history() -> None:
    """Live but not complete: until evicted or contradicted."""
    world = World()
    worker = world.worker()
    worker.feed.receive(5, payload(stored(1)))
    worker.sent(own(4, 5))
    worker.first_token(own(4, 5))
    world.clock.now += 1000
    assert credits([worker], own(4, 5))[0].blocks == 2


def test_an_estimated_worker_lives_on_history() -> None:
    """It is contradicted by what the worker delivers, twice in a row."""
    world = World()
    worker = world.worker(has_source=False)
    for predicted in (0, 2, 2, 0, 0):
        assert credits([worker], own(1, 2))[0].blocks == predicted
        worker.sent(own(1, 2))
        worker.ended(
            own(1, 2), streamed=True, delivered_blocks=0, predicted_blocks=predicted
        )
    worker.ended(own(1, 2), streamed=True, delivered_blocks=2, predicted_blocks=0)
    assert credits([worker], own(1, 2))[0].blocks == 2


def test_weights() -> None:
    """GPU in full, offloaded less, in doubt half, history in full over both."""
    world = World()
    worker = world.worker()
    worker.feed.receive(
        0, payload(stored(1, 2, 3), stored(4, 5, parent=3, medium="CPU"))
    )
    full = credits([worker], own(1, 2, 3, 4, 5))[0]
    assert (full.held_blocks, full.gpu_blocks, full.blocks) == (5, 3, 5)
    assert full.weighted == 3 + 2 * 0.5
    assert credits([worker], own(1, 2, 3, 4, 5), offload_weight=0.8)[
        0
    ].weighted == pytest.approx(3 + 2 * 0.8)
    worker.feed.receive(2, payload(stored(1)))
    doubt = credits([worker], own(1, 2, 3, 4, 5))[0]
    assert (doubt.blocks, doubt.suspect_blocks) == (5, 4)
    assert doubt.weighted == 1 + 2 * 0.5 + 2 * 0.25
    worker.sent(own(1, 2, 3, 4))
    past = credits([worker], own(1, 2, 3, 4, 5))[0]
    assert (past.history_blocks, past.blocks) == (4, 5)
    assert past.weighted == 4 + 0.25
    worker.sent(own(1, 2, 3, 4, 5, 6))
    assert credits([worker], own(1, 2, 3, 4, 5, 6))[0].weighted == 6


def test_index_and_history_join() -> None:
    """The index holds the beginning, a request in flight the rest."""
    world = World()
    worker = world.worker()
    worker.feed.receive(0, payload(stored(1)))
    worker.sent(own(1, 2, 3))
    worker.sent(own(1))
    worker.first_token(own(1))
    world.clock.now += 6
    assert credits([worker], own(1, 2, 3))[0] == Credit(
        held_blocks=1, gpu_blocks=1, history_blocks=0, blocks=3, weighted=3.0
    )


def test_a_clearing_and_a_restart_clear_history() -> None:
    """The cache is known to be empty."""
    world = World()
    worker = world.worker()
    worker.feed.receive(5, payload(stored(1)))
    worker.sent(own(1, 2))
    worker.feed.receive(6, payload(CLEARED))
    assert credits([worker], own(1, 2))[0].blocks == 0
    worker.sent(own(1, 2))
    worker.feed.restarted("new start time")
    assert credits([worker], own(1, 2))[0].blocks == 0


def test_delivered_tokens_reach_the_feed() -> None:
    """They confirm and contradict what is in doubt."""
    world = World()
    worker = world.worker()
    worker.feed.receive(0, payload(stored(1, 2, 3)))
    worker.feed.receive(2, payload(stored(9)))
    worker.ended(own(1, 2, 3), streamed=True, delivered_blocks=1, predicted_blocks=3)
    credit = credits([worker], own(1, 2, 3))[0]
    assert (credit.held_blocks, credit.suspect_blocks) == (1, 0)
    worker.feed.tick()
    assert worker.feed.state == "live"


def test_requests_in_flight_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where their end is never told."""
    monkeypatch.setattr("kvindex.knowledge._IN_FLIGHT", 10)
    worker = World().worker()
    for block in range(50):
        worker.sent(own(block))
    assert len(worker._sent) == 10


def test_owners_of_several_indexes_are_matched_together() -> None:
    """Each in its own, results in the order asked."""
    world = World()
    first, second = world.worker("w1"), world.worker("w2")
    other = Knowledge.open(
        model="other",
        indexes=world.indexes,
        key="w3",
        clock=world.clock,
        capacity_blocks=10,
    )
    first.feed.receive(0, payload(stored(1)))
    other.feed.receive(0, payload(stored(1, 2)))
    second.feed.receive(0, payload(stored(1, 2, 3), removed(3)))
    found = credits([second, other, first], own(1, 2, 3))
    assert [credit.blocks for credit in found] == [2, 0, 1]


def test_the_last_block_of_an_aligned_prompt_is_not_contradicted() -> None:
    """It can never be found cached, yet the worker holds it: the next turn hits it."""
    world = World()
    worker = world.worker(has_source=False)
    for _ in range(4):
        worker.sent(own(1, 2, 3))
        worker.ended(
            own(1, 2, 3),
            streamed=True,
            delivered_blocks=2,
            predicted_blocks=2,
            matchable=2,
        )
    assert credits([worker], own(1, 2, 3, 4))[0].blocks == 3


def test_a_removal_ends_what_history_guessed() -> None:
    """A late joiner counts history for long, but the worker's own word counts more."""
    world = World()
    worker = world.worker()
    worker.sent(own(1, 2, 3))
    worker.feed.receive(7, payload(stored(1, 2, 3)))
    assert not worker.feed.complete
    assert credits([worker], own(1, 2, 3))[0].blocks == 3
    worker.feed.receive(8, payload(removed(3), removed(2)))
    assert credits([worker], own(1, 2, 3))[0].blocks == 1
    worker.sent(own(1, 2, 3))
    assert credits([worker], own(1, 2, 3))[0].blocks == 3


def test_a_removal_of_one_of_two_copies_ends_nothing() -> None:
    """The block is still there."""
    world = World()
    worker = world.worker()
    worker.sent(own(1, 2))
    worker.feed.receive(7, payload(stored(1, 2), stored(2, parent=1), removed(2)))
    assert credits([worker], own(1, 2))[0].blocks == 2
