"""What candidates are credited with, over real feeds and a real index."""

import random

import msgspec
import pytest

from router import ListedModel, Router, Usage
from router.kv_cache_aware import KvCacheAware
from tests.router.fleet import Clock, Fleet, prompt


def test_a_match_never_covers_the_whole_prompt() -> None:
    """The last token is always computed, so its block is no hit."""
    fleet = Fleet(1)
    ids = prompt(1, 64)
    fleet.store("w1", ids)
    assert fleet.router.decide(fleet.request(ids)).hit_tokens == 48
    assert fleet.router.decide(fleet.request([*ids, 5])).hit_tokens == 64
    assert fleet.router.decide(fleet.request([])).hit_tokens == 0


def test_a_cleared_worker_is_cold() -> None:
    """AllBlocksCleared takes its credit away at once."""
    fleet = Fleet(2)
    ids = prompt(1, 200)
    fleet.store("w2", ids)
    fleet.clear("w2")
    explanation = fleet.router.explain(fleet.request(ids))
    assert [worker.held_tokens for worker in explanation.workers] == [0, 0]


def test_a_common_middle_block_does_not_match() -> None:
    """Blocks are chained: [C, B] is held only by the worker that has C before B."""
    fleet = Fleet(2)
    a, b, c = (prompt(seed, 16) for seed in (1, 2, 3))
    fleet.store("w1", a + b)
    fleet.store("w2", c + b)
    explanation = fleet.router.explain(fleet.request(c + b + [1]))
    assert [worker.held_tokens for worker in explanation.workers] == [0, 32]
    assert explanation.chosen.url == "w2"


@pytest.mark.parametrize("events", [True, False])
def test_namespaces_keep_to_themselves(events: bool) -> None:
    """Salts, adapters and none: each finds its own second request and no other's."""
    fleet = Fleet()
    listing = [
        ListedModel(id="qwen", root="r"),
        ListedModel(id="adapter-1", parent="qwen"),
        ListedModel(id="adapter-2", parent="qwen"),
    ]
    for url in ("w1", "w2"):
        fleet.add(url, listing=listing, events=events)
    ids = prompt(1, 400)
    kinds = [
        ("qwen", None),
        ("qwen", "a"),
        ("qwen", "b"),
        ("adapter-1", None),
        ("adapter-2", None),
        ("adapter-1", "a"),
    ]
    first = {}
    for kind in kinds:
        decision = fleet.router.decide(fleet.request(ids, model=kind[0], salt=kind[1]))
        assert decision.best_hit_tokens == 0
        decision.sent()
        first[kind] = decision.worker.url
    for kind in kinds:
        decision = fleet.router.decide(fleet.request(ids, model=kind[0], salt=kind[1]))
        assert (decision.worker.url, decision.hit_tokens) == (first[kind], 384)


def test_events_of_an_adapter_are_no_hit_for_its_base() -> None:
    """And those of the base none for the adapter."""
    fleet = Fleet()
    listing = [
        ListedModel(id="qwen", root="r"),
        ListedModel(id="adapter-1", parent="qwen"),
    ]
    fleet.add("w1", listing=listing)
    fleet.add("w2", listing=listing)
    ids = prompt(1, 400)
    fleet.store("w1", ids)
    fleet.store("w2", ids, adapter="adapter-1")

    def held(model: str) -> list[int]:
        explanation = fleet.router.explain(fleet.request(ids, model=model))
        return [worker.held_tokens for worker in explanation.workers]

    assert held("qwen") == [384, 0]
    assert held("adapter-1") == [0, 384]


def test_one_models_blocks_are_no_hit_for_another() -> None:
    """Equal ids mean something else under another model."""
    fleet = Fleet()
    fleet.add("a1", model="alpha")
    fleet.add("b1", model="beta")
    ids = prompt(1, 400)
    fleet.store("a1", ids)
    decision = fleet.router.decide(fleet.request(ids, model="beta"))
    assert (decision.worker.url, decision.best_hit_tokens) == ("b1", 0)
    unknown = fleet.router.decide(fleet.request(ids, model="gamma"))
    assert (unknown.worker.url, unknown.hit_tokens) == ("a1", 384)


def test_mixed_block_sizes_are_compared_in_tokens() -> None:
    """Each worker is matched in its own blocks."""
    fleet = Fleet()
    for url, size in (("w16", 16), ("w32", 32), ("w128", 128)):
        fleet.add(url, block_size=size)
        fleet.store(url, prompt(1, 300))
    request = fleet.request(prompt(1, 300))
    explanation = fleet.router.explain(request)
    assert [worker.held_tokens for worker in explanation.workers] == [288, 288, 256]
    assert len(request.renderings) == 3


def test_a_worker_without_a_rendering_of_its_own_gets_no_credit() -> None:
    """Rendered for another profile: its cache cannot be compared, its load can."""
    fleet = Fleet(2)
    ids = prompt(1, 400)
    fleet.store("w2", ids)
    request = fleet.request(ids)
    fleet.worker("w2").profile = "sglang"
    one, two = fleet.router.explain(request).workers
    assert (one.held_tokens, two.held_tokens) == (0, 0)
    assert (one.uncached_tokens, two.uncached_tokens) == (400, 400)
    sizeless = msgspec.structs.replace(request, prompt_tokens=0)
    assert fleet.router.explain(sizeless).workers[1].uncached_tokens == 400


def test_a_worker_whose_cache_is_unknown_is_routed_by_load() -> None:
    """No Knowledge yet: no credit, no notes, no error."""
    fleet = Fleet(2)
    fleet.worker("w1").knowledge.clear()
    decision = fleet.router.decide(fleet.request(prompt(1, 400)))
    decision.sent()
    decision.first_token()
    decision.finished(Usage(prompt_tokens=400, cached_tokens=0))
    assert decision.worker.url == "w1"
    assert fleet.router.explain(fleet.request(prompt(1, 400))).chosen.url == "w2"


def test_each_rank_is_a_candidate_where_ranks_can_be_pinned() -> None:
    """What rank 5 holds sends the request to rank 5."""
    fleet = Fleet()
    worker = fleet.add("w1", ranks=(4, 5))
    ids = prompt(1, 400)
    fleet.store("w1", ids, rank=5)
    decision = fleet.router.decide(fleet.request(ids))
    assert (decision.rank, decision.hit_tokens) == (5, 384)
    assert worker.pinned
    assert worker.inflight_requests == 1
    assert worker.ledger(5).requests == 1
    other = fleet.router.decide(fleet.request(prompt(2, 400)))
    assert other.rank == 4


def test_ranks_that_cannot_be_pinned_are_credited_with_their_mean() -> None:
    """One candidate: half of the ranks hold it, so half of it is expected."""
    fleet = Fleet()
    worker = fleet.add("w1", ranks=(0, 1))
    worker.can_pin_ranks = False
    ids = prompt(1, 640)
    fleet.store("w1", ids, rank=1)
    (only,) = fleet.router.explain(fleet.request([*ids, 1])).workers
    assert (only.held_tokens, only.uncached_tokens) == (320, 321)
    worker.ledger(0).book(1_000, 0, prefill_s=None)
    (only,) = fleet.router.explain(fleet.request([*ids, 1])).workers
    assert only.inflight_tokens == 500


def test_notes_of_unpinned_requests_are_spread_over_the_ranks() -> None:
    """Which rank got it is unknown, so each repetition makes it likelier."""
    fleet = Fleet()
    worker = fleet.add("w1", ranks=(0, 1), events=False)
    worker.can_pin_ranks = False
    request = fleet.request(prompt(1, 641))
    hits = []
    for _ in range(3):
        decision = fleet.router.decide(request)
        hits.append(decision.hit_tokens)
        decision.sent()
        decision.finished(Usage(prompt_tokens=641, cached_tokens=0))
    assert hits == [0, 320, 640]


def test_blocks_off_the_gpu_weigh_less() -> None:
    """They are predicted in full, and cost as much as the weight says."""
    fleet = Fleet(1)
    ids = prompt(1, 1_001)
    fleet.store("w1", ids, medium="CPU")
    for weight, uncached in ((1.0, 9), (0.5, 505), (0.0, 1_001)):
        policy = KvCacheAware(random.Random(), Clock())
        router = Router(fleet.pool, policy, offload_weight=weight)
        (only,) = router.explain(fleet.request(ids)).workers
        assert (only.held_tokens, only.uncached_tokens) == (992, uncached)


def test_a_rank_the_client_chose() -> None:
    """Its rank is the only candidate; a rank nobody has is left to the workers."""
    fleet = Fleet()
    fleet.add("w1", ranks=(0, 1))
    fleet.add("w2", ranks=(2, 3))
    request = fleet.request(prompt(1, 100))
    chosen = fleet.router.explain(msgspec.structs.replace(request, rank=3))
    assert [(w.url, w.rank) for w in chosen.workers] == [("w2", 3)]
    beyond = fleet.router.explain(msgspec.structs.replace(request, rank=9))
    assert len(beyond.workers) == 4


def test_room_is_known_where_the_size_of_the_cache_is() -> None:
    """Less what is held and what is on its way; None where the size is unknown."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    worker.cache_blocks = worker.knowledge[0].history.capacity_blocks = 100
    fleet.store("w1", prompt(1, 320))
    told = fleet.router.explain(fleet.request(prompt(2, 64)))
    assert [candidate.room_tokens for candidate in told.workers] == [1_280, None]
    decision = fleet.router.decide(fleet.request(prompt(1, 320) + prompt(3, 100)))
    decision.sent()
    told = fleet.router.explain(fleet.request(prompt(2, 64)))
    assert decision.worker is worker
    assert told.workers[0].room_tokens == 1_180
