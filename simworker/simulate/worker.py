"""A virtual worker: one request is prefilled at a time, many decode side by side.

The rules of `simworker/engine.py` without its tokens: first come, first served; a fixed
cost and so many uncached tokens a second; what is cached is looked up when the prefill
begins, and new blocks are there when it ends.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from simworker.simulate.cache import VirtualCache
from simworker.simulate.timeline import Timeline


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a worker is: tokens per second, and seconds per prefill."""

    prefill_rate: float = 20_000.0
    prefill_cost_s: float = 0.015
    decode_rate: float = 50.0
    max_running: int = 256


class VirtualRequest(msgspec.Struct, kw_only=True, eq=False):
    """A request at a worker. `blocks` are the full blocks of its prompt, `all_blocks`
    those of prompt and answer; `matchable` of the first can be found cached.

    `on_first_token` and `on_end` are called once each; after `failed` neither.
    """

    prompt_tokens: int
    output_tokens: int
    blocks: list[int]
    all_blocks: list[int]
    matchable: int
    on_first_token: Callable[[], None]
    on_end: Callable[[], None]
    on_failed: Callable[[], None]
    cached_tokens: int = 0
    held: list[int] = []
    room: int = 0


class VirtualWorker:
    """One worker. `on_stored` and `on_removed` are told of blocks as they change."""

    def __init__(
        self,
        timeline: Timeline,
        speed: Speed,
        *,
        block_size: int,
        cache_blocks: int,
        on_stored: Callable[[list[int]], None],
        on_removed: Callable[[list[int]], None],
    ) -> None:
        self._timeline = timeline
        self.speed = speed
        self._block_size = block_size
        self._cache = VirtualCache(cache_blocks)
        self._on_stored = on_stored
        self._on_removed = on_removed
        self._waiting: deque[VirtualRequest] = deque()
        self._running: dict[VirtualRequest, None] = {}
        self._prefilling = False
        self._life = 0
        self.prefilled_tokens = 0

    def submit(self, request: VirtualRequest) -> None:
        """Queue a request; one that could never fit fails at once."""
        if self._blocks_for(request) > self._cache.capacity:
            request.on_failed()
            return
        self._waiting.append(request)
        self._schedule()

    def restart(self) -> None:
        """The process is a new one: its cache is empty, its requests have failed."""
        self._life += 1
        lost = [*self._running, *self._waiting]
        self._running.clear()
        self._waiting.clear()
        self._prefilling = False
        self._cache.clear()
        for request in lost:
            request.on_failed()

    def _blocks_for(self, request: VirtualRequest) -> int:
        return -(-(request.prompt_tokens + request.output_tokens) // self._block_size)

    def _schedule(self) -> None:
        """Begin the next prefill if there is one and room for it."""
        if self._prefilling or not self._waiting:
            return
        if len(self._running) >= self.speed.max_running:
            return
        request = self._waiting[0]
        hits = self._cache.lookup(request.blocks[: request.matchable])
        held = request.blocks[:hits]
        room = self._blocks_for(request) - hits
        gone = self._cache.take(held, room)
        if gone is None:
            return
        self._waiting.popleft()
        if gone:
            self._on_removed(gone)
        request.held, request.room = held, room
        request.cached_tokens = hits * self._block_size
        self._running[request] = None
        self._prefilling = True
        uncached = request.prompt_tokens - request.cached_tokens
        self.prefilled_tokens += uncached
        seconds = self.speed.prefill_cost_s + uncached / self.speed.prefill_rate
        self._later(seconds, lambda: self._prefilled(request))

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        """Do something after a while, unless the worker has restarted by then."""
        life = self._life

        def unless_restarted() -> None:
            if life == self._life:
                what()

        self._timeline.after(seconds, unless_restarted)

    def _prefilled(self, request: VirtualRequest) -> None:
        self._prefilling = False
        self._fill(request, request.blocks)
        request.on_first_token()
        seconds = (request.output_tokens - 1) / self.speed.decode_rate
        self._later(seconds, lambda: self._decoded(request))
        self._schedule()

    def _fill(self, request: VirtualRequest, blocks: list[int]) -> None:
        """The request's blocks up to these are computed."""
        more = blocks[len(request.held) :]
        if more:
            fresh = self._cache.store(more)
            request.held = request.held + more
            request.room -= len(more)
            if fresh:
                self._on_stored(fresh)

    def _decoded(self, request: VirtualRequest) -> None:
        self._fill(request, request.all_blocks)
        self._running.pop(request, None)
        self._cache.release(request.held, request.room)
        request.on_end()
        self._schedule()
