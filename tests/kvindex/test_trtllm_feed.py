"""A TensorRT-LLM worker's drain, from its bytes to the index."""

import json
from collections.abc import Callable
from functools import partial

import pytest
from msgspec import structs

from kvindex.blocks import Namespace, pack_ids
from kvindex.content import Content
from kvindex.events import (
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    EngineHash,
    KVEvent,
)
from kvindex.feed import Feed
from kvindex.index import Indexes
from kvindex.owner import Held
from kvindex.wire.trtllm import MISSED, decode_event, encode_event
from kvindex.wire.trtllm_drain import split_drain
from kvindex.wire.trtllm_hashes import (
    V1,
    V2_64,
    salt_id,
    v1_block_key,
    v2_root,
    v2_sha256,
    v2_sha256_64,
)
from tests.kvindex.engine import MODEL, Clock, ids_of, own

SIZE = 16
CREATED = CacheCreated(blocks_per_level=(100, 10))


def names_of(
    *blocks: int, adapter: int | None = None, salt: str | None = None
) -> list[int]:
    """The engine's names of a chain of such blocks."""
    names: list[int] = []
    number = None if salt is None else salt_id(salt)
    for block in blocks:
        ids = [1000 * block + i for i in range(SIZE)]
        parent = names[-1] if names else 0
        names.append(v1_block_key(ids, parent, adapter=adapter, salt=number))
    return names


def stored(*blocks: int, behind: tuple[int, ...] = (), **fields: object) -> BlockStored:
    """A chain of base blocks, behind others that are held."""
    names = names_of(*behind, *blocks)[len(behind) :]
    event = {
        "hashes": tuple(names),
        "parent": names_of(*behind)[-1] if behind else None,
        "token_ids": ids_of(*blocks),
        "block_size": SIZE,
        "medium": "GPU",
    }
    return BlockStored(**(event | fields))  # type: ignore[arg-type]


def gone(*path: int, group: int | None = None) -> BlockRemoved:
    """The block at the end of a path is removed."""
    return BlockRemoved(hashes=(names_of(*path)[-1],), any_medium=True, group=group)


def move(*path: int, to: str, group: int | None = None) -> BlockUpdated:
    """The block at the end of a path moves."""
    before = "CPU" if to == "GPU" else "GPU"
    return BlockUpdated(
        hash=names_of(*path)[-1], medium_before=before, medium=to, group=group
    )


class Worker:
    """A feed, and a worker that numbers its events."""

    def __init__(self, *, block_size: int | None = SIZE, algorithm: str = V1) -> None:
        self.next = 0
        self.feed = Feed(
            model=MODEL,
            indexes=Indexes(limit_bytes=1 << 28),
            key="t",
            clock=Clock(),
            block_size=block_size,
            decode=partial(decode_event, algorithm=algorithm),
            missed_reason=MISSED,
        )

    def drain(self, *events: KVEvent, window: int | None = None) -> None:
        """These events, drained at once."""
        items = []
        for event in events:
            items.append(encode_event(event, self.next, window_size=window))
            self.next += 1
        for raw in split_drain(json.dumps(items).encode()).events:
            self.feed.receive(raw.event_id, raw.payload)

    def held(self, *blocks: int, root: int | None = None) -> Held:
        """What is held of such a prompt."""
        assert self.feed.index is not None
        assert self.feed.owner is not None
        hashes = own(*blocks) if root is None else own(*blocks, root=root)
        return self.feed.index.match(hashes, [self.feed.owner])[0]


def test_created_begins_a_complete_feed() -> None:
    """The first event of a new worker; the next one is a restart."""
    worker = Worker()
    worker.drain(CREATED, stored(1, 2), stored(3, behind=(1, 2)), gone(1, 2, 3))
    assert (worker.feed.state, worker.feed.complete) == ("live", True)
    assert worker.held(1, 2, 3).gpu_blocks == 2
    assert worker.feed.counters.restarts == 0
    worker.drain(CREATED, stored(4))
    assert (worker.held(1).blocks, worker.held(4).blocks) == (0, 1)
    assert (worker.feed.counters.restarts, worker.feed.complete) == (1, True)


def test_created_for_each_window_is_one_start() -> None:
    """Nothing was stored between them."""
    worker = Worker()
    worker.drain(stored(9))
    worker.next = 0
    worker.drain(CREATED, window=64)
    worker.drain(CREATED, window=4096)
    assert worker.feed.counters.restarts == 1
    assert worker.feed.complete


def test_ids_going_back_are_a_restart_and_holes_a_gap() -> None:
    """A hole may be an overflow, or a second consumer of the drain: both are named."""
    worker = Worker()
    worker.drain(CREATED, stored(1))
    worker.next += 3
    worker.drain(stored(2))
    assert worker.feed.state == "degraded"
    assert "someone else drains" in worker.feed.reason
    assert worker.feed.counters.missed_batches == 3
    worker.next = 0
    worker.drain(CREATED)
    assert (worker.feed.state, worker.held(1).blocks) == ("live", 0)


def test_a_block_moves_between_tiers() -> None:
    """Held all the time, on GPU or not; a removal ends it wherever it is."""
    worker = Worker()
    worker.drain(CREATED, stored(1, 2), move(1, 2, to="CPU"))
    assert worker.held(1, 2) == Held(gpu_blocks=1, blocks=2)
    worker.drain(move(1, 2, to="GPU"))
    assert worker.held(1, 2) == Held(gpu_blocks=2, blocks=2)
    worker.drain(move(1, 2, to="CPU"), gone(1, 2))
    assert worker.held(1, 2) == Held(gpu_blocks=1, blocks=1)
    worker.drain(move(1, 2, to="GPU"), move(7, to="CPU"))
    assert worker.held(1, 2).blocks == 1


def test_updates_without_a_move_change_nothing() -> None:
    """Null diffs: only a priority changed."""
    worker = Worker()
    worker.drain(CREATED, stored(1), BlockUpdated(hash=names_of(1)[0]))
    assert worker.held(1).gpu_blocks == 1
    assert worker.feed.counters.undecodable == {}


def test_layer_groups_are_counted_apart() -> None:
    """Each repeats what it stores; the first to lose a block ends its residency."""
    worker = Worker()
    for group in (0, 1):
        worker.drain(stored(1, 2, group=group))
    worker.drain(gone(1, 2, group=1))
    assert worker.held(1, 2).blocks == 1
    worker.drain(gone(1, 2, group=0), stored(2, behind=(1,), group=0))
    worker.drain(stored(2, behind=(1,), group=1))
    assert worker.held(1, 2).blocks == 2
    worker.drain(move(1, 2, to="CPU", group=0))
    assert worker.held(1, 2) == Held(gpu_blocks=1, blocks=2)
    worker.drain(move(1, 2, to="CPU", group=1))
    assert worker.held(1, 2) == Held(gpu_blocks=1, blocks=2)


def test_only_the_widest_window_counts() -> None:
    """Narrower ones drop blocks that a hit of full attention needs."""
    worker = Worker()
    worker.drain(CREATED, window=64)
    worker.drain(CREATED, window=4096)
    worker.drain(stored(1, 2), window=4096)
    worker.drain(stored(1, 2), gone(1), gone(1, 2), window=64)
    assert worker.held(1, 2).blocks == 2
    assert worker.feed.counters.rejected == {"window": 1}
    assert worker.feed.complete


def test_a_wider_window_that_is_seen_late() -> None:
    """What was indexed by the narrower one is worth nothing."""
    worker = Worker()
    worker.next = 5
    worker.drain(stored(1), window=64)
    worker.drain(stored(2), window=4096)
    assert (worker.held(1).blocks, worker.held(2).blocks) == (0, 1)
    assert not worker.feed.complete


def test_partial_tail_blocks_are_no_change_of_the_block_size() -> None:
    """However many come in a row; nothing is missing without them."""
    worker = Worker()
    worker.drain(CREATED, stored(1))
    for tail in range(20):
        parent, ids = names_of(1)[0], range(tail, tail + 5)
        end = stored(1, behind=(1,), token_ids=pack_ids(ids), block_size=5)
        name = v1_block_key(ids, parent)
        worker.drain(structs.replace(end, hashes=(name,)))
    assert worker.feed.block_size == SIZE
    assert worker.feed.counters.rejected == {"tail": 20}
    assert worker.feed.complete


def test_the_first_block_may_be_a_tail() -> None:
    """Where the size is not known, the first larger one tells it."""
    worker = Worker(block_size=None)
    tail = BlockStored(
        hashes=(v1_block_key([1, 2, 3]),), token_ids=pack_ids([1, 2, 3]), block_size=3
    )
    worker.drain(CREATED, tail, stored(1, 2))
    assert worker.feed.block_size == SIZE
    assert worker.held(1, 2).blocks == 2


def test_adapters_and_salts_are_left_to_history() -> None:
    """Their blocks are no base blocks, and the feed does not claim to know all."""
    worker = Worker()
    lora = stored(1, hashes=tuple(names_of(1, adapter=7)))
    salted = stored(2, hashes=tuple(names_of(2, salt="a")))
    worker.drain(CREATED, lora, salted, stored(3))
    assert worker.held(1).blocks == worker.held(2).blocks == 0
    assert worker.held(3).blocks == 1
    assert worker.feed.counters.rejected == {"namespace": 2}
    assert (worker.feed.state, worker.feed.complete) == ("live", False)


@pytest.mark.parametrize("recipe", [v2_sha256_64, bytes])
@pytest.mark.parametrize("root", [{"adapter": 7}, {"salt": 7}])
def test_what_follows_on_another_namespace_is_not_guessed(
    recipe: Callable[[bytes], EngineHash], root: dict[str, int]
) -> None:
    """Its first event is left out; the names of the next tell nothing by themselves."""
    worker = Worker(algorithm=V2_64)
    digest, names = v2_root(**root), []
    for block in (1, 2, 3, 4):
        digest = v2_sha256([1000 * block + i for i in range(SIZE)], digest)
        names.append(recipe(digest))
    worker.drain(CREATED, stored(1, 2, hashes=tuple(names[:2])))
    worker.drain(stored(3, 4, hashes=tuple(names[2:]), parent=names[1]))
    assert worker.feed.counters.rejected == {"namespace": 1}
    assert worker.feed.orphans == 2
    assert worker.held(1, 2, 3, 4).blocks == 0
    assert worker.feed.guess(Content(ids_of(1, 2, 3, 4), SIZE, 4)) is None


def test_a_salt_that_the_event_tells() -> None:
    """Newer releases name it: a namespace of its own."""
    worker = Worker()
    worker.drain(CREATED, stored(1, hashes=tuple(names_of(1, salt="a")), salt="a"))
    salted = Namespace(model=MODEL, salt="a").root()
    assert worker.held(1).blocks == 0
    assert worker.held(1, root=salted).blocks == 1
    assert worker.feed.complete


def test_wrong_parents_are_not_believed() -> None:
    """NVIDIA/TensorRT-LLM#3543: the name does not follow from the parent given."""
    worker = Worker()
    worker.drain(CREATED, stored(1, 2), stored(9))
    liar = stored(3, behind=(1, 2), parent=names_of(9)[0])
    worker.drain(liar)
    assert (worker.held(9, 3).blocks, worker.held(1, 2, 3).blocks) == (1, 2)


def test_an_orphan_moves_with_its_block() -> None:
    """A late join: the root comes after its child was offloaded."""
    worker = Worker()
    worker.next = 9
    worker.drain(stored(2, behind=(1,)), move(1, 2, to="CPU"), stored(1))
    assert worker.held(1, 2) == Held(gpu_blocks=1, blocks=2)
    worker.drain(gone(1, 2))
    assert worker.held(1, 2).blocks == 1
