"""A feed against a worker with several media, names and salts, and lost batches.

The worker is a counter of copies, with nothing clever: whatever was lost, a settled and
live feed credits no block that is not in it, on GPU and in any medium; and where all
was told and each name is one block's, all that is in it.
"""

from collections import Counter
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from kvindex.blocks import Namespace
from kvindex.events import KVEvent
from kvindex.feed import FeedSettings
from kvindex.standing import FeedState
from tests.kvindex.engine import CLEARED, MODEL, Stream, own, removed, stored
from tests.kvindex.test_by_name import bare

TTL = 10.0
MEDIA = ["GPU", "CPU", "DISK"]


class Block(NamedTuple):
    """What a block is, the name it goes by: `alias` tells its names apart."""

    salt: str
    label: int
    alias: int = 0


class Copy(NamedTuple):
    """Where it is."""

    medium: str
    block: Block


BLOCKS = {
    "unique": [Block("a", label) for label in range(2)],
    "aliases": [Block("a", label, alias) for label in range(2) for alias in range(2)],
    "namesakes": [Block(salt, label) for salt in "ab" for label in range(2)],
    "both": [
        Block(salt, label, alias)
        for salt in "ab"
        for label in range(2)
        for alias in range(2)
    ],
}
NAMED = ("unique", "aliases")
"""Where each name is one block's."""
LOST = st.sampled_from([False] * 3 + [True])


def name(block: Block) -> int:
    """What the engine calls it: its salt is left out."""
    return 100 + 10 * block.label + block.alias


def own_hash(block: Block) -> int:
    """What it is: all its names are of one content."""
    root = Namespace(model=MODEL, salt=block.salt).root()
    return own(block.label, root=root)[0]


class WorkerMachine(RuleBasedStateMachine):
    """The worker, and the stream between."""

    kind = "unique"

    def __init__(self) -> None:
        super().__init__()
        self.stream = Stream(block_size=16, settings=FeedSettings(suspect_ttl_s=TTL))
        self.worker: Counter[Copy] = Counter()
        self.behind = False
        self.deliver(CLEARED)

    def deliver(self, *events: KVEvent, lost: bool = False) -> None:
        """One batch, that may get lost: then the feed is behind until the next."""
        if lost:
            self.stream.lose()
        else:
            self.stream.send(*events)
        self.behind = lost
        self.check()

    def put(self, medium: str, block: Block) -> KVEvent:
        """One more copy on GPU; another medium has one of each."""
        copy = Copy(medium, block)
        self.worker[copy] = self.worker[copy] + 1 if medium == "GPU" else 1
        return stored(
            block.label,
            names=(name(block),),
            medium=medium,
            extra_keys=((block.salt,),),
        )

    @rule(medium=st.sampled_from(MEDIA), pick=st.integers(0, 7), lost=LOST)
    def store(self, medium: str, pick: int, lost: bool) -> None:
        """A block that is not there yet: from its root an engine tells of no copies."""
        block = BLOCKS[self.kind][pick % len(BLOCKS[self.kind])]
        if Copy(medium, block) not in self.worker:
            self.deliver(self.put(medium, block), lost=lost)

    @precondition(lambda self: self.worker)
    @rule(medium=st.sampled_from(["CPU", "DISK"]), pick=st.integers(0, 30), lost=LOST)
    def offload(self, medium: str, pick: int, lost: bool) -> None:
        """A copy goes to another medium, which tells its name only.

        Of a name that is several blocks' nobody knows then which, if one was missed.
        """
        block = self.pick(pick).block
        if self.kind in NAMED and Copy(medium, block) not in self.worker:
            self.put(medium, block)
            self.deliver(bare(name(block), medium=medium), lost=lost)

    @precondition(lambda self: self.worker)
    @rule(pick=st.integers(0, 30), lost=LOST)
    def evict(self, pick: int, lost: bool) -> None:
        """A copy goes."""
        copy = self.pick(pick)
        del self.worker[copy]
        self.deliver(removed(name(copy.block), medium=copy.medium), lost=lost)

    def pick(self, number: int) -> Copy:
        """Any copy."""
        copies = sorted(self.worker)
        return copies[number % len(copies)]

    @precondition(lambda self: self.worker)
    @rule(pick=st.integers(0, 30), lost=LOST)
    def find(self, pick: int, lost: bool) -> None:
        """A request finds a block, which is loaded to the GPU."""
        block = self.pick(pick).block
        if Copy("GPU", block) not in self.worker:
            self.deliver(self.put("GPU", block), lost=lost)
        if not self.behind:
            self.stream.feed.confirmed([own_hash(block)], 1)
        self.check()

    @rule(lost=LOST, restarted=st.booleans())
    def clear(self, lost: bool, restarted: bool) -> None:
        """Nothing is left; a new process counts from 0."""
        self.worker.clear()
        if restarted:
            self.stream.feed.restarted("start time")
            self.stream.next, self.behind = 0, False
        self.deliver(CLEARED, lost=lost and not restarted)

    @rule()
    def reconnect(self) -> None:
        """The connection is lost, and comes back."""
        self.stream.feed.disconnected("lost")
        self.stream.feed.connected()
        self.check()

    @rule(seconds=st.sampled_from([0, 1, 11]))
    def tick(self, seconds: int) -> None:
        """Time passes."""
        self.stream.clock.now += seconds
        self.stream.feed.tick()
        self.check()

    def check(self) -> None:
        """What is credited without doubt, and what the worker has."""
        feed, owner = self.stream.feed, self.stream.feed.owner
        if self.behind or owner is None or feed.state is not FeedState.LIVE:
            return
        on_gpu = {own_hash(c.block) for c in self.worker if c.medium == "GPU"}
        anywhere = {own_hash(copy.block) for copy in self.worker}
        for block_hash in {own_hash(block) for block in BLOCKS[self.kind]}:
            held = self.stream.index.match([block_hash], [owner])[0]
            assert held.gpu_blocks <= (block_hash in on_gpu)
            assert held.blocks <= (block_hash in anywhere)
            if feed.complete and self.kind == "unique":
                assert held.gpu_blocks == (block_hash in on_gpu)
                assert held.blocks == (block_hash in anywhere)

    def teardown(self) -> None:
        """Doubt ends; what is left is there, and goes."""
        self.deliver()
        self.stream.clock.now += TTL
        while self.stream.feed.tick():
            pass
        assert self.stream.feed.state is FeedState.LIVE
        assert not self.stream.owner.suspect_blocks
        self.check()
        for copy in list(self.worker):
            del self.worker[copy]
            self.deliver(removed(name(copy.block), medium=copy.medium))
        assert not self.stream.owner.blocks


class AliasesMachine(WorkerMachine):
    """Two names for one content."""

    kind = "aliases"


class NamesakesMachine(WorkerMachine):
    """One name for two contents."""

    kind = "namesakes"


class BothMachine(WorkerMachine):
    """Two names, each for two contents."""

    kind = "both"


TestUnique = WorkerMachine.TestCase
TestAliases = AliasesMachine.TestCase
TestNamesakes = NamesakesMachine.TestCase
TestBoth = BothMachine.TestCase
TestUnique.settings = settings(max_examples=200, stateful_step_count=25)
TestAliases.settings = TestNamesakes.settings = TestUnique.settings
TestBoth.settings = TestUnique.settings
