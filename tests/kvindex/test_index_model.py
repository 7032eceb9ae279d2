"""The prefix index against dictionaries of sets, in any order of calls."""

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvindex.index import PrefixIndex
from kvindex.owner import Owner

LIMIT = 14
CHAINS = [
    [10_000 * branch + i if i >= fork else i + 1 for i in range(8)]
    for branch, fork in ((1, 8), (2, 3), (3, 5), (4, 0))
]
CHAIN = st.sampled_from(CHAINS)
LENGTH = st.integers(0, 8)
WHO = st.integers(0, 2)


class Truth:
    """What one owner should hold."""

    def __init__(self) -> None:
        self.gpu: set[int] = set()
        self.other: set[int] = set()
        self.fresh: set[int] | None = None
        self.settling = False

    @property
    def held(self) -> set[int]:
        return self.gpu | self.other

    @property
    def suspects(self) -> set[int]:
        return set() if self.fresh is None else self.held - self.fresh


class IndexMachine(RuleBasedStateMachine):
    """Stores, removals, clearings, doubts and sweeps, at a small bound."""

    def __init__(self) -> None:
        super().__init__()
        self.index = PrefixIndex(block_size=16, limit_blocks=LIMIT)
        self.owners = [self.index.add_owner(i) for i in range(3)]
        self.truth = [Truth() for _ in range(3)]
        self.refused = 0

    @rule(who=WHO, chain=CHAIN, length=LENGTH, on_gpu=st.booleans())
    def store(self, who: int, chain: list[int], length: int, on_gpu: bool) -> None:
        """A prefix, as an engine stores it."""
        truth, run = self.truth[who], chain[:length]
        entries = self.index.blocks
        medium = truth.gpu if on_gpu else truth.other
        before = set(medium)
        accepted, again = self.index.store_run(self.owners[who], run, on_gpu=on_gpu)
        assert again == [h for h in run[:accepted] if h in before]
        if accepted < length:
            assert self.index.blocks == LIMIT >= entries
            assert run[accepted] not in truth.held
            self.refused += length - accepted
        medium.update(run[:accepted])
        if truth.fresh is not None:
            truth.fresh.update(run[:accepted])

    @rule(who=WHO, chain=CHAIN, count=LENGTH, on_gpu=st.booleans())
    def remove(self, who: int, chain: list[int], count: int, on_gpu: bool) -> None:
        """Leaves first: nothing that another chain of this owner still needs."""
        medium = self.truth[who].gpu if on_gpu else self.truth[who].other
        for block_hash in reversed(chain):
            if not count or self._has_child(block_hash, medium):
                return
            count -= block_hash in medium
            medium.discard(block_hash)
            self.index.remove(self.owners[who], block_hash, on_gpu=on_gpu)
        self._forget_fresh(who)

    def _has_child(self, block_hash: int, medium: set[int]) -> bool:
        return any(
            child in medium
            for chain in CHAINS
            for parent, child in itertools.pairwise(chain)
            if parent == block_hash
        )

    def _forget_fresh(self, who: int) -> None:
        truth = self.truth[who]
        if truth.fresh is not None:
            truth.fresh &= truth.held

    @rule(who=WHO)
    def clear(self, who: int) -> None:
        """The owner's cache is emptied."""
        self.index.clear(self.owners[who])
        self.truth[who] = Truth()

    @rule(who=WHO)
    def replace(self, who: int) -> None:
        """The owner leaves and another comes."""
        self.index.retire(self.owners[who])
        assert not self.index.store(self.owners[who], 1, on_gpu=True)
        self.refused += 1
        self.owners[who] = self.index.add_owner(who)
        self.truth[who] = Truth()

    @rule(who=WHO)
    def suspect(self, who: int) -> None:
        """Events were missed."""
        self._forget_fresh(who)
        self.index.suspect(self.owners[who])
        self.truth[who].fresh = set()
        self.truth[who].settling = False

    @rule(who=WHO, chain=CHAIN, length=LENGTH)
    def confirm(self, who: int, chain: list[int], length: int) -> None:
        """A prefix was seen to be there."""
        self.index.confirm(self.owners[who], chain[:length])
        truth = self.truth[who]
        if truth.fresh is not None:
            truth.fresh |= truth.held & set(chain[:length])

    @rule(who=WHO)
    def settle(self, who: int) -> None:
        """Suspects stop to match."""
        if self.owners[who].fresh:
            self.index.settle(self.owners[who])
            self.truth[who].settling = True

    @rule(who=WHO, chain=CHAIN, position=st.integers(0, 7))
    def drop_suspect(self, who: int, chain: list[int], position: int) -> None:
        """One is dropped, deeper ones first so that prefixes stay closed."""
        truth = self.truth[who]
        block_hash = chain[position]
        if self._has_child(block_hash, truth.held):
            return
        gone = block_hash not in truth.held or block_hash in truth.suspects
        if block_hash in truth.suspects:
            truth.gpu.discard(block_hash)
            truth.other.discard(block_hash)
        assert self.index.drop_suspect(self.owners[who], block_hash) == gone

    @rule(who=WHO)
    def trust(self, who: int) -> None:
        """The doubt is over."""
        self.index.trust(self.owners[who])
        self.truth[who].fresh = None
        self.truth[who].settling = False

    @rule(budget=st.integers(1, 300))
    def sweep(self, budget: int) -> None:
        """A slice of any size."""
        self.index.sweep(budget)

    @precondition(lambda self: self.index.blocks)
    @rule()
    def sweep_all(self) -> None:
        """After a whole sweep only what is held is left."""
        while self.index.sweep(1000):
            pass
        assert self.index.blocks == len(set().union(*(t.held for t in self.truth)))

    @invariant()
    def counts_agree(self) -> None:
        """Per owner, and against the bound."""
        for owner, truth in zip(self.owners, self.truth, strict=True):
            assert owner.blocks == len(truth.held)
            assert owner.gpu_blocks == len(truth.gpu)
            assert owner.suspect_blocks == len(truth.suspects)
        assert self.index.blocks <= LIMIT
        assert self.index.refused == self.refused

    @invariant()
    def matches_agree(self) -> None:
        """For each prompt: the scan over sets, and membership of each block."""
        for chain in CHAINS:
            found = self.index.match(chain, self.owners)
            for held, owner, truth in zip(found, self.owners, self.truth, strict=True):
                self._compare(chain, held, owner, truth)

    def _compare(
        self, chain: list[int], held: object, owner: Owner, truth: Truth
    ) -> None:
        matching = truth.held - truth.suspects if truth.settling else truth.held
        blocks = leading(chain, matching)
        gpu = min(leading(chain, truth.gpu), blocks)
        suspects = tuple(i for i in range(blocks) if chain[i] in truth.suspects)
        assert (held.gpu_blocks, held.blocks, held.suspects) == (  # type: ignore[attr-defined]
            gpu,
            blocks,
            suspects,
        )
        assert all(self.index.holds(owner, h) == (h in truth.held) for h in chain)


def leading(chain: list[int], held: set[int]) -> int:
    """How many leading blocks are in the set."""
    return next((i for i, h in enumerate(chain) if h not in held), len(chain))


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=60, stateful_step_count=40)
