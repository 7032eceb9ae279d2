"""vLLM's releases, from their bytes to the index: what each tells of a block."""

import msgspec
import pytest

from kvindex.blocks import Namespace, unpack_ids
from kvindex.events import BlockStored, EngineHash
from kvindex.intake import LOOKAHEAD
from kvindex.knowledge import Knowledge, credits
from tests.kvindex.engine import (
    CLEARED,
    MODEL,
    Stream,
    ids_of,
    own,
    payload,
    removed,
    stored,
)
from tests.kvindex.test_knowledge import World

SALTED = Namespace(model=MODEL, salt="s").root()


def array(*blocks: int, parent: EngineHash | None = None, fields: int = 7) -> bytes:
    """A batch as releases before 0.24 have it, its event with so many fields."""
    ids = unpack_ids(ids_of(*blocks))
    event = ["BlockStored", blocks, parent, ids, 16, None, "GPU", None, [None] * 2]
    return msgspec.msgpack.encode([1.0, [event[: fields + 1]], 0])


@pytest.mark.parametrize("fields", [5, 6, 7])
def test_releases_that_tell_no_salts(fields: int) -> None:
    """Before 0.17: the feed says that it may take one block for another."""
    stream = Stream(block_size=16)
    stream.feed.receive(0, array(1, 2, fields=fields))
    assert stream.held(1, 2) == 2
    assert (stream.feed.state, stream.feed.complete) == ("live", False)
    assert "tell no salts" in stream.feed.reason


def test_releases_that_tell_them() -> None:
    """From 0.17 on there is a list, though of nothing."""
    stream = Stream(block_size=16)
    stream.feed.receive(0, array(1, 2, fields=8))
    assert (stream.held(1, 2), stream.feed.complete) == (2, True)


def test_a_tier_that_tells_none_is_no_old_release() -> None:
    """Its events never have any."""
    stream = Stream(block_size=16)
    stream.feed.receive(0, array(1, 2, fields=8))
    event = ["BlockStored", [2], 1, unpack_ids(ids_of(2)), 16, None, "CPU", None]
    stream.feed.receive(1, msgspec.msgpack.encode([1.0, [event], 0]))
    assert stream.feed.complete


def sent(world: World, worker: Knowledge, delivered: int) -> float:
    """The credit of a prompt; it is sent, and so much is found."""
    hashes = own(1, 2, 3, 4)
    credit = credits([worker], hashes)[0]
    worker.sent(hashes)
    worker.first_token(hashes)
    worker.ended(
        hashes,
        streamed=True,
        delivered_blocks=delivered,
        predicted_blocks=credit.blocks,
    )
    world.clock.now += 10
    return credit.weighted


def test_what_was_salted_is_believed_for_two_requests() -> None:
    """As anything that the worker turns out not to have: then it is dropped."""
    world = World()
    worker = world.worker()
    worker.feed.receive(0, array(1, 2, 3, 4))  # of a salted prompt
    assert sent(world, worker, 0) == 4.0
    assert sent(world, worker, 0) == 4.0
    owner = worker.feed.owner
    assert owner is not None
    assert owner.blocks == 0
    assert worker.feed.state == "degraded"


def keyed(*blocks: int, salt: str | None = None) -> BlockStored:
    """On the GPU, with its keys told."""
    keys = ((salt,) if salt else None, *[None] * (len(blocks) - 1))
    return stored(*blocks, extra_keys=keys)


def test_a_tier_without_keys_goes_by_name() -> None:
    """vLLM's connectors tell tokens and no salt: the GPU's event has told it."""
    stream = Stream(block_size=16)
    stream.send(keyed(1, 2, salt="s"))
    stream.send(stored(1, 2, medium="CPU"), removed(2, 1))
    assert (stream.held(1, 2), stream.held(1, 2, root=SALTED)) == (0, 2)
    assert stream.feed.complete


def test_what_a_tier_may_have_of_a_salted_prompt_is_not_believed() -> None:
    """Without keys it is rejected where nobody told them, at the start or behind it."""
    stream = Stream(block_size=16)
    stream.send(keyed(1, 2, salt="s"))
    stream.send(stored(5, 6, medium="CPU"))
    assert stream.held(5, 6) == 0
    assert stream.feed.counters.rejected == {"no_keys": 1}
    stream.send(stored(3, parent=2, medium="CPU"))
    assert stream.held(1, 2, 3, root=SALTED) == 2
    assert stream.feed.counters.rejected == {"no_keys": 2}
    assert not stream.feed.complete


def test_what_a_tier_has_of_known_blocks_counts_once() -> None:
    """Beside unknown ones in one event, which are rejected: an image is not told."""
    stream = Stream(block_size=16)
    stream.send(keyed(1, salt="s"), stored(2, parent=1))
    stream.send(stored(2, 3, parent=1, medium="CPU"), removed(2))
    assert stream.held(1, 2, 3, root=SALTED) == 2
    assert stream.feed.counters.rejected == {"no_keys": 1}
    stream.send(removed(3, 2, medium="CPU"))
    assert stream.held(1, 2, root=SALTED) == 1


def ahead(*blocks: int, tokens: int = 2) -> BlockStored:
    """Blocks whose names cover tokens behind them, too."""
    lookahead = tuple([tuple(range(tokens)) for _ in blocks])
    return msgspec.structs.replace(stored(*blocks), lookahead=lookahead)


@pytest.mark.parametrize(("tokens", "certain"), [(1, 3), (16, 3), (17, 2), (99, 0)])
def test_a_block_that_depends_on_what_follows(tokens: int, certain: int) -> None:
    """Only those that the match itself goes behind far enough are credited."""
    stream = Stream(block_size=16)
    stream.send(ahead(1, 2, 3, 4, tokens=tokens))
    assert stream.held(1, 2, 3, 4) == certain
    assert stream.held(1, 2, 3, 9) == max(0, certain - 1)
    assert stream.held(9) == 0
    assert stream.feed.complete


def test_what_is_certain_off_the_gpu_and_in_doubt() -> None:
    """The last block goes wherever it is held."""
    stream = Stream(block_size=16)
    stream.send(ahead(1, 2, 3), stored(3, parent=2, medium="CPU"), removed(3))
    (held,) = stream.index.match(own(1, 2, 3), [stream.owner])
    assert (held.gpu_blocks, held.blocks) == (2, 2)
    stream.lose()
    stream.send(removed(9))
    (held,) = stream.index.match(own(1, 2, 3), [stream.owner])
    assert (held.blocks, held.suspects) == (2, (0, 1))


def test_names_of_one_block_with_several_continuations() -> None:
    """It is held until the last of them is gone."""
    stream = Stream(block_size=16)
    for name, more in ((10, (1,)), (11, (2,))):
        event = stored(1, names=(name,))
        stream.send(msgspec.structs.replace(event, lookahead=(more,)))
    stream.send(stored(2, parent=11), removed(10))
    assert stream.held(1, 2) == 1
    stream.send(removed(2), removed(11))
    assert stream.owner.blocks == 0


@pytest.mark.parametrize("restart", [False, True])
def test_an_empty_cache_depends_on_nothing(restart: bool) -> None:
    """What was told of its blocks is theirs: the next ones may have none."""
    stream = Stream(block_size=16)
    stream.send(ahead(1, 2))
    if restart:
        stream.feed.restarted("a test")
    else:
        stream.send(CLEARED)
    stream.send(stored(1, 2))
    assert stream.held(1, 2) == 2


def test_an_absurd_lookahead_is_rejected() -> None:
    """It would take all credit away for good."""
    stream = Stream(block_size=16)
    stream.send(stored(1, 2, 3), ahead(4, 5, tokens=LOOKAHEAD + 1))
    assert (stream.held(1, 2, 3), stream.held(4, 5)) == (3, 0)
    assert stream.feed.counters.rejected == {"lookahead": 1}
    assert not stream.feed.complete
    stream.send(ahead(4, 5, tokens=LOOKAHEAD))
    assert stream.feed.counters.rejected == {"lookahead": 1}


def test_large_events_keep_their_lookahead() -> None:
    """Cut to pieces on the way."""
    blocks = tuple(range(1, 2_001))
    stream = Stream(block_size=16)
    stream.feed.receive(0, payload(ahead(*blocks)))
    assert stream.held(*blocks) == len(blocks) - 1
