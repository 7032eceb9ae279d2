"""A decision: where a request goes, why, and what became of it.

It carries the request's life back into the books: the worker's ledger, what is known
of its cache, its state. Sending is the gateway's business.
"""

import enum
from collections.abc import Callable

import msgspec

from kvindex.history import History
from kvindex.knowledge import Knowledge
from router.candidate import Candidate
from router.ledger import Booking
from router.meter import Prefill
from router.outcome import Outcome
from router.pool import WorkerPool
from router.request import Rendering, Usage
from router.worker import Worker

WORKER_FAULTS = frozenset({"connect", "reset"})
"""Kinds of failure that speak against the worker."""

MAY_HAVE_RESTARTED = WORKER_FAULTS | {"stale"}
"""Kinds of failure that another process in the worker's place would show."""

NEVER_COMPUTED = frozenset({"connect", "stale", "busy", "status"})
"""Kinds of failure after which the prompt cannot be in the worker's cache."""

BUSY_STATUSES = frozenset({429, 503})
SERVER_ERRORS = 500


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """One worker a request passes through, at one of its ranks."""

    worker: Worker
    rank: int


class Life(enum.IntEnum):
    """How far a request has come. It never goes back."""

    decided = 0
    sent = 1
    first_token = 2
    ended = 3


class Decision:
    """Where one request goes. Its calls are idempotent and may come in any order.

    One of `finished` and `failed` must be called at last (in a `finally`); the first
    of them counts.
    """

    __slots__ = (
        "_booking",
        "_life",
        "_note_content",
        "_on_usage",
        "_pool",
        "_prefill",
        "_reads_cache",
        "_status",
        "best_hit_tokens",
        "estimate_s",
        "hit_tokens",
        "hops",
        "memory",
        "no_ids",
        "outcome",
        "prompt_tokens",
        "rendering",
        "why",
    )

    def __init__(
        self,
        candidate: Candidate,
        *,
        booking: Booking,
        prefill: Prefill | None,
        memory: Knowledge | History | None,
        pool: WorkerPool,
        best_hit_tokens: int,
        why: str,
        on_usage: Callable[[Usage], None],
        no_ids: str | None,
        note_content: Callable[[], None] = lambda: None,
        reads_cache: bool = True,
    ) -> None:
        """`memory` is where its blocks are noted: a History for raw content.

        `note_content` is called once its prompt is computed: soon enough for its next
        turn, and nothing need be taken back.

        `prefill` is given where its end will be seen.

        `on_usage` is called once, with the usage of the finished request. `no_ids` is
        why its token ids do not go along; None: they do. Unless it `reads_cache`,
        its end tells nothing of the worker's cache.
        """
        self.hops = (Hop(worker=candidate.worker, rank=candidate.rank),)
        self.rendering: Rendering | None = candidate.rendering
        self.prompt_tokens = candidate.prompt_tokens
        self.hit_tokens = candidate.hit_tokens
        self.estimate_s = candidate.estimate_s
        """Seconds that its prefill was expected to take, waiting included."""
        self.best_hit_tokens = best_hit_tokens
        self.why = why
        self.no_ids = no_ids
        self.memory = memory
        self.outcome: Outcome | None = None
        self._booking = booking
        self._prefill = prefill
        self._reads_cache = reads_cache
        self._pool = pool
        self._on_usage = on_usage
        self._note_content = note_content
        self._life = Life.decided
        self._status = 0

    @property
    def worker(self) -> Worker:
        """The worker the request is sent to first."""
        return self.hops[0].worker

    @property
    def rank(self) -> int:
        """The data-parallel rank of `worker`; sent along if `worker.pinned`."""
        return self.hops[0].rank

    def _reach(self, life: Life) -> bool:
        if self._life >= life:
            return False
        self._life = life
        return True

    def sent(self) -> None:
        """The request is under way: its blocks will be where it goes."""
        if not self._reach(Life.sent):
            return
        streams = self._prefill is not None
        self.worker.pulse.sent(self, self.estimate_s, streams=streams)
        if isinstance(self.memory, Knowledge) and self.rendering:
            self.memory.sent(self.rendering.hashes, self.rendering.content)
        elif self.memory is not None and self.rendering:
            self.memory.sent(self.rendering.hashes)

    def answered(self, status: int, retry_after_s: float | None = None) -> None:
        """The worker's status line is there. 429 and 503: it gets a rest."""
        self._status = status
        if status in BUSY_STATUSES:
            self._pool.busy(self.worker, retry_after_s)
        else:
            self._pool.answered(self.worker, status)

    def heard(self) -> None:
        """A piece of the answer came: a sign of life."""
        self.worker.pulse.beats += 1

    def first_token(self) -> None:
        """The first event of the answer is there: the prefill is over."""
        self.sent()
        if self._reach(Life.first_token):
            self._booking.first_token()
            self.heard()
            self.worker.pulse.over(self)
            if self._prefill is not None:
                self._prefill.first_token()
            if isinstance(self.memory, Knowledge) and self.rendering:
                self.memory.first_token(self.rendering.hashes)
            self._note_content()

    def finished(self, usage: Usage | None) -> None:
        """The answer is complete, with the usage the worker reported, if any."""
        self.sent()
        streamed = self._life is Life.first_token
        if self._reach(Life.ended):
            self._booking.release()
            self.worker.pulse.finished(self)
            self._pool.finished(self.worker)
            if not streamed:
                self._note_content()
            self.outcome = self._compare(usage or Usage())
            if self._prefill is not None:
                self._prefill.ended(self.outcome.uncached_tokens)
            self._tell_memory(self.outcome.delivered_hit_tokens, streamed=streamed)
            if usage is not None:
                self._on_usage(usage)

    def failed(self, kind: str) -> None:
        """The request ended without a whole answer, or with one of an error.

        `kind` is one word. "connect" and "reset" count against the worker, "timeout"
        where nothing else comes from it; anything else ("client", ...) does not.
        """
        before = self._life
        if self._reach(Life.ended):
            pulse = self.worker.pulse
            in_vain = pulse.in_vain(self)
            self._booking.release()
            self._tell_pool(kind)
            if before is Life.sent and kind == "client":
                pulse.gave_up(self)
            pulse.over(self)
            if self._prefill is not None:
                self._prefill.ended(None)
            if before is Life.sent and (in_vain or kind in NEVER_COMPUTED):
                self._take_back()
            elif before is Life.sent:
                self._tell_memory(None, computed=False)
            elif before is Life.first_token:
                self._tell_memory(None, streamed=True)

    def _tell_pool(self, kind: str) -> None:
        """What a failure says of the worker."""
        if kind in MAY_HAVE_RESTARTED:
            self.worker.doubt()
        if kind in WORKER_FAULTS:
            self._pool.failed(self.worker, kind)
        elif kind == "timeout":
            unheard = self.worker.pulse.unheard(self)
            self._pool.timed_out(self.worker, unheard=unheard)
        elif kind == "status" and self._status < SERVER_ERRORS:
            self._pool.finished(self.worker)
        self._pool.undecided(self.worker, left=kind == "client")

    def _take_back(self) -> None:
        if self.memory is None or self.rendering is None:
            return
        if isinstance(self.memory, Knowledge):
            self.memory.unsent(self.rendering.hashes)
        else:
            self.memory.withdraw(self.rendering.hashes)

    def _compare(self, usage: Usage) -> Outcome:
        prompt_tokens = usage.prompt_tokens or self.prompt_tokens
        delivered = usage.cached_tokens
        if delivered is not None:
            delivered = max(0, min(delivered, prompt_tokens))
        return Outcome(
            prompt_tokens=prompt_tokens,
            predicted_hit_tokens=self.hit_tokens,
            best_hit_tokens=self.best_hit_tokens,
            delivered_hit_tokens=delivered,
            estimated=self.rendering is None or self.rendering.estimated,
        )

    def _tell_memory(
        self, delivered: int | None, *, streamed: bool = False, computed: bool = True
    ) -> None:
        rendering = self.rendering
        if rendering is None or self.memory is None:
            return
        size, predicted = rendering.block_size, self.hit_tokens // rendering.block_size
        delivered_blocks = None if delivered is None else delivered // size
        # Which rank answered is unknown where it was not asked for by name.
        known_rank = self.worker.can_pin_ranks or len(self.worker.ranks) == 1
        tells = known_rank and self._reads_cache
        if isinstance(self.memory, History):
            if rendering.by_history and delivered_blocks is not None and tells:
                findable = rendering.matchable()
                self.memory.delivered(findable, delivered_blocks, predicted)
            return
        hashes = rendering.hashes
        if not streamed:
            # No first token was seen: what the worker did of it, events tell soon.
            self.memory.first_token(hashes)
        self.memory.ended(
            hashes,
            streamed=streamed,
            delivered_blocks=delivered_blocks,
            predicted_blocks=predicted,
            matchable=len(rendering.matchable()),
            computed=max(0, rendering.token_count - 2) // size,
            answered=computed and tells,
        )
