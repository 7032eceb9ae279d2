"""Router: one request in, one decision out. The one seam everything routes through.

Pure and synchronous: no connections, no waiting; clock and chance are passed in.
"""

import time
from collections.abc import Callable, Sequence

from kvindex.credit import OFFLOAD_WEIGHT
from kvindex.history import History
from kvindex.knowledge import Knowledge
from router.candidate import Candidate
from router.candidates import weigh
from router.decision import Decision
from router.explanation import Explanation, explain, summary
from router.forwarding import Forwarding
from router.meter import Prefill
from router.policy import Policy
from router.pool import NoCandidate, WorkerPool
from router.rate import OutputLength
from router.request import RouteRequest, Usage


class Router:
    """Decides by a policy over the workers of a pool, and books what it decides."""

    def __init__(
        self,
        pool: WorkerPool,
        policy: Policy,
        *,
        forwarding: Forwarding | None = None,
        output: OutputLength | None = None,
        offload_weight: float = OFFLOAD_WEIGHT,
        on_match: Callable[[float], None] | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`output` is the expected length of answers, learnt as they finish.

        `forwarding` is the rule by which ids go along; as it is by default if None.

        `offload_weight` is the worth of a held block that is not on the GPU. `on_match`
        is told the seconds each matching took, by `timer`.
        """
        self._offload_weight = offload_weight
        self._on_match = on_match
        self._timer = timer
        self._pool = pool
        self._policy = policy
        self._forwarding = forwarding or Forwarding(pool)
        self._output = output or OutputLength()
        self._turn = 0

    def decide(self, request: RouteRequest) -> Decision:
        """Choose where the request goes and book it there. Raise NoCandidate."""
        weighed = self._candidates(request)
        candidates = _with_room(weighed)
        choice = self._policy.book(request, candidates)
        chosen = candidates[choice]
        self._turn += 1
        self._pool.chosen(chosen.worker)
        self._pool.booked(chosen.uncached_tokens)
        ledger = chosen.worker.ledger(chosen.rank)
        ledger.last_turn = self._turn
        booking = ledger.book(
            chosen.uncached_tokens,
            chosen.output_tokens,
            prefill_s=None if request.stream else chosen.estimate_s,
            guessed=chosen.rendering is None or chosen.rendering.estimated,
        )
        return Decision(
            chosen,
            booking=booking,
            prefill=_metered(chosen, request),
            memory=self._memory(chosen),
            note_content=self._content_note(chosen, request),
            pool=self._pool,
            best_hit_tokens=max(candidate.hit_tokens for candidate in weighed),
            why=self._why(chosen, candidates, request),
            on_usage=self._learn,
            no_ids=self._forwarding.against(request, chosen.worker),
            reads_cache=request.reads_cache,
        )

    def explain(self, request: RouteRequest) -> Explanation:
        """What `decide` would choose now, booking nothing. Raise NoCandidate."""
        weighed = self._candidates(request)
        candidates = _with_room(weighed)
        choice = self._policy.choose(request, candidates)
        no_ids = self._forwarding.against(request, candidates[choice].worker)
        return explain(
            request, candidates, choice, self._policy, weighed=weighed, no_ids=no_ids
        )

    def _candidates(self, request: RouteRequest) -> list[Candidate]:
        only = None if request.worker is None else self._pool.get(request.worker)
        if only is not None and only.url not in request.exclude:
            workers = [only]
        else:
            workers = self._pool.candidates(request.model, request.exclude)
        if not workers:
            tried = "no other worker is left" if request.exclude else "no workers"
            raise NoCandidate(f"{tried} for this request")
        begun = self._timer()
        candidates = weigh(
            request,
            workers,
            self._offload_weight,
            output_tokens=self._output.expected(request.max_tokens),
            usual_output=self._output.expected(None),
        )
        if self._on_match is not None:
            self._on_match(self._timer() - begun)
        return candidates

    def _memory(self, chosen: Candidate) -> Knowledge | History | None:
        """Where to note the request's blocks."""
        rank = self._noted_rank(chosen)
        if chosen.rendering is not None and chosen.rendering.estimated:
            return chosen.worker.content_history(rank)
        knowledge = chosen.worker.knowledge.get(rank)
        if knowledge and chosen.rendering is not None and chosen.rendering.by_history:
            return knowledge.history  # its feed is asked nothing of what it never hears
        return knowledge

    def _content_note(
        self, chosen: Candidate, request: RouteRequest
    ) -> Callable[[], None]:
        """Notes the raw content of a request that is routed by its blocks."""
        content = request.content
        if content is None or chosen.rendering is content:
            return lambda: None
        history = chosen.worker.content_history(self._noted_rank(chosen))
        return lambda: history.sent(content.hashes)

    def _noted_rank(self, chosen: Candidate) -> int:
        """The rank it is sent to: in turns where that is unknown."""
        worker = chosen.worker
        if worker.can_pin_ranks:
            return chosen.rank
        return worker.ranks[self._turn % len(worker.ranks)]

    def _why(
        self, chosen: Candidate, candidates: Sequence[Candidate], request: RouteRequest
    ) -> str:
        reason = self._policy.reason if len(candidates) > 1 else "the only candidate"
        return summary(request, chosen, reason)

    def _learn(self, usage: Usage) -> None:
        if usage.completion_tokens > 0:
            self._output.finished(usage.completion_tokens)


def _with_room(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Those whose KV cache is not full, by what they say; all where each is."""
    return [candidate for candidate in candidates if not candidate.full] or candidates


def _metered(chosen: Candidate, request: RouteRequest) -> Prefill | None:
    """What times its prefill; None where its end will not be seen."""
    worker = chosen.worker
    meter = worker.meter(chosen.rank)
    one_rank = worker.can_pin_ranks or len(worker.ranks) == 1
    if request.stream and request.prompts == 1 and one_rank:
        return meter.begin()
    meter.unseen(chosen.estimate_s)
    return None
