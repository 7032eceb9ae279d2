"""The block cache: against a brute-force model, and in its fixed rules."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from kvindex.blocks import unpack_ids
from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent
from simworker.cache import BlockCache
from simworker.contents import Style
from simworker.hashing import BlockHasher, Digest, Identity
from simworker.sglang import caching as sglang
from simworker.trtllm import caching as trtllm
from tests.simworker.follow import Believed, truth

SIZE = 4
HASHER = BlockHasher("sha256", bytes_hashes=True)
PLAIN = Identity()


def chain_of(tokens: list[int], identity: Identity = PLAIN) -> list[Digest]:
    """The hashes of the full blocks of `tokens`."""
    chain: list[Digest] = []
    for number in range(len(tokens) // SIZE):
        block = tokens[number * SIZE : (number + 1) * SIZE]
        parent = chain[-1] if chain else HASHER.root
        chain.append(
            HASHER.block(parent, block, identity.hashed_keys(number, len(block)))
        )
    return chain


def fill(cache: BlockCache, tokens: list[int]) -> list[int] | None:
    """What a request does: look up, allocate, store what is full; it holds them."""
    chain = chain_of(tokens)
    hits = cache.lookup(chain[: (len(tokens) - 1) // SIZE])
    blocks = cache.allocate(hits, -(-len(tokens) // SIZE) - len(hits))
    if blocks is not None:
        cache.store(blocks, chain, tokens, PLAIN, first=len(hits))
    return blocks


class Brute:
    """The cache as a list of blocks in order of reuse, searched from end to end."""

    def __init__(self, blocks: int) -> None:
        self.queue = list(range(1, blocks))
        self.content: dict[int, Digest] = {}
        self.users: Counter[int] = Counter()
        self.order: list[int] = []

    def first_copy(self, digest: Digest) -> int | None:
        return next((b for b in self.order if self.content.get(b) == digest), None)

    def take(self, hits: list[int], new: int) -> tuple[list[int], list[Digest]] | None:
        left = [block for block in self.queue if block not in hits]
        if new > len(left):
            return None
        fresh, self.queue = left[:new], left[new:]
        gone = [self.content[block] for block in fresh if block in self.content]
        for block in fresh:
            if block in self.content:
                del self.content[block]
                self.order.remove(block)
        self.users.update([*hits, *fresh])
        return [*hits, *fresh], gone

    def give_back(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.users[block] -= 1
            if self.users[block]:
                continue
            if block in self.content:
                self.queue.append(block)
            else:
                self.queue.insert(0, block)


class CacheMachine(RuleBasedStateMachine):
    """Requests come, fill blocks and leave in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = BlockCache(blocks=9, block_size=SIZE, hasher=HASHER)
        self.brute = Brute(9)
        self.requests: list[list[int]] = []
        self.events: list[KVEvent] = []

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=20))
    def request(self, tokens: list[int]) -> None:
        """A request with few distinct blocks arrives and is computed."""
        chain = chain_of(tokens)
        hits: list[int] = []
        for digest in chain[: (len(tokens) - 1) // SIZE]:
            copy = self.brute.first_copy(digest)
            if copy is None:
                break
            hits.append(copy)
        expected = self.brute.take(hits, -(-len(tokens) // SIZE) - len(hits))
        blocks = fill(self.cache, tokens)
        if expected is None:
            assert blocks is None
            return
        assert blocks == expected[0]
        self.requests.append(blocks)
        for number in range(len(hits), len(chain)):
            self.brute.content[blocks[number]] = chain[number]
            self.brute.order.append(blocks[number])
        self.check_events(expected[1], chain[len(hits) :])

    def check_events(self, removed: list[Digest], stored: list[Digest]) -> None:
        """One removal a block, then the stores as one event."""
        events = self.cache.take_events()
        removals = [event for event in events if isinstance(event, BlockRemoved)]
        assert [event.hashes for event in removals] == [(each,) for each in removed]
        rest = events[len(removals) :]
        found = [event.hashes for event in rest if isinstance(event, BlockStored)]
        assert found == ([tuple(stored)] if stored else [])
        self.events += events

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A request ends; its blocks stay until they are needed."""
        number = data.draw(st.integers(0, len(self.requests) - 1))
        blocks = self.requests.pop(number)
        self.cache.release(blocks)
        self.brute.give_back(blocks)
        assert self.cache.take_events() == []

    @rule()
    def clear(self) -> None:
        """A reset is refused while a request holds blocks."""
        assert self.cache.clear() == (not self.requests)
        if not self.requests:
            self.brute.content.clear()
            self.brute.order.clear()
            self.events += self.cache.take_events()

    @invariant()
    def same_content(self) -> None:
        """Both hold the same, and so does who only followed the events."""
        brute = self.brute
        assert self.cache.digests() == set(brute.content.values())
        assert self.cache.free == len(brute.queue)
        assert self.cache.held == len(brute.content) <= self.cache.capacity
        followed: Counter[int | bytes] = Counter()
        for event in self.events:
            match event:
                case AllBlocksCleared():
                    followed.clear()
                case BlockStored():
                    followed.update(event.hashes)
                case BlockRemoved():
                    followed.subtract(event.hashes)
                case _:
                    raise AssertionError("no event of vLLM's")
        assert +followed == Counter(brute.content.values())


CacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestCache = CacheMachine.TestCase


def test_stored_event_fields() -> None:
    """A stored event tells span, parent, adapter, group and extra keys."""
    cache = BlockCache(blocks=9, block_size=SIZE, hasher=HASHER)
    identity = Identity(adapter="fr", adapter_path="p", adapter_id=1, salt="s")
    tokens = list(range(10))
    chain = chain_of(tokens, identity)
    blocks = cache.allocate((), 3)
    assert blocks is not None
    cache.store(blocks, chain[:1], tokens, identity, first=0)
    cache.store(blocks, chain, tokens, identity, first=1)
    first, second = cache.take_events()
    assert isinstance(first, BlockStored)
    assert isinstance(second, BlockStored)
    assert (first.hashes, first.parent) == ((chain[0],), None)
    assert (second.hashes, second.parent) == ((chain[1],), chain[0])
    assert unpack_ids(second.token_ids) == [4, 5, 6, 7]
    assert first.extra_keys == (("fr", "s"),)
    assert second.extra_keys == (("fr",),)
    assert (first.adapter, first.adapter_id) == ("fr", 1)
    assert (first.medium, first.group, first.group_kind) == ("GPU", 0, "full_attention")


def test_leaves_go_first() -> None:
    """Of a request's blocks the last ones are reused first."""
    cache = BlockCache(blocks=5, block_size=SIZE, hasher=HASHER)
    tokens = list(range(16))
    blocks = fill(cache, tokens)
    assert blocks is not None
    cache.release(blocks)
    cache.take_events()
    assert fill(cache, [100] * 5) is not None
    removed = [event.hashes[0] for event in cache.take_events()[:2]]  # type: ignore[union-attr]
    chain = chain_of(tokens)
    assert removed == [chain[3], chain[2]]


def test_a_hit_protects_its_blocks() -> None:
    """Blocks taken as hits are not reused for the same request."""
    cache = BlockCache(blocks=4, block_size=SIZE, hasher=HASHER)
    blocks = fill(cache, [1] * 9)
    assert blocks is not None
    cache.release(blocks)
    assert fill(cache, [1] * 8 + [2] * 8) is None
    assert fill(cache, [1] * 8 + [2] * 4) is not None


def test_too_few_blocks() -> None:
    """One block is the null block, so a cache of one could hold nothing."""
    with pytest.raises(ValueError, match="at least 2"):
        BlockCache(blocks=1, block_size=SIZE, hasher=HASHER)


STYLES = {
    "vllm": Style(),
    "sglang": sglang.STYLE,
    "trtllm": trtllm.STYLE,
}


class StyleMachine(RuleBasedStateMachine):
    """Requests come and leave; who follows the events knows the cache, by any style."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[list[int]] = []
        self.believed = Believed()

    @initialize(engine=st.sampled_from(sorted(STYLES)), host=st.integers(0, 6))
    def begin(self, engine: str, host: int) -> None:
        """An engine, with or without a tier behind the GPU."""
        self.style = STYLES[engine]
        self.cache = BlockCache(
            blocks=9, block_size=SIZE, hasher=HASHER, style=self.style, host_blocks=host
        )

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=20))
    def request(self, tokens: list[int]) -> None:
        """What an engine does with a prompt, loads from the tier behind included."""
        chain = chain_of(tokens)
        wanted = chain[: (len(tokens) - 1) // SIZE]
        hits = self.cache.lookup(wanted)
        behind = self.cache.behind(wanted[len(hits) :])
        blocks = self.cache.allocate(hits, -(-len(tokens) // SIZE) - len(hits))
        if blocks is not None:
            found = len(hits) + len(behind)
            self.cache.load(blocks[len(hits) : found], behind)
            self.cache.store(blocks, chain, tokens, PLAIN, first=found)
            self.requests.append(blocks)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A request ends."""
        number = data.draw(st.integers(0, len(self.requests) - 1))
        self.cache.release(self.requests.pop(number))

    @rule()
    def clear(self) -> None:
        """A reset is refused while a request holds blocks."""
        assert self.cache.clear() == (not self.requests)

    @invariant()
    def known(self) -> None:
        """Blocks and their places; no block without the one before it."""
        if not hasattr(self, "cache"):
            return
        self.believed.take(self.cache.take_events())
        assert self.believed.places == truth(self.cache)
        held = {each.content.digest: each.content for each in self.cache.holdings()}
        if not self.style.copies:
            parents = {content.parent for content in held.values()} - {None}
            assert parents <= set(held)
        assert self.cache.used == len({b for blocks in self.requests for b in blocks})


StyleMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=30)
TestStyles = StyleMachine.TestCase
