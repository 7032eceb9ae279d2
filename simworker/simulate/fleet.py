"""Virtual workers behind the router of the gateway: the same classes, another clock.

Only what lies between is simulated: the workers, and their events' way. A block that a
worker stores or removes is noted in the router's index under the worker's feed, in
batches that arrive late, or not at all, as the faults have it.
"""

import random
from collections.abc import Callable

from kvindex.events import EventBatch
from kvindex.index import Indexes
from kvindex.knowledge import Knowledge
from kvindex.wire import vllm
from router.models import ListedModel
from router.policy import Policy
from router.pool import WorkerPool
from router.router import Router
from router.worker import Worker, WorkerSpec
from simworker.simulate.options import SimulateOptions
from simworker.simulate.timeline import Timeline
from simworker.simulate.worker import Speed, VirtualWorker

MODEL = "simulated"
PROFILE = "vllm"
INDEX_BYTES = 1 << 40
"""What is simulated is the choice, not the gateway's memory."""
SWEPT = 20_000
_EMPTY = vllm.encode_batch(EventBatch(timestamp=0.0, events=()))


class _Events:
    """The KV events of one virtual worker, on their way to the router's index."""

    def __init__(
        self,
        timeline: Timeline,
        knowledge: Knowledge,
        *,
        delay_s: float,
        lost: Callable[[], bool],
    ) -> None:
        self._timeline = timeline
        self._knowledge = knowledge
        self._delay_s = delay_s
        self._lost = lost
        self._sequence = 0
        self._send(lambda: None)

    def stored(self, blocks: list[int]) -> None:
        """The worker stored these."""
        self._send(lambda: self._note(blocks))

    def removed(self, blocks: list[int]) -> None:
        """The worker no longer holds these."""
        self._send(lambda: self._forget(blocks))

    def restart(self) -> None:
        """The worker's process is a new one, and counts anew."""
        self._sequence = 0
        self._send(lambda: None)

    def _send(self, apply: Callable[[], None]) -> None:
        sequence, self._sequence = self._sequence, self._sequence + 1
        if sequence and self._lost():
            return

        def arrive() -> None:
            self._knowledge.feed.receive(sequence, _EMPTY)
            apply()

        if self._delay_s:
            self._timeline.after(self._delay_s, arrive)
        else:
            arrive()

    def _note(self, blocks: list[int]) -> None:
        feed = self._knowledge.feed
        if feed.index is not None and feed.owner is not None:
            feed.index.store_run(feed.owner, blocks, on_gpu=True)

    def _forget(self, blocks: list[int]) -> None:
        feed, history = self._knowledge.feed, self._knowledge.history
        if feed.index is None or feed.owner is None:
            return
        feed.counters.removed += len(blocks)
        for block in blocks:
            feed.index.remove(feed.owner, block, on_gpu=True)
            history.gone(block)


class Fleet:
    """A router and its virtual workers, by one policy."""

    def __init__(
        self, options: SimulateOptions, policy: Policy, timeline: Timeline
    ) -> None:
        self._options = options
        self._timeline = timeline
        self._rng = random.Random(f"{options.seed} faults")
        self._indexes = Indexes(limit_bytes=INDEX_BYTES)
        self.pool = WorkerPool(clock=timeline.clock)
        self.router = Router(self.pool, policy)
        self._lost_share = max(
            (f.amount for f in options.faults if f.kind == "lost-events"), default=0.0
        )
        self.workers: dict[str, VirtualWorker] = {}
        self._events: dict[str, _Events] = {}
        for number in range(options.workers):
            self._add(number)
        for fault in options.faults:
            if fault.kind == "restart":
                self._plan_restart(f"http://w{fault.worker}", fault.amount)

    def _add(self, number: int) -> None:
        options, url = self._options, f"http://w{number}"
        worker = self.pool.add(WorkerSpec(url=url))
        self.pool.listed(worker, [ListedModel(id=MODEL)])
        worker.block_size, worker.profile = options.block_size, PROFILE
        cache_blocks = max(1, options.cache_tokens // options.block_size)
        worker.cache_blocks = cache_blocks
        knowledge = self._know(worker, cache_blocks)
        self.pool.answered(worker)
        events = None
        if options.kv_events:
            events = self._events[url] = _Events(
                self._timeline,
                knowledge,
                delay_s=options.event_delay_s,
                lost=lambda: self._rng.random() < self._lost_share,
            )
        self.workers[url] = VirtualWorker(
            self._timeline,
            self._speed(number),
            block_size=options.block_size,
            cache_blocks=cache_blocks,
            on_stored=events.stored if events else _untold,
            on_removed=events.removed if events else _untold,
        )

    def _know(self, worker: Worker, cache_blocks: int) -> Knowledge:
        knowledge = worker.knowledge[0] = Knowledge.open(
            model=MODEL,
            indexes=self._indexes,
            key=worker.url,
            clock=self._timeline.clock,
            capacity_blocks=cache_blocks,
            block_size=self._options.block_size,
            has_source=self._options.kv_events,
        )
        return knowledge

    def _speed(self, number: int) -> Speed:
        speed = self._options.speed
        for fault in self._options.faults:
            if fault.kind == "slow" and fault.worker == number:
                return Speed(
                    prefill_rate=speed.prefill_rate / fault.amount,
                    prefill_cost_s=speed.prefill_cost_s * fault.amount,
                    decode_rate=speed.decode_rate / fault.amount,
                    max_running=speed.max_running,
                )
        return speed

    def _plan_restart(self, url: str, at: float) -> None:
        def restart() -> None:
            if url in self.workers:
                self.workers[url].restart()
            if url in self._events:
                self._events[url].restart()

        self._timeline.at(at, restart)

    def tick(self) -> bool:
        """What the gateway does once a second; whether some of it is left to do."""
        left = False
        for worker in self.pool.workers:
            for knowledge in worker.knowledge.values():
                left |= knowledge.feed.tick()
        while self._indexes.sweep(SWEPT):
            pass
        return left


def _untold(blocks: list[int]) -> None:
    """Nobody hears of it."""
