"""Orphans whose place is known, while other things happen."""

from kvindex.feed import Feed
from kvindex.index import Indexes
from tests.kvindex.engine import MODEL, Clock, payload, stored


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
