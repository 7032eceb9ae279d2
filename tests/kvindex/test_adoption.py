"""Orphans whose place is known, while other things happen."""

import pytest

from kvindex.blocks import Namespace
from kvindex.content import Content
from kvindex.feed import Feed
from kvindex.history import History
from kvindex.index import Indexes
from kvindex.knowledge import Knowledge
from tests.kvindex.engine import MODEL, Clock, ids_of, own, payload, stored
from tests.kvindex.test_salts import Worker


def test_the_bound_is_met_between_two_slices() -> None:
    """By another owner's copies: what has no room is refused, and nothing breaks."""
    indexes = Indexes(limit_bytes=1 << 30)
    late, other = (
        Feed(model=MODEL, indexes=indexes, key=key, clock=Clock()) for key in "ab"
    )
    late.receive(
        5, payload(*(stored(block, parent=1) for block in range(1_000, 3_000)))
    )
    other.receive(0, payload(stored(*range(10_000, 10_400))))
    late.sliced = True
    late.receive(6, payload(stored(1)))
    while late.orphans == 2_000:
        late.work(1)
    memory = indexes.memory
    memory.limit_bytes = memory.used_bytes + 10_000
    other.receive(1, payload(stored(*range(10_001, 10_400), parent=10_000)))
    assert other.counters.refused > 0
    waited = late.orphans
    assert waited > 0
    while late.work(1):
        assert not memory.overdrawn
    assert late.orphans == 0
    assert late.counters.orphans_dropped == 0
    assert late.counters.stored + late.counters.refused == 2_001
    assert memory.used_bytes == indexes.get(MODEL, 16).bytes


@pytest.mark.parametrize("salt", [None, "a"])
def test_an_orphan_without_salt_is_not_placed_below_a_salt(salt: str | None) -> None:
    """Its ids are alike, and by its name nothing tells it apart from the request's."""
    worker = Worker(first=5)
    clock = worker.clock
    history = History(capacity_blocks=99, clock=clock)
    knowledge = Knowledge(feed=worker.feed, history=history, clock=clock)
    worker.store(None, 8, parent=7)  # there are orphans, so prompts are looked for
    prompt = own(1, 2, 3, root=Namespace(model=MODEL, salt=salt).root())
    content = None if salt else Content(ids_of(1, 2, 3), 16, 2)
    knowledge.sent(prompt, content)
    worker.store(None, 2, parent=1)  # that of another gateway's request
    worker.store(salt, 2, 3, parent=1)
    knowledge.ended(prompt, streamed=True, delivered_blocks=1, predicted_blocks=0)
    clock.now += 3.0
    worker.feed.tick()
    worker.store(None, 4, parent=1)
    held = worker.held(1, 4)[0], worker.unsalted(1, 4)
    assert held == ((0, 0) if salt else (0, 2))
