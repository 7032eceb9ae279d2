"""Feeds of every engine under every fault, against the worker's real cache.

Whatever happened: what is credited without doubt was told by a batch that came, and
once the last batch is followed by a later one it is in the worker's cache; doubt ends
after its time, and then nothing is credited that is not there.
"""

from itertools import product

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvindex.blocks import chain
from kvindex.feed import Feed, FeedSettings
from kvindex.following import SHARED
from kvindex.index import Indexes
from kvindex.standing import FeedState
from tests.kvindex.belief import SIZE, Path, ids
from tests.kvindex.engine import MODEL, ROOT, Clock
from tests.kvindex.faulty_worker import DECODERS, FaultyWorker

DEPTH = 3
PATHS = [path for n in range(1, DEPTH + 1) for path in product((1, 2), repeat=n)]
HASHES = {path: chain(ids(path), SIZE, ROOT) for path in PATHS}
TTL = 60.0
Batch = tuple[int, bytes]
FAULTS = ("none",) * 4 + ("drop", "duplicate", "delay", "malformed", "broken")


class FaultMachine(RuleBasedStateMachine):
    """The worker, the faults on the way, and the feed."""

    engine = "vllm"
    can_replay = False

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.worker = FaultyWorker(self.engine)
        self.indexes = Indexes(limit_bytes=1 << 28)
        self.feed = Feed(
            model=MODEL,
            indexes=self.indexes,
            key="w",
            clock=self.clock,
            settings=FeedSettings(suspect_ttl_s=TTL),
            block_size=SIZE,
            decode=DECODERS[self.engine],
        )
        self.feed.can_replay = self.can_replay
        self.delayed: list[Batch] = []
        self.untold = False
        self.told: set[Path] = set()

    @initialize(late=st.booleans())
    def start(self, late: bool) -> None:
        """The worker starts; the gateway may come later."""
        if late:
            self.worker.start()
            self.worker.store((1, 1))
        else:
            self.deliver(self.worker.start())

    def deliver(self, batches: list[Batch], fault: str = "none") -> None:
        """Batches on their way, the first of them with this fault."""
        for number, content in batches:
            if fault == "delay" or (self.delayed and fault == "none"):
                self.delayed.append((number, content))
            elif fault == "malformed":
                self.receive(number, content[:-2])
            elif fault == "broken":
                self.receive(number, self.worker.broken(content))
            elif fault != "drop":
                self.receive(number, content)
                if fault == "duplicate":
                    self.receive(number, content)
            fault = "none"

    def receive(self, number: int, content: bytes) -> None:
        """One batch arrives."""
        self.told |= self.worker.told_by(content)
        self.feed.receive(number, content)

    @rule(
        labels=st.lists(st.integers(1, 2), min_size=1, max_size=DEPTH),
        fault=st.sampled_from(FAULTS),
    )
    def store(self, labels: list[int], fault: str) -> None:
        """A prompt is computed."""
        self.deliver(self.worker.store(tuple(labels)), fault)

    @rule(
        pick=st.integers(0, 9),
        medium=st.sampled_from(["GPU", "CPU"]),
        fault=st.sampled_from(FAULTS),
        look=st.booleans(),
    )
    def evict(self, pick: int, medium: str, fault: str, look: bool) -> None:
        """A leaf is evicted; without a look much may hide it."""
        leaves = self.worker.leaves(medium)
        if leaves:
            path = leaves[pick % len(leaves)]
            self.deliver(self.worker.evict(path, medium), fault)
        if look:
            self.settle()

    @rule(pick=st.integers(0, 9), fault=st.sampled_from(FAULTS))
    def offload(self, pick: int, fault: str) -> None:
        """A leaf moves to the host."""
        leaves = self.worker.leaves("GPU")
        if leaves:
            self.deliver(self.worker.offload(leaves[pick % len(leaves)]), fault)

    @rule(fault=st.sampled_from(FAULTS), anew=st.booleans(), look=st.booleans())
    def reset(self, fault: str, anew: bool, look: bool) -> None:
        """The cache is emptied, or made anew; the numbers go on."""
        empty = self.worker.recreate if anew else self.worker.reset
        self.deliver(empty(), fault)
        if look:
            self.settle()

    @rule(parent=st.integers(2**62, 2**63), label=st.integers(1, 2))
    def lie(self, parent: int, label: int) -> None:
        """A block below a parent that nobody knows."""
        self.deliver([self.worker.batch(self.worker.stored((label, label), parent))])

    @rule(label=st.integers(1, 2))
    def remove_unknown(self, label: int) -> None:
        """A removal of what is not there."""
        path = (label,) * (DEPTH + 1)
        self.worker.cache[path] = {"GPU"}
        self.deliver(self.worker.evict(path, "GPU"))

    @rule(labels=st.lists(st.integers(1, 2), min_size=2, max_size=2))
    def reorder(self, labels: list[int]) -> None:
        """Two batches change places."""
        first = self.worker.store((labels[0],)) or self.worker.reset()
        second = self.worker.store(tuple(labels))
        if not self.delayed:
            self.deliver([*second[:1], *first, *second[1:]])
        else:
            self.deliver(first + second)

    @rule(lost=st.integers(0, 4), told=st.booleans(), heard=st.booleans())
    def restart(self, lost: int, told: bool, heard: bool) -> None:
        """A new process; its first batches may be lost, its start time read late.

        Where none is heard, a replay has them all.
        """
        self.delayed.clear()
        self.feed.disconnected("connection lost")
        batches = self.worker.start()
        for labels in ((1,), (2,), (1, 2))[:lost]:
            batches += self.worker.store(labels)
        self.untold = True
        if told:
            self.tell()
        self.feed.connected()
        if heard or not self.can_replay:
            self.deliver(batches[lost:])
        else:
            self.replay(complete=True, limit=0)

    def tell(self) -> None:
        """The start time is read."""
        if self.untold:
            self.untold = False
            self.feed.restarted("process start time changed")

    @rule()
    def reconnect(self) -> None:
        """The connection is lost and comes back; nothing is missed."""
        self.feed.disconnected("connection lost")
        self.feed.connected()

    @rule()
    def flush(self) -> None:
        """What was delayed arrives."""
        delayed, self.delayed = self.delayed, []
        self.deliver(delayed)

    @rule(complete=st.booleans(), limit=st.integers(0, 40))
    def replay(self, complete: bool, limit: int) -> None:
        """A replay, if one is wanted; it may be cut off.

        After a whole one all that was published has arrived.
        """
        for turn in range(3):
            start = self.feed.replay_from
            if start is None:
                if turn and complete:
                    self.check(in_doubt=self.feed.state is FeedState.LIVE)
                return
            self.feed.replaying(start)
            for number, content in sorted(self.worker.kept.items()):
                if number >= start and (complete or number < limit):
                    self.told |= self.worker.told_by(content)
                    self.feed.replayed(number, content)
            self.feed.replay_ended(complete)

    @rule(seconds=st.sampled_from([1, 31, 61]))
    def wait(self, seconds: int) -> None:
        """Time passes."""
        self.clock.now += seconds
        self.feed.tick()
        self.indexes.sweep(50)

    @rule()
    def settle(self) -> None:
        """All arrives, a later batch too: what is credited without doubt is there."""
        self.flush()
        if not self.can_replay:
            self.tell()
        self.deliver(self.worker.store((2,)) or self.worker.evict_or_store())
        self.replay(complete=True, limit=0)
        self.check(in_doubt=self.feed.state is FeedState.LIVE)

    def check(self, *, in_doubt: bool) -> None:
        """Compare what is credited with the cache; blocks `in_doubt`, too."""
        assert self.feed.index is not None
        assert self.feed.owner is not None
        for path, hashes in HASHES.items():
            held = self.feed.index.match(hashes, [self.feed.owner])[0]
            last = len(path) - 1
            if held.blocks > last and (in_doubt or last not in held.suspects):
                assert path in self.worker.cache
                if held.gpu_blocks > last:
                    assert "GPU" in self.worker.cache[path]

    @invariant()
    def only_what_was_told(self) -> None:
        """Nothing is credited that no batch has told of; live is without doubt."""
        assert self.feed.index is not None
        assert self.feed.owner is not None
        for path, hashes in HASHES.items():
            held = self.feed.index.match(hashes, [self.feed.owner])[0]
            assert held.blocks < len(path) or path in self.told
        if self.feed.state is FeedState.LIVE:
            assert not self.feed.owner.suspect_blocks

    def teardown(self) -> None:
        """After its time all doubt is over, and what is left is there.

        Many batches out of order in a row look like two publishers.
        """
        if not self.worker.process:
            return
        self.settle()
        for complete in (False, False, True):
            self.clock.now += TTL
            self.feed.tick()
            self.replay(complete=complete, limit=0)
        assert self.feed.state is FeedState.LIVE or self.feed.reason == SHARED
        self.check(in_doubt=True)


class TrtllmMachine(FaultMachine):
    """A drain: no replay, ids go back or have holes."""

    engine = "trtllm"


class ReplayMachine(FaultMachine):
    """vLLM with a replay socket."""

    can_replay = True


TestVllm = FaultMachine.TestCase
TestTrtllm = TrtllmMachine.TestCase
TestReplay = ReplayMachine.TestCase
TestVllm.settings = settings(max_examples=100, stateful_step_count=30)
TestTrtllm.settings = TestReplay.settings = TestVllm.settings
