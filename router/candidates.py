"""Weigh the workers for a request: what each holds of its prompt, and its load.

All owners that share a rendering are matched in one call. Choosing is the policy's.
"""

from collections.abc import Iterable, Sequence

import msgspec

from kvindex.credit import OFFLOAD_WEIGHT, Credit
from kvindex.knowledge import credits
from router.candidate import Candidate
from router.request import Rendering, RouteRequest
from router.worker import Worker


class _Place(msgspec.Struct, gc=False):
    """Where a request can be sent: one rank, or a worker that picks the rank itself.

    The latter is credited with the mean over its ranks, and loaded by it.
    """

    worker: Worker
    ranks: Sequence[int]
    block_size: int
    rendering: Rendering | None
    credits: list[Credit]


def weigh(
    request: RouteRequest,
    workers: Iterable[Worker],
    offload_weight: float = OFFLOAD_WEIGHT,
    output_tokens: int = 0,
    usual_output: int = 0,
) -> list[Candidate]:
    """The candidates among the workers, in their order, rank by rank.

    `output_tokens` are expected of the answer, `usual_output` of any.
    """
    places = [place for worker in workers for place in _places(worker, request)]
    if request.rank is not None:
        places = [p for p in places if p.ranks == (request.rank,)] or places
    sharing: dict[int, tuple[Rendering, list[_Place]]] = {}
    for place in places:
        rendering = place.rendering
        if rendering is not None and request.reads_cache:
            sharing.setdefault(id(rendering), (rendering, []))[1].append(place)
    for rendering, sharers in sharing.values():
        _credit(rendering, sharers, offload_weight)
    told = [_told(place) for place in places]
    usual_usage = _usual_usage(told)
    return [
        _candidate(place, said, request, output_tokens, usual_output, usual_usage)
        for place, said in zip(places, told, strict=True)
    ]


def _places(worker: Worker, request: RouteRequest) -> Iterable[_Place]:
    ranks = worker.ranks
    groups = [(rank,) for rank in ranks] if worker.can_pin_ranks else [ranks]
    for group in groups:
        size, rendering = worker.block_size_of(group[0]), request.content
        if request.renderings:
            rendering = request.renderings.get((worker.profile, size))
        yield _Place(worker, group, size, rendering, [])


def _credit(
    rendering: Rendering, places: Sequence[_Place], offload_weight: float
) -> None:
    """Find what the places hold of the rendering they share."""
    if rendering.estimated:
        for place in places:
            place.credits += [
                _content_credit(place.worker, rank, rendering) for rank in place.ranks
            ]
        return
    owners = [
        (place, knowledge)
        for place in places
        for rank in place.ranks
        if (knowledge := place.worker.knowledge.get(rank)) is not None
    ]
    knowledges = [knowledge for _, knowledge in owners]
    found = credits(
        knowledges,
        rendering.matchable(),
        offload_weight=offload_weight,
        content=rendering.content,
    )
    for (place, _), credit in zip(owners, found, strict=True):
        place.credits.append(credit)


def _content_credit(worker: Worker, rank: int, rendering: Rendering) -> Credit:
    history = worker.content_histories.get(rank)
    blocks = 0 if history is None else history.held(rendering.matchable(), live=False)
    return Credit(history_blocks=blocks, blocks=blocks, weighted=float(blocks))


def _candidate(
    place: _Place,
    told: "_Told",
    request: RouteRequest,
    output_tokens: int,
    usual_output: int,
    usual_usage: float,
) -> Candidate:
    worker, rank, count = place.worker, place.ranks[0], len(place.ranks)
    ledger, tokens_per_s = worker.ledger(rank), worker.rate.tokens_per_s
    prompt_tokens, size = _size(place.rendering, request)
    held = history = blocks = guessed = 0
    weighted = 0.0
    for credit in place.credits:
        held += credit.held_blocks
        history += credit.history_blocks
        blocks += credit.blocks
        guessed += credit.guessed_blocks
        weighted += credit.weighted
    return Candidate(
        worker=worker,
        rank=rank,
        rendering=place.rendering,
        prompt_tokens=prompt_tokens,
        held_tokens=held // count * size,
        history_tokens=history // count * size,
        hit_tokens=blocks // count * size,
        guessed_tokens=guessed // count * size,
        uncached_tokens=prompt_tokens - int(weighted / count * size),
        inflight_tokens=ledger.uncached_tokens // count,
        inflight_requests=ledger.requests,
        decode_tokens=ledger.decode_tokens // count,
        done_tokens=int(ledger.done_tokens(tokens_per_s) / count),
        tokens_per_s=tokens_per_s,
        last_turn=ledger.last_turn,
        recent_tokens=ledger.recent_tokens / count,
        output_tokens=output_tokens,
        late_s=worker.late_s,
        others_tokens=told.others_tokens // count,
        others_decode_tokens=int(told.others_running * usual_output / count),
        kv_usage=told.kv_usage,
        usual_usage=usual_usage,
        room_tokens=_room_tokens(place),
        full=told.full,
    )


class _Told(msgspec.Struct, frozen=True, gc=False):
    """What the reports of a place say of it as a whole."""

    others_tokens: int = 0
    others_running: float = 0.0
    kv_usage: float | None = None
    full: bool = False


NOTHING_TOLD = _Told()


def _told(place: _Place) -> _Told:
    """Where it has several ranks and tells of fewer, that is told of all of them.

    So TensorRT-LLM does: its queue is that of all ranks, and rank 0 speaks for them.
    """
    worker = place.worker
    if not worker.reports:
        return NOTHING_TOLD
    reports = [r for each in place.ranks if (r := worker.report(each)) is not None]
    if not reports:
        return NOTHING_TOLD
    usages = [u for report in reports if (u := report.kv_usage) is not None]
    return _Told(
        others_tokens=sum(report.others_tokens for report in reports),
        others_running=sum(report.others_running for report in reports),
        kv_usage=sum(usages) / len(usages) if usages else None,
        full=all(report.full for report in reports),
    )


def _usual_usage(told: Iterable[_Told]) -> float:
    """The mean KV usage of those that tell it, but for full ones: they get nothing."""
    usages = [u for t in told if (u := t.kv_usage) is not None and not t.full]
    return sum(usages) / len(usages) if usages else 0.0


def _room_tokens(place: _Place) -> int | None:
    """What the caches of the ranks take before they push something out, in the mean."""
    worker, tokens = place.worker, 0
    if worker.cache_blocks is None:
        return None
    for rank in place.ranks:
        knowledge, ledger = worker.knowledge.get(rank), worker.ledger(rank)
        if knowledge is None:
            return None
        tokens += knowledge.room_blocks * place.block_size
        tokens -= ledger.uncached_tokens + ledger.decode_tokens
    return tokens // len(place.ranks)


def _size(rendering: Rendering | None, request: RouteRequest) -> tuple[int, int]:
    """Prompt tokens and block size."""
    if rendering is not None:
        return rendering.token_count, rendering.block_size
    counts = (other.token_count for other in request.renderings.values())
    return request.prompt_tokens or max(counts, default=0), 0
