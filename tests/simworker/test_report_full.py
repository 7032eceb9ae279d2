"""A worker that announces its hits again, and what a feed makes of it."""

import pytest

from kvindex.blocks import Namespace, chain, pack_ids
from kvindex.events import EventBatch
from kvindex.feed import Feed
from kvindex.index import Indexes
from kvindex.wire.vllm import encode_batch
from simworker.job import Job
from tests.simworker.rig import Rig

SIZE = 16


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_hits_reported_again_are_removed_by_one_removal(blocks: int) -> None:
    """However often they were: nothing is held that was evicted."""
    rig = Rig(blocks=12, block_size=SIZE)
    prompt = range(1, blocks * SIZE + 2)
    for _ in range(4):
        rig.submit("again", Job(prompt, [1], report_hits=True))
        rig.run()
    hashes = chain(pack_ids(prompt), SIZE, Namespace(model="m").root())
    feed = Feed(
        model="m", indexes=Indexes(limit_bytes=1 << 24), key="w", clock=lambda: 0.0
    )
    for number, (_, events) in enumerate(rig.batches):
        batch = EventBatch(timestamp=0.0, events=tuple(events), rank=0)
        feed.receive(number, encode_batch(batch))
    assert feed.held(hashes) == blocks
    told = len(rig.batches)
    rig.submit("other", Job(range(1_000, 1_000 + 11 * SIZE), [1]))
    rig.run()
    for number, (_, events) in enumerate(rig.batches[told:], told):
        batch = EventBatch(timestamp=0.0, events=tuple(events), rank=0)
        feed.receive(number, encode_batch(batch))
    assert feed.held(hashes) == 0
    assert feed.owner is not None
    assert feed.owner.blocks == rig.cache.held == 11
