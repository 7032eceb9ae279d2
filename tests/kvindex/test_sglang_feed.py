"""An SGLang worker's stream, from its bytes to the index."""

import msgspec

from kvindex.blocks import Namespace, chain, pack_ids
from kvindex.events import BlockStored, EventBatch, KVEvent
from kvindex.feed import Feed
from kvindex.index import Indexes
from kvindex.wire.sglang import decode_batch, encode_batch
from tests.kvindex.engine import CLEARED, MODEL, Clock, own, removed, stored


class Worker:
    """A feed, and a worker that numbers its batches."""

    def __init__(
        self, page_size: int = 16, *, pairs: bool = False, arrays: bool = False
    ) -> None:
        self.next = 0
        self.pairs, self.arrays = pairs, arrays
        self.feed = Feed(
            model=MODEL,
            indexes=Indexes(limit_bytes=1 << 28),
            key="s",
            clock=Clock(),
            block_size=page_size,
            decode=decode_batch,
        )

    def send(self, *events: KVEvent) -> None:
        """One batch."""
        batch = EventBatch(timestamp=1.0, events=events, rank=0)
        content = encode_batch(batch, pairs=self.pairs, arrays=self.arrays)
        self.feed.receive(self.next, content)
        self.next += 1


def test_a_new_worker_clears_first() -> None:
    """Its cache is made: complete from there on."""
    for arrays in (False, True):
        worker = Worker(arrays=arrays)
        worker.send(CLEARED, stored(1, 2, names=(2**63, 2**64 - 1)))
        assert worker.feed.complete
        assert worker.feed.held(own(1, 2, 3)) == 2
        worker.send(removed(2**64 - 1))
        assert worker.feed.held(own(1, 2, 3)) == 1


def test_salts_and_adapters() -> None:
    """From fields of the event."""
    worker = Worker()
    event = stored(1)
    worker.send(
        CLEARED,
        BlockStored(
            hashes=(5,),
            token_ids=event.token_ids,
            block_size=16,
            salt="a",
            adapter="ad",
        ),
    )
    root = Namespace(model=MODEL, salt="a", adapter="ad").root()
    assert worker.feed.held(own(1)) == 0
    assert worker.feed.held(own(1, root=root)) == 1


def test_pairs_match_prompts() -> None:
    """sgl-project/sglang#27386: workers with EAGLE never matched."""
    worker = Worker(pairs=True)
    worker.send(CLEARED, stored(1, 2), stored(3, parent=2))
    assert worker.feed.held(own(1, 2, 3, 4)) == 3


def test_two_pages_that_differ_by_the_next_id_only() -> None:
    """One own hash, two names: held until both are gone."""
    worker = Worker(pairs=True)
    worker.send(CLEARED, stored(1, names=(5,)), stored(1, names=(6,)))
    worker.send(removed(5))
    assert worker.feed.held(own(1)) == 1
    worker.send(removed(6))
    assert worker.feed.held(own(1)) == 0


def test_pages_of_one_token() -> None:
    """Collected to blocks of 16."""
    worker = Worker(1)
    ids = pack_ids(range(40))
    worker.send(
        CLEARED, BlockStored(hashes=tuple(range(1, 41)), token_ids=ids, block_size=1)
    )
    hashes = chain(ids, 16, Namespace(model=MODEL).root())
    assert worker.feed.block_size == 16
    assert worker.feed.held(hashes) == 2
    worker.send(removed(32))
    assert worker.feed.held(hashes) == 1


def test_short_tail_pages() -> None:
    """Events of their own: left out, and no change of the page size."""
    worker = Worker(64)
    worker.send(CLEARED, stored(1, 2, size=64))
    for tail in range(10):
        worker.send(stored(100 + tail, parent=2, size=40))
    assert worker.feed.block_size == 64
    assert worker.feed.complete


def test_offloaded_pages_stay_held() -> None:
    """GPU evicts what the host keeps."""
    worker = Worker()
    worker.send(CLEARED, stored(1, 2), stored(1, 2, medium="CPU_PINNED"))
    worker.send(removed(2), removed(1))
    assert worker.feed.held(own(1, 2)) == 2
    worker.send(removed(2, medium="CPU_PINNED"))
    assert worker.feed.held(own(1, 2)) == 1


def test_media_never_match_text() -> None:
    """Their placeholders are ids beyond 32 bits; pages behind them are kept apart."""
    worker = Worker(4)
    wide = {
        "type": "BlockStored",
        "block_hashes": [1, 2, 3, 4],
        "parent_block_hash": None,
        "token_ids": [*range(4), *[2**40 + 7] * 4, *range(8)],
        "block_size": 4,
        "lora_id": None,
    }
    worker.feed.receive(0, msgspec.msgpack.encode([1.0, [wide], 0]))
    assert worker.feed.owner is not None
    assert worker.feed.owner.blocks == 1
    folded = pack_ids([*range(4), *[7] * 4, *range(8)])
    assert worker.feed.held(chain(folded, 16, Namespace(model=MODEL).root())) == 0
