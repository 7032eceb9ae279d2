"""What a decision would be, and all that was weighed for it, for the operator to read.

Reads only: it is made from the very candidates that a decision is made from.
"""

from collections.abc import Sequence

import msgspec

from kvindex.knowledge import credits
from router.candidate import Candidate
from router.policy import Policy
from router.request import RouteRequest
from router.worker import WorkerId


class ExplainedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate: tokens known and in flight, cost in seconds.

    Of `held_tokens` (by the index), `gpu_tokens` are on the GPU and `offloaded_tokens`
    elsewhere; `suspect_tokens` of either are in doubt. `hit_tokens` are taken as held,
    by index or history. `uncached_tokens` are the rest of the prompt, where doubtful
    and offloaded tokens count as held in part only. `cost_s` is the sum of `wait_s`
    (prefill in flight before it, others' too, less `done_tokens`, which should be done
    by now; and three times `late_s`, for which it is overdue with something and nothing
    comes from it), `prefill_s` (its own) and
    `delay_s` (what those behind it wait for it); `estimate_s` is without the last.
    `prefill_rate` is in tokens per second, `knowledge` the state of its feed. By the
    worker's own report, if there is one: `others_tokens` wait there that this gateway
    did not send, `others_decode_tokens` are expected of what runs there besides,
    `kv_usage` is the share of its KV cache in use; `full` candidates are
    left out. `room_tokens` fit into its cache before it pushes something out (None: its
    size is not known). `recent_tokens` were sent there lately. Among equal costs the
    least `busy_s` decides: what was sent lately and what others have there, up to twice
    that the more of its KV cache is in use.
    """

    url: str
    rank: int
    state: str
    knowledge: str
    block_size: int
    held_tokens: int
    gpu_tokens: int
    offloaded_tokens: int
    suspect_tokens: int
    history_tokens: int
    guessed_tokens: int
    hit_tokens: int
    uncached_tokens: int
    inflight_tokens: int
    done_tokens: int
    inflight_requests: int
    decode_tokens: int
    room_tokens: int | None
    recent_tokens: int
    others_tokens: int
    others_decode_tokens: int
    kv_usage: float | None
    full: bool
    prefill_rate: float
    late_s: float
    wait_s: float
    prefill_s: float
    delay_s: float
    cost_s: float
    estimate_s: float
    busy_s: float


class Frontier(msgspec.Struct, frozen=True, kw_only=True):
    """Where a prompt stops being known: the first block that no candidate holds.

    `block` of `block_size` tokens begins at token `token`, both counted from 0; up to
    there it is known at `url` and `rank`, or nowhere if `token` is 0. `profile` is
    whose rendering that is.
    """

    block: int
    token: int
    block_size: int
    profile: str
    url: str
    rank: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision would be, and what was weighed. Nothing is booked.

    `unknown_from` is None where the whole prompt is known, or no ids are. `ids_reason`
    is why token ids would not go along.
    """

    prompt_tokens: int
    chosen: WorkerId
    why: str
    unknown_from: Frontier | None
    would_forward_ids: bool
    ids_reason: str | None
    workers: tuple[ExplainedCandidate, ...]


def explain(
    request: RouteRequest,
    candidates: Sequence[Candidate],
    choice: int,
    policy: Policy,
    *,
    weighed: Sequence[Candidate],
    no_ids: str | None,
) -> Explanation:
    """Explain the choice of one of the candidates; `no_ids` is why ids stay behind.

    `weighed` are all there were before those without room were left out.
    """
    chosen = candidates[choice]
    return Explanation(
        prompt_tokens=chosen.prompt_tokens,
        chosen=WorkerId(url=chosen.worker.url, rank=chosen.rank),
        why=_why(request, candidates, choice, policy),
        unknown_from=frontier(weighed),
        would_forward_ids=no_ids is None,
        ids_reason=no_ids,
        workers=tuple(map(_explained, weighed)),
    )


def summary(request: RouteRequest, chosen: Candidate, reason: str) -> str:
    """Why, in one clause, and what is known there."""
    why = (
        f"{reason}: {chosen.hit_tokens} of {chosen.prompt_tokens} prompt tokens "
        f"held, {chosen.inflight_tokens} in flight"
    )
    if request.not_rendered is None:
        return why
    return f"{why} (estimates, not rendered: {request.not_rendered})"


def frontier(candidates: Sequence[Candidate]) -> Frontier | None:
    """Where the prompt stops being known anywhere."""
    rendered = [
        (candidate, candidate.rendering)
        for candidate in candidates
        if candidate.rendering is not None and not candidate.rendering.estimated
    ]
    if not rendered:
        return None
    best, rendering = max(rendered, key=lambda pair: pair[0].hit_tokens)
    block = best.hit_tokens // rendering.block_size
    if block and block >= len(rendering.matchable()):
        return None
    return Frontier(
        block=block,
        token=best.hit_tokens,
        block_size=rendering.block_size,
        profile=rendering.profile,
        url=best.worker.url,
        rank=best.rank,
    )


def _why(
    request: RouteRequest,
    candidates: Sequence[Candidate],
    choice: int,
    policy: Policy,
) -> str:
    chosen = candidates[choice]
    if len(candidates) == 1:
        return summary(request, chosen, "the only candidate")
    reason = policy.because(request, candidates, choice)
    others = [c for index, c in enumerate(candidates) if index != choice]
    return f"{summary(request, chosen, reason)}; {_against(chosen, others)}"


def _against(chosen: Candidate, others: Sequence[Candidate]) -> str:
    """The winner beside the other that would cost least."""
    other = min(others, key=lambda candidate: candidate.cost_s)
    place = f"{other.worker.url} rank {other.rank}"
    known = f"{other.hit_tokens} held, {other.inflight_tokens} in flight"
    cost = f"{chosen.cost_s:.4g} s"
    if other.cost_s > chosen.cost_s:
        return f"it costs {cost}, next is {place} with {other.cost_s:.4g} s ({known})"
    if other.cost_s < chosen.cost_s:
        return f"it costs {cost}, {place} would cost {other.cost_s:.4g} s ({known})"
    if other.busy_s > chosen.busy_s:
        return f"{place} costs the same, {cost}, and {_busier(other, chosen)}"
    if other.decoding_tokens > chosen.decoding_tokens:
        return f"{place} costs the same, {cost}, and is decoding more"
    return f"{place} costs the same, {cost}: they take turns"


def _busier(other: Candidate, chosen: Candidate) -> str:
    """The first thing that makes it the busier one."""
    if other.recent_tokens > chosen.recent_tokens:
        return "was sent more lately"
    if other.others_decode_tokens > chosen.others_decode_tokens:
        return "is decoding more for others"
    return "has less room, or is slower"


def _explained(candidate: Candidate) -> ExplainedCandidate:
    gpu, offloaded, suspect = _tiers(candidate)
    worker = candidate.worker
    known = worker.knowledge.get(candidate.rank)
    return ExplainedCandidate(
        url=worker.url,
        rank=candidate.rank,
        state=worker.state,
        knowledge="none" if known is None else known.feed.state,
        block_size=worker.block_size_of(candidate.rank),
        held_tokens=candidate.held_tokens,
        gpu_tokens=gpu,
        offloaded_tokens=offloaded,
        suspect_tokens=suspect,
        history_tokens=candidate.history_tokens,
        guessed_tokens=candidate.guessed_tokens,
        hit_tokens=candidate.hit_tokens,
        uncached_tokens=candidate.uncached_tokens,
        inflight_tokens=candidate.inflight_tokens,
        done_tokens=candidate.done_tokens,
        inflight_requests=candidate.inflight_requests,
        decode_tokens=candidate.decode_tokens,
        room_tokens=candidate.room_tokens,
        recent_tokens=round(candidate.recent_tokens),
        others_tokens=candidate.others_tokens,
        others_decode_tokens=candidate.others_decode_tokens,
        kv_usage=candidate.kv_usage,
        full=candidate.full,
        prefill_rate=candidate.tokens_per_s,
        late_s=candidate.late_s,
        wait_s=candidate.wait_s,
        prefill_s=candidate.prefill_s,
        delay_s=candidate.delay_s,
        cost_s=candidate.cost_s,
        estimate_s=candidate.estimate_s,
        busy_s=candidate.busy_s,
    )


def _tiers(candidate: Candidate) -> tuple[int, int, int]:
    """Tokens held on the GPU, held elsewhere, and in doubt: the mean over its ranks."""
    rendering, worker = candidate.rendering, candidate.worker
    if rendering is None or rendering.estimated:
        return 0, 0, 0
    ranks = (candidate.rank,) if worker.can_pin_ranks else worker.ranks
    known = [worker.knowledge[rank] for rank in ranks if rank in worker.knowledge]
    found = credits(known, rendering.matchable())
    gpu = sum(credit.gpu_blocks for credit in found)
    offloaded = sum(credit.held_blocks - credit.gpu_blocks for credit in found)
    suspect = sum(credit.suspect_blocks for credit in found)
    size, count = rendering.block_size, len(ranks)
    return gpu // count * size, offloaded // count * size, suspect // count * size
