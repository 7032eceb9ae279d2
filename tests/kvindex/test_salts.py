"""Salts that every event tells, of engines whose names leave them out."""

import random

import pytest
from msgspec import structs

from kvindex.blocks import chain
from kvindex.events import BlockStored, EventBatch, KVEvent
from kvindex.feed import Feed
from kvindex.index import Indexes
from kvindex.wire import sglang
from tests.kvindex.engine import CLEARED, MODEL, Clock, ids_of, own, removed, stored
from tests.kvindex.test_namesakes import ROOTS


class Worker:
    """An SGLang worker's stream, and what is known of it."""

    def __init__(self, size: int = 16, first: int = 0) -> None:
        self.size = size
        self.next = first
        self.clock = Clock()
        self.feed = Feed(
            model=MODEL,
            indexes=Indexes(limit_bytes=1 << 24),
            key="w",
            clock=self.clock,
            decode=sglang.decode_batch,
            block_size=size,
        )

    def store(self, salt: str | None, *blocks: int, parent: int | None = None) -> None:
        """Blocks of a salt, which their names leave out."""
        self.send(self.event(salt, *blocks, parent=parent))

    def event(
        self, salt: str | None, *blocks: int, parent: int | None = None
    ) -> BlockStored:
        """The same, not sent yet."""
        event = stored(*blocks, parent=parent, size=self.size)
        return structs.replace(event, salt=salt)

    def send(self, *events: KVEvent) -> None:
        """The next batch."""
        batch = EventBatch(timestamp=1.0, events=events, rank=0)
        self.feed.receive(self.next, sglang.encode_batch(batch))
        self.next += 1

    def held(self, *blocks: int) -> list[int]:
        """What a prompt finds under the salts "a" and "b"."""
        index, owner = self.feed.index, self.feed.owner
        assert index is not None
        assert owner is not None
        prompts = [own(*blocks, size=self.size, root=root) for root in ROOTS]
        return [index.match(prompt, [owner])[0].blocks for prompt in prompts]

    def unsalted(self, *blocks: int) -> int:
        """The same of a prompt without salt."""
        index, owner = self.feed.index, self.feed.owner
        assert index is not None
        assert owner is not None
        return index.match(own(*blocks, size=self.size), [owner])[0].blocks

    def sure(self, *blocks: int) -> list[int]:
        """The same, in blocks of `size` tokens, up to the first that is in doubt."""
        index, owner = self.feed.index, self.feed.owner
        assert index is not None
        assert owner is not None
        sure = []
        for root in ROOTS:
            ids = ids_of(*blocks, size=self.size)
            prompt = chain(ids, index.block_size, root)
            found = index.match(prompt, [owner])[0]
            most = found.suspects[0] if found.suspects else found.blocks
            sure.append(most * index.block_size // self.size)
        return sure

    @property
    def listed(self) -> int:
        """Blocks whose salt is remembered."""
        holder = self.feed._intake.holder
        assert holder is not None
        return len(holder.shelf.salts)


def test_a_child_is_its_salts() -> None:
    """Where that salt's parent is not known it waits, and is nobody else's."""
    worker = Worker()
    worker.store("a", 1)
    worker.store("b", 2, parent=1)
    assert (worker.held(1, 2), worker.feed.orphans) == ([1, 0], 1)
    worker.store("b", 1)
    assert (worker.held(1, 2), worker.feed.orphans) == ([1, 2], 0)


def test_a_parent_whose_name_is_gone() -> None:
    """A removal tells no salt; the child of the one that is left waits."""
    worker = Worker()
    worker.store("a", 1)
    worker.store("b", 1)
    worker.send(removed(1))
    worker.store("a", 1)
    worker.store("b", 2, parent=1)
    assert worker.held(1, 2) == [1, 0]


def test_an_orphan_keeps_its_salt() -> None:
    """It is not adopted by a parent of another, whoever comes first."""
    worker = Worker(first=5)
    worker.store("b", 2, 3, parent=1)
    worker.store("a", 1)
    assert (worker.held(1, 2, 3), worker.feed.orphans) == ([1, 0], 2)
    worker.store("a", 2, parent=1)
    assert (worker.held(1, 2, 3), worker.feed.orphans) == ([2, 0], 2)
    worker.store("b", 1)
    assert (worker.held(1, 2, 3), worker.feed.orphans) == ([2, 3], 0)
    worker.store("b", 4, parent=3)
    assert worker.held(1, 2, 3, 4) == [2, 4]


def test_orphans_of_two_salts_with_one_name() -> None:
    """A removal tells neither: the first is kept, and goes with it."""
    worker = Worker(first=5)
    worker.store("a", 2, parent=1)
    worker.store("b", 2, parent=1)
    worker.send(removed(2))
    worker.store("a", 1)
    worker.store("b", 1)
    assert (worker.held(1, 2), worker.feed.orphans) == ([1, 1], 0)


def test_a_system_prompt_of_two_salts() -> None:
    """New chats are indexed below it, each below its own, however deep."""
    worker = Worker()
    for salt in "ab":
        worker.store(salt, 1, 2)
    worker.store("a", 3, parent=2)
    worker.store("b", 3, 4, parent=2)
    worker.store("a", 5, parent=3)
    assert (worker.held(1, 2, 3, 4), worker.held(1, 2, 3, 5)) == ([3, 4], [4, 3])
    assert not worker.feed.counters.rejected
    assert worker.feed.complete


def test_a_child_that_tells_no_salt_has_none() -> None:
    """It is nobody's whose salt is told, and is found by those who have none."""
    worker = Worker()
    for salt in ("a", None, "b"):
        worker.store(salt, 1)
    worker.store(None, 2, parent=1)
    worker.store("a", 3, parent=1)
    assert (worker.held(1, 2), worker.held(1, 3)) == ([1, 1], [2, 1])
    assert (worker.unsalted(1, 2), worker.unsalted(1, 3)) == (2, 1)
    assert not worker.feed.counters.rejected
    assert worker.feed.complete


def test_a_child_without_salt_waits_for_a_parent_without() -> None:
    """Also where its name stood for several chains, all of which are gone."""
    worker = Worker()
    for salt in (None, "a"):
        worker.store(salt, 1)
    worker.send(removed(1))
    worker.store(None, 2, parent=1)
    worker.store("a", 1)
    assert (worker.held(1, 2), worker.feed.orphans) == ([1, 0], 1)
    worker.store(None, 1)
    assert (worker.held(1, 2), worker.unsalted(1, 2)) == ([1, 0], 2)


@pytest.mark.parametrize("size", [8, 16])
def test_what_is_gone_is_not_remembered(size: int) -> None:
    """Blocks and pages: by removals, and by a clear."""
    worker = Worker(size)
    worker.store("a", 1, 2)
    worker.store("b", 3, 4)
    worker.store(None, 5)
    assert worker.listed == 4
    worker.send(removed(2, 1))
    assert worker.listed == 2
    worker.send(CLEARED)
    assert worker.listed == 0
    assert worker.feed.index is not None
    assert worker.feed.index.bytes == 0


def test_what_it_takes_is_charged() -> None:
    """A salted block takes more than another."""
    plain, salted = Worker(), Worker()
    plain.store(None, 1, 2)
    salted.store("a", 1, 2)
    assert plain.feed.index is not None
    assert salted.feed.index is not None
    assert salted.feed.index.bytes == plain.feed.index.bytes + 200


def test_a_removal_means_an_orphan_of_another_salt_too() -> None:
    """It does not tell whether the block or the orphan of that name is gone."""
    worker = Worker(first=5)
    worker.store("b", 2, parent=1)
    worker.store("a", 1, 2)
    worker.send(removed(2))
    worker.store("b", 1)
    assert (worker.held(1, 2), worker.feed.orphans) == ([1, 1], 0)


@pytest.mark.parametrize("size", [8, 16])
def test_nothing_is_credited_to_a_salt_that_is_gone(size: int) -> None:
    """Whatever is stored, removed and lost under names that two salts share."""
    for seed in range(60):
        rng, worker = random.Random(seed), Worker(size, first=seed % 2)
        held: set[tuple[str, int]] = set()  # each block follows on the one before
        worker.store("a", 9)
        for _ in range(40):
            salt = rng.choice("ab")
            last = max((block for key, block in held if key == salt), default=0)
            event: KVEvent = removed(last)
            if rng.random() < 0.35 and last:
                held.discard((salt, last))
            else:
                blocks = range(last + 1, last + rng.randint(2, 4))
                event = worker.event(salt, *blocks, parent=last or None)
                held.update((salt, block) for block in blocks)
            if rng.random() < 0.15:
                worker.next += 1
                continue
            worker.send(event)
            worker.clock.now += rng.choice((1, 1, 1, 700))
            worker.feed.tick()
            for key, most in zip("ab", worker.sure(*range(1, 80)), strict=True):
                assert {(key, block) for block in range(1, most + 1)} <= held
