"""Several blocks under one name, as engines give them whose hash leaves a salt out."""

from typing import NoReturn

import pytest

from kvindex import engine_blocks
from kvindex.blocks import Namespace
from kvindex.counters import Counters
from kvindex.engine_blocks import NAMESAKES, EngineBlocks
from kvindex.events import BlockStored, BlockUpdated, EngineHash
from kvindex.holder import Holder
from kvindex.index import Indexes
from kvindex.knowledge import credits
from kvindex.shares import Shares
from kvindex.shelf import shelf_for
from tests.kvindex.engine import CLEARED, MODEL, Stream, own, payload, removed, stored
from tests.kvindex.test_knowledge import World

ROOTS = [Namespace(model=MODEL, salt=salt).root() for salt in "ab"]


def salted(
    salt: str,
    *blocks: int,
    names: tuple[int, ...] = (),
    parent: int | None = None,
    size: int = 16,
    medium: str = "GPU",
) -> BlockStored:
    """Blocks of a salt, which their names leave out."""
    keys = tuple((salt,) if not index else None for index, _ in enumerate(blocks))
    return stored(
        *blocks,
        names=names or blocks,
        parent=parent,
        size=size,
        medium=medium,
        extra_keys=keys,
    )


def held(stream: Stream, *blocks: int) -> list[int]:
    """What a prompt finds under the salts "a" and "b"."""
    return [stream.held(*blocks, root=root) for root in ROOTS]


def test_each_is_held_until_the_name_is_removed() -> None:
    """What only one of them has stays."""
    stream = Stream()
    stream.send(salted("a", 1, 2, 3), salted("b", 1, 2))
    assert (held(stream, 1, 2, 3), stream.owner.blocks) == ([3, 2], 5)
    stream.send(removed(3))
    assert (held(stream, 1, 2, 3), stream.feed.complete) == ([2, 2], True)
    stream.send(removed(2))
    assert (held(stream, 1, 2, 3), stream.feed.complete) == ([1, 1], False)


def test_children_of_nobody_knows_whom() -> None:
    """They are left out, and counted: either salt may be theirs."""
    stream = Stream()
    stream.send(salted("a", 1), salted("b", 1))
    stream.send(stored(2, parent=1), stored(3, parent=2))
    assert (held(stream, 1, 2), stream.owner.blocks) == ([1, 1], 2)
    assert stream.feed.counters.rejected["parent"] == 1
    assert not stream.feed.complete


def test_what_is_sent_again_stands_in_for_what_may_be_gone() -> None:
    """The worker does not announce what it has still, so its requests are believed."""
    world = World()
    worker = world.worker()
    prompts = [own(1, 2, root=root) for root in ROOTS]
    for sequence, (salt, prompt) in enumerate(zip("ab", prompts, strict=True)):
        worker.sent(prompt)
        worker.feed.receive(sequence, payload(salted(salt, 1, 2)))
        worker.first_token(prompt)
    worker.feed.receive(2, payload(removed(2, 1)))
    world.clock.now += 60
    assert [credits([worker], prompt)[0].blocks for prompt in prompts] == [0, 0]
    worker.sent(prompts[0])
    worker.first_token(prompts[0])
    world.clock.now += 60
    assert [credits([worker], prompt)[0].blocks for prompt in prompts] == [2, 0]


@pytest.mark.parametrize("media", [("GPU", "GPU"), ("CPU", "DISK"), ("DISK", "CPU")])
def test_none_is_left_over(media: tuple[str, str]) -> None:
    """Each was removed from where it was, whichever came first."""
    stream = Stream()
    for salt, medium in zip("ab", media, strict=True):
        stream.send(salted(salt, 1, medium=medium))
    assert stream.owner.blocks == 2
    for medium in media:
        stream.send(removed(1, medium=medium))
    assert stream.owner.blocks == 0
    assert stream.index.blocks == 0


def test_after_a_missed_batch_none_is_left() -> None:
    """To doubt them all is not worth it."""
    stream = Stream()
    stream.send(salted("a", 1), salted("b", 1))
    stream.lose()
    stream.send(stored(9))
    assert (held(stream, 1), stream.owner.blocks) == ([0, 0], 1)
    stream.send(salted("b", 1), removed(1))
    assert (held(stream, 1), stream.owner.blocks) == ([0, 0], 1)


def test_a_move_does_not_tell_of_which() -> None:
    """Neither is credited."""
    shelf = shelf_for(Indexes(limit_bytes=1 << 20), MODEL, "w", 16)
    holder = Holder(
        model=MODEL, page_size=16, shelf=shelf, counters=Counters(), orphan_blocks=9
    )
    for salt in "ab":
        holder.stored(salted(salt, 1))
    holder.moved(BlockUpdated(hash=1, medium_before="GPU", medium="CPU"))
    assert (shelf.owner.blocks, holder.incomplete) == (0, True)


def test_a_cleared_cache_holds_none_of_them() -> None:
    """Nor does the index."""
    stream = Stream()
    stream.send(salted("a", 1), salted("b", 1), CLEARED)
    assert (stream.owner.blocks, stream.index.blocks) == (0, 0)
    assert stream.feed.complete


def test_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the last one counts: nothing is held that cannot be removed."""
    monkeypatch.setattr(engine_blocks, "NAMESAKES", 2)
    stream = Stream()
    for block in range(1, 9):
        stream.send(stored(block, names=(7,)))
    assert stream.owner.blocks <= 3
    assert stream.held(8) == 1
    stream.send(removed(7))
    assert stream.owner.blocks == 0


def test_a_content_that_comes_again() -> None:
    """It is held once, however often it is announced under the name."""
    stream = Stream()
    for salt in "abab":
        stream.send(salted(salt, 1))
    assert (held(stream, 1), stream.owner.blocks) == ([1, 1], 2)
    stream.send(removed(1))
    assert stream.owner.blocks == 0


def test_another_name_keeps_a_block() -> None:
    """A block with a name of its own is held while that is left."""
    stream = Stream()
    stream.send(salted("a", 1, names=(8,)))
    stream.send(salted("a", 1, names=(7,)), salted("b", 1, names=(7,)))
    stream.send(removed(7))
    assert held(stream, 1) == [1, 0]
    stream.send(removed(8))
    assert held(stream, 1) == [0, 0]


class Unread(dict[EngineHash, list[int]]):
    """Namesakes that nobody goes through."""

    def values(self) -> NoReturn:
        raise AssertionError


def test_how_many_blocks_have_lent_their_name() -> None:
    """Is counted as they come and go: with each event it is asked for."""
    blocks = EngineBlocks(on_gpu=True, shares=Shares())
    blocks.namesakes = Unread()
    for number in range(NAMESAKES + 1):
        blocks.own[7] = number
        if number < NAMESAKES:
            assert blocks.may_lend(7)
            blocks.lend(7)
    assert not blocks.may_lend(7)
    assert len(blocks) == NAMESAKES + 1
    assert len(blocks.drop_name(7)) == NAMESAKES + 1
    assert len(blocks) == 0
