"""Small pages after a gap: a block is out of doubt once each of its pages is known."""

import random
from collections.abc import Iterator

import pytest
from msgspec import structs

from kvindex.blocks import chain, pack_ids
from kvindex.events import KVEvent
from kvindex.feed import FeedSettings
from tests.kvindex.engine import CLEARED, ROOT, Stream
from tests.kvindex.test_pages import blocks_held, gone, page

IDS = list(range(48))
TTL = 10.0
RUNS = 40
STEPS = 40


def doubtful(size: int) -> Stream:
    """Three blocks were held, and then a batch was lost."""
    stream = Stream(block_size=size, settings=FeedSettings(suspect_ttl_s=TTL))
    stream.send(page(IDS, 1, size=size))
    stream.lose()
    return stream


def settle(stream: Stream) -> None:
    """Let what is in doubt go."""
    stream.clock.now += TTL
    while stream.feed.tick():
        pass
    stream.feed.tick()


def suspects(stream: Stream) -> tuple[int, ...]:
    """Positions of the blocks in doubt."""
    hashes = chain(pack_ids(IDS), 16, ROOT)
    return stream.index.match(hashes, [stream.owner])[0].suspects


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_one_page_stored_again_is_not_its_block(size: int) -> None:
    """The others may be gone; those that come again later bring it back."""
    stream = doubtful(size)
    stream.send(page(IDS[:size], 1, size=size))
    assert suspects(stream) == (0, 1, 2)
    stream.send(page(IDS[:16], 1, size=size))
    assert suspects(stream) == (1, 2)
    stream.send(page(IDS[16 : 16 + size], 1 + 16 // size, 16 // size, size=size))
    settle(stream)
    assert (stream.feed.state, blocks_held(stream, IDS)) == ("live", 1)
    stream.send(page(IDS[16 + size : 32], 2 + 16 // size, 1 + 16 // size, size=size))
    assert blocks_held(stream, IDS) == 2


def test_pages_of_before_another_gap_are_in_doubt_again() -> None:
    """Though no block was out of doubt between the two."""
    stream = doubtful(8)
    stream.send(page(IDS[:8], 1, size=8))
    stream.lose()
    stream.send(page(IDS[8:16], 2, 1, size=8))
    assert suspects(stream) == (0, 1, 2)
    settle(stream)
    assert (stream.feed.state, blocks_held(stream, IDS)) == ("live", 0)


def test_a_page_known_in_one_medium_only() -> None:
    """On the GPU it may be gone all the same."""
    stream = doubtful(8)
    stream.send(page(IDS[:8], 1, size=8, medium="CPU"), page(IDS[8:16], 2, 1, size=8))
    assert suspects(stream) == (0, 1, 2)
    settle(stream)
    assert (stream.feed.state, stream.owner.blocks) == ("live", 0)


def test_a_block_made_of_old_pages_and_new() -> None:
    """It is in doubt as its old page is."""
    stream = Stream(block_size=8, settings=FeedSettings(suspect_ttl_s=TTL))
    stream.send(page(IDS[:24], 1, size=8))
    stream.lose()
    stream.send(page(IDS[24:32], 4, 3, size=8))
    assert suspects(stream) == (0, 1)
    stream.send(page(IDS[16:24], 3, 2, size=8))
    assert suspects(stream) == (0,)


def test_an_old_tail_that_was_stored_again_stays() -> None:
    """It is in no block yet, but known."""
    stream = Stream(block_size=8, settings=FeedSettings(suspect_ttl_s=TTL))
    stream.send(page(IDS[:24], 1, size=8))
    stream.lose()
    stream.send(page(IDS[:8], 1, size=8), page(IDS[8:24], 2, 1, size=8))
    settle(stream)
    stream.send(page(IDS[24:32], 4, 3, size=8))
    assert (stream.feed.state, blocks_held(stream, IDS)) == ("live", 2)


Path = tuple[int, ...]


class Model:
    """A worker that holds pages by their path, and the stream from it."""

    def __init__(self, rng: random.Random, size: int) -> None:
        self.rng = rng
        self.size = size
        settings = FeedSettings(suspect_ttl_s=TTL)
        self.stream = Stream(block_size=size, settings=settings)
        self.names: dict[Path, int] = {}
        self.held: dict[str, set[Path]] = {"GPU": set(), "CPU": set()}
        self.unheard = False

    def name(self, path: Path) -> int:
        """The page's engine hash."""
        return self.names.setdefault(path, len(self.names) + 1)

    def ids(self, path: Path) -> list[int]:
        """All ids up to the page's end."""
        return [100 * part + offset for part in path for offset in range(self.size)]

    def event(self, parts: list[Path], medium: str = "GPU") -> KVEvent:
        """Consecutive pages, stored."""
        before = len(parts[0]) - 1
        above = self.name(parts[0][:-1]) if before else None
        ids = self.ids(parts[-1])[before * self.size :]
        event = page(ids, 0, above, size=self.size, medium=medium)
        return structs.replace(event, hashes=tuple(map(self.name, parts)))

    def store(self) -> Iterator[KVEvent]:
        """A prompt: perhaps what is reused is announced again, then what is new."""
        path = tuple(self.rng.choices((1, 1, 1, 2), k=self.rng.randint(1, self.most)))
        parts = [path[:end] for end in range(1, len(path) + 1)]
        new = [part for part in parts if part not in self.held["GPU"]]
        reused = parts[: len(path) - len(new)][: self.rng.choice((0, 1, len(path)))]
        self.held["GPU"].update(new)
        yield from (self.event(each) for each in (reused, new) if each)

    def offload(self) -> Iterator[KVEvent]:
        """A page is copied to the other medium."""
        pages = sorted(self.held["GPU"] - self.held["CPU"])
        for path in self.rng.sample(pages, min(len(pages), 2)):
            self.held["CPU"].add(path)
            yield self.event([path], "CPU")

    def evict(self) -> Iterator[KVEvent]:
        """Pages without children, of one medium."""
        medium = self.rng.choice(("GPU", "GPU", "CPU"))
        held = self.held[medium]
        for _ in range(self.rng.randint(1, 4)):
            leaves = sorted(held - {path[:-1] for path in held})
            for path in leaves and [self.rng.choice(leaves)]:
                held.discard(path)
                yield gone(self.name(path), medium=medium)

    def clear(self) -> Iterator[KVEvent]:
        """All is gone."""
        for held in self.held.values():
            held.clear()
        yield CLEARED

    @property
    def most(self) -> int:
        """Pages of the longest prompt; it ends within a block."""
        return 40 // self.size

    def step(self) -> None:
        """Something happens, and perhaps nobody hears of it; then time may pass."""
        makers = self.store, self.evict, self.offload, self.clear
        (make,) = self.rng.choices(makers, (50, 30, 20, 3))
        events = tuple(make())
        self.unheard = self.rng.random() < 0.15
        if self.unheard:
            self.stream.lose()
            return
        self.stream.send(*events)
        if self.rng.random() < 0.2:
            self.confirm()
        if self.rng.random() < 0.3:
            self.stream.clock.now += self.rng.choice((1, TTL))
            self.stream.feed.tick()

    def confirm(self) -> None:
        """A request finds what there is of a prompt."""
        path = self.rng.choice(sorted(self.names))
        found = 0
        while any(self.has(path, found, medium) for medium in self.held):
            found += 1
        hashes = chain(pack_ids(self.ids(path)), 16, ROOT)
        self.stream.feed.confirmed(hashes, found)

    def has(self, path: Path, block: int, medium: str) -> bool:
        """Does the worker hold all pages of a block there?"""
        ends = range(16 * block + self.size, 16 * block + 17, self.size)
        parts = [path[: end // self.size] for end in ends]
        whole = len(path) * self.size >= 16 * (block + 1)
        return whole and self.held[medium].issuperset(parts)

    def check(self) -> None:
        """What is credited in full is held."""
        for path in tuple(self.names):
            hashes = chain(pack_ids(self.ids(path)), 16, ROOT)
            found = self.stream.index.match(hashes, [self.stream.owner])[0]
            for block in set(range(found.blocks)) - set(found.suspects):
                media = [each for each in self.held if self.has(path, block, each)]
                assert media, (path, block)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_nothing_is_credited_in_full_that_is_gone(size: int) -> None:
    """Whatever is stored, evicted and lost; and every doubt comes to an end."""
    for seed in range(RUNS):
        model = Model(random.Random(seed), size)
        model.stream.send(*model.store())
        for _ in range(STEPS):
            model.step()
            if not model.unheard:
                model.check()
        model.stream.send()
        settle(model.stream)
        assert model.stream.feed.state == "live"
        model.check()
