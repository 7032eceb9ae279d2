"""The scheduler of a simulated worker, in simulated time. It has no clock of its own.

A request waits in one queue, is prefilled alone (a fixed cost, then so many uncached
tokens a second) and then decodes beside all others, so many tokens a second each.
Prefill advances in steps of at most `max_step_tokens`; decoding in ticks that all
running requests share. A block is stored when the step that fills it ends, and each
step's events leave as one batch. As in vLLM the last token of a request is never
computed, so it never fills a block; and when blocks run out the youngest request
is put back into the queue.
"""

from collections import deque
from collections.abc import Callable, Sequence

from kvindex.blocks import matchable_blocks
from kvindex.events import KVEvent
from simworker.cache import BlockCache
from simworker.engine_settings import EngineSettings
from simworker.hashing import Digest, Hasher
from simworker.job import Job
from simworker.prefills import Prefills

_EPSILON = 1e-6


class Engine:
    """Requests in, tokens and KV events out; `now` only ever grows.

    `on_batch` is handed the events of each step that has any.
    """

    def __init__(
        self,
        settings: EngineSettings,
        cache: BlockCache,
        hasher: Hasher,
        *,
        on_batch: Callable[[list[KVEvent]], None],
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._hasher = hasher
        self._on_batch = on_batch
        self._waiting: deque[Job] = deque()
        self.prefills = Prefills()
        self._prefilling: Job | None = None
        self._step_tokens = 0
        self._step_ends = 0.0
        self._running: list[Job] = []
        self._next_tick = 0.0
        self.queried_tokens = 0
        self.hit_tokens = 0
        self.preemptions = 0

    @property
    def waiting(self) -> int:
        """Requests that have not been scheduled yet."""
        return len(self._waiting)

    @property
    def waiting_tokens(self) -> int:
        """What they have to prefill, whatever of it is cached."""
        return sum(job.prompt_tokens + job.produced for job in self._waiting)

    @property
    def running(self) -> int:
        """Requests being prefilled or decoding."""
        return len(self._running) + (self._prefilling is not None)

    def submit(self, job: Job, now: float) -> None:
        """Queue a request. Raises ValueError if it could never fit the cache."""
        need = self._blocks_for(job.prompt_tokens + job.output_tokens - 1)
        if need > self._cache.capacity:
            raise ValueError(f"{need} blocks needed, the cache has fewer")
        self.advance(now)
        self._extend_chain(job, job.prompt_tokens)
        self._waiting.append(job)
        self._schedule(now)

    def abort(self, job: Job, now: float) -> None:
        """Drop a request wherever it is; a prefill step under way still ends."""
        self.advance(now)
        job.aborted = True
        if job in self._waiting:
            self._waiting.remove(job)
        elif job in self._running:
            self._leave(job)
        self._schedule(now)

    def next_time(self) -> float | None:
        """When something will happen next; None while idle."""
        times = [self._step_ends] if self._prefilling is not None else []
        if self._running:
            times.append(self._next_tick)
        return min(times, default=None)

    def advance(self, now: float) -> None:
        """Let everything happen that is due by `now`, each at its own time."""
        while (due := self.next_time()) is not None and due <= now:
            if self._prefilling is not None and self._step_ends <= due:
                self._end_step(self._prefilling, due)
            else:
                self._tick(due)
            self._schedule(due)
            self.flush()

    def flush(self) -> None:
        """Hand over events that no step would, as of a reset of an idle engine."""
        events = self._cache.take_events()
        if events:
            self._on_batch(events)

    def restart(self, cache: BlockCache, now: float) -> None:
        """Begin with another cache; requests keep what they said and are computed anew.

        The process that died took no request with it: they only start over.
        """
        current = [self._prefilling] if self._prefilling is not None else []
        current += self._running
        self._prefilling, self._running = None, []
        self._cache = cache
        self._waiting.extendleft(reversed(current))
        for job in self._waiting:
            job.blocks, job.chain, job.stored = [], [], 0
            self._extend_chain(job, job.prompt_tokens + job.produced)
        self._waiting = deque(job for job in self._waiting if not job.aborted)
        self._schedule(now)

    # --- prefill

    def _schedule(self, now: float) -> None:
        """Start the next prefill if nothing is in its way."""
        if self._prefilling is not None or not self._waiting:
            return
        if len(self._running) >= self._settings.max_running:
            return
        if self._admit(self._waiting[0]):
            job = self._prefilling = self._waiting.popleft()
            self._start_step(job, now, self._settings.prefill_cost_s)

    def _admit(self, job: Job) -> bool:
        """Hold the blocks of all that must be computed before the next token."""
        size = self._cache.block_size
        tokens = job.prompt_tokens + job.produced
        matchable = job.chain[: self._matchable(job, tokens)]
        hits = self._cache.lookup(matchable)
        behind = self._cache.behind(matchable[len(hits) :])
        blocks = self._cache.allocate(hits, self._blocks_for(tokens) - len(hits))
        if blocks is None:
            return False
        if job.report_hits:
            self._cache.report(hits)
        job.blocks = blocks
        job.stored = len(hits) + len(behind)
        self._cache.load(blocks[len(hits) : job.stored], behind)
        job.computed = job.stored * size
        job.prefill_tokens = tokens
        if job.cached_tokens is None:
            job.cached_tokens = job.computed
            self.queried_tokens += tokens
            self.hit_tokens += job.computed
        return True

    def _matchable(self, job: Job, tokens: int) -> int:
        if not job.read_cache:
            return 0
        return matchable_blocks(tokens - self._hasher.lookahead, self._cache.block_size)

    def _start_step(self, job: Job, now: float, cost_s: float) -> None:
        left = job.prefill_tokens - job.computed
        self._step_tokens = min(left, self._settings.max_step_tokens)
        seconds = cost_s + self._step_tokens / self._settings.prefill_rate
        self._step_ends = now + seconds / self._settings.speed
        self.prefills.step(self._step_tokens, seconds / self._settings.speed)

    def _end_step(self, job: Job, now: float) -> None:
        job.computed += self._step_tokens
        self._store_full(job)
        if job.aborted:
            self._prefilling = None
            self._cache.release(job.blocks)
        elif job.computed < job.prefill_tokens:
            self._start_step(job, now, 0.0)
        else:
            self._prefilling = None
            self._begin_decoding(job, now)

    def _begin_decoding(self, job: Job, now: float) -> None:
        self.prefills.end()
        if not self._running:
            self._next_tick = now + self._settings.tick_s
        job.decode_from = now
        job.produced_before = job.produced
        self._running.append(job)
        self._produce(job, job.produced + 1)

    # --- decode

    def _tick(self, now: float) -> None:
        self._next_tick = now + self._settings.tick_s
        rate = self._settings.decode_rate * self._settings.speed
        for job in list(self._running):
            if not job.blocks:  # put back into the queue by one before it
                continue
            due = int((now - job.decode_from) * rate + _EPSILON)
            due = min(job.produced_before + 1 + due, job.output_tokens)
            if due > job.produced and self._make_room(job, due):
                self._produce(job, due)

    def _make_room(self, job: Job, produced: int) -> bool:
        """Hold blocks for `produced` tokens of output; False: `job` was put back."""
        need = self._blocks_for(job.prompt_tokens + produced - 1) - len(job.blocks)
        while need > 0:
            more = self._cache.allocate((), need)
            if more is not None:
                job.blocks += more
                break
            victim = self._running[-1]
            self._put_back(victim)
            if victim is job:
                return False
        return True

    def _put_back(self, job: Job) -> None:
        self.preemptions += 1
        self._leave(job)
        self._extend_chain(job, job.prompt_tokens + job.produced)
        self._waiting.appendleft(job)

    def _produce(self, job: Job, produced: int) -> None:
        job.produced = produced
        job.computed = job.prompt_tokens + produced - 1
        if job.finished or not self._settings.output_at_end:
            self._store_full(job)
        if job.finished:
            if self._settings.tails:
                self._store_tail(job)
            self._leave(job)
        job.on_progress()

    def _leave(self, job: Job) -> None:
        self._running.remove(job)
        self._cache.release(job.blocks)
        job.blocks = []

    # --- blocks

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._cache.block_size)

    def _extend_chain(self, job: Job, tokens: int) -> None:
        """Hash the full blocks of the first `tokens` tokens."""
        job.extend_chain(self._hasher, self._cache.block_size, tokens)

    def _full(self, tokens: int) -> int:
        """How many blocks so many tokens fill."""
        return max(tokens - self._hasher.lookahead, 0) // self._cache.block_size

    def _store_full(self, job: Job) -> None:
        full = self._full(job.computed)
        if full > job.stored:
            self._extend_chain(job, job.computed)
            self._store(job, job.chain[:full], job.token_ids)

    def _store_tail(self, job: Job) -> None:
        """A finished request's last block, which is not full."""
        full, size = self._full(job.computed), self._cache.block_size
        if job.computed - self._hasher.lookahead > full * size:
            tail = job.link(self._hasher, size, full, job.computed)
            self._store(job, [*job.chain[:full], tail], job.token_ids[: job.computed])

    def _store(
        self, job: Job, chain: Sequence[Digest], token_ids: Sequence[int]
    ) -> None:
        cache, identity = self._cache, job.identity
        cache.store(job.blocks, chain, token_ids, identity, first=job.stored)
        job.stored = len(chain)
