"""A feed and its index against a worker that really keeps a cache.

The worker stores, copies, evicts leaves, clears and restarts; batches get lost, the
connection breaks, time passes, sweeps come in slices of any size. `Belief` says what
the index may then claim: dictionaries and sets, nothing clever.
"""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvindex.blocks import chain
from kvindex.feed import FeedSettings
from kvindex.standing import FeedState
from tests.kvindex.belief import (
    SIZE,
    Belief,
    Copy,
    Evict,
    Move,
    Store,
    event_of,
    ids,
    own_hash,
)
from tests.kvindex.engine import CLEARED, ROOT, Stream

TTL = 60.0
DEPTH = 4


class FeedMachine(RuleBasedStateMachine):
    """The worker, the stream between, and what may be believed."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = Stream(block_size=SIZE, settings=FeedSettings(suspect_ttl_s=TTL))
        self.worker: Counter[Copy] = Counter()
        self.belief = Belief()
        self.missed = self.lost = self.settling = False
        self.unharmed = True
        self.doubt_since = 0.0
        self.deliver()

    def deliver(self, *moves: Move, lose: bool = False) -> None:
        """One batch, which may get lost."""
        if lose:
            self.stream.lose()
            self.missed = True
            return
        if self.missed:
            self.doubt()
            self.belief.miss()
            self.unharmed = False
        elif self.lost and self.unharmed:
            self.belief.fresh = None
            self.settling = False
        self.missed = self.lost = False
        for move in moves:
            self.belief.learn(move)
            if move is None:
                self.unharmed, self.settling = True, False
        self.stream.send(*(event_of(move) for move in moves))

    def doubt(self) -> None:
        """A new doubt does not prolong an old one."""
        if not self.belief.suspects:
            self.doubt_since = self.stream.clock.now
        self.belief.fresh, self.belief.apart = set(), False
        self.settling = False

    @rule(
        medium=st.sampled_from(["GPU", "GPU", "CPU"]),
        base=st.integers(0, 30),
        labels=st.lists(st.integers(1, 2), min_size=1, max_size=3),
        lose=st.integers(0, 5),
    )
    def store(self, medium: str, base: int, labels: list[int], lose: int) -> None:
        """Blocks under one that the worker holds, or under the root: never again
        what it would reuse, but for the last one."""
        bases = [(), *sorted(c.path for c in self.worker if c.medium == medium)]
        path = (*bases[base % len(bases)], *labels)[:DEPTH]
        count = len(path)
        while count > 1 and Copy(medium, path[: len(path) - count + 1]) in self.worker:
            count -= 1
        move = Store(medium, path, count)
        self.worker.update(Copy(medium, stored) for stored in move.paths)
        self.deliver(move, lose=lose == 0)

    @precondition(lambda self: self.worker)
    @rule(pick=st.integers(0, 30), lose=st.integers(0, 5))
    def announce(self, pick: int, lose: int) -> None:
        """A report in full: nothing new is stored."""
        copies = sorted(copy for copy in self.worker if len(copy.path) > 1)
        if copies:
            medium, path = copies[pick % len(copies)]
            self.deliver(Store(medium, path, len(path)), lose=lose == 0)

    @precondition(lambda self: self.worker)
    @rule(pick=st.integers(0, 30), lose=st.integers(0, 5))
    def evict(self, pick: int, lose: int) -> None:
        """One copy of a leaf."""
        parents = {Copy(copy.medium, copy.path[:-1]) for copy in self.worker}
        leaves = sorted(set(self.worker) - parents)
        copy = leaves[pick % len(leaves)]
        self.worker[copy] -= 1
        self.worker = +self.worker
        self.deliver(Evict(copy), lose=lose == 0)

    @rule(lose=st.integers(0, 2))
    def clear(self, lose: int) -> None:
        """The worker's cache is reset; a block is stored at once."""
        self.worker = Counter({Copy("GPU", (1,)): 1})
        self.deliver(None, Store("GPU", (1,), 1), lose=lose == 0)

    @rule(told=st.booleans())
    def restart(self, told: bool) -> None:
        """A new process, seen by its start time or by its first batch."""
        if told or self.stream.next == 1:
            self.stream.feed.restarted("start time")
        self.worker.clear()
        self.belief.forget()
        self.missed = self.lost = self.settling = False
        self.unharmed = True
        self.stream.next = 0
        self.stream.send(CLEARED)

    @rule()
    def disconnect(self) -> None:
        """The connection is lost."""
        if not self.lost:
            self.unharmed = self.unharmed or self.belief.fresh is None
            self.lost = True
            self.doubt()
            if not self.unharmed:
                self.belief.miss()
            self.stream.feed.disconnected("lost")

    @rule(seconds=st.sampled_from([1, 20, 61]))
    def wait(self, seconds: int) -> None:
        """Time passes."""
        self.stream.clock.now += seconds

    @rule()
    def tick(self) -> None:
        """Suspects that are overdue go; a doubt about nothing ends."""
        belief = self.belief
        overdue = self.stream.clock.now - self.doubt_since >= TTL
        if overdue and (self.lost or belief.suspects):
            belief.orphans.clear()
        if belief.suspects and overdue and not self.settling:
            if not belief.apart:
                belief.miss()
            self.unharmed, self.settling = False, True
        if self.settling or not belief.suspects:
            belief.walk()
        if not belief.suspects and not self.lost:
            belief.fresh, self.settling = None, False
        self.stream.feed.tick()

    @precondition(lambda self: self.belief.suspects)
    @rule(pick=st.integers(0, 30), delivered=st.integers(0, DEPTH))
    def confirm(self, pick: int, delivered: int) -> None:
        """Delivered tokens confirm some blocks and contradict others."""
        belief = self.belief
        paths = sorted({copy.path for copy in belief.held})
        path = paths[pick % len(paths)]
        assert belief.fresh is not None
        belief.fresh |= {
            path[:end]
            for end in range(1, min(delivered, len(path)) + 1)
            if path[:end] in paths
        }
        wrong = {path[:end] for end in range(delivered + 1, len(path) + 1)}
        wrong &= belief.suspects
        belief.silenced |= {copy for copy in belief.named if copy.path in wrong}
        self.stream.feed.confirmed(chain(ids(path), SIZE, ROOT), delivered)

    @rule(budget=st.integers(1, 400))
    def sweep(self, budget: int) -> None:
        """A slice."""
        self.stream.indexes.sweep(budget)

    @invariant()
    def index_agrees(self) -> None:
        """Held, on GPU, in doubt, waiting: as believed."""
        owner, index, belief = self.stream.owner, self.stream.index, self.belief
        paths = {copy.path for copy in belief.held}
        seen = paths | {copy.path for copy in (*self.worker, *belief.named)}
        assert all(index.holds(owner, own_hash(p)) == (p in paths) for p in seen)
        assert owner.blocks == len(paths)
        on_gpu = [copy for copy in belief.held if copy.medium == "GPU"]
        assert owner.gpu_blocks == len(on_gpu)
        assert owner.suspect_blocks == len(belief.suspects)
        assert self.stream.feed.orphans == len(belief.orphans)

    @invariant()
    def state_agrees(self) -> None:
        """Live is without doubt, and complete is what the worker has."""
        feed = self.stream.feed
        assert feed.state in (FeedState.LIVE, FeedState.DEGRADED)
        if self.belief.suspects or self.lost:
            assert feed.state is FeedState.DEGRADED
        if feed.complete and not self.missed and not self.lost:
            # A second copy of a first block is taken for a report of the one.
            hidden = set(self.worker) - self.belief.held
            assert self.belief.held <= set(self.worker)
            assert all(len(copy.path) == 1 for copy in hidden)


TestFeedMachine = FeedMachine.TestCase
TestFeedMachine.settings = settings(max_examples=60, stateful_step_count=40)
