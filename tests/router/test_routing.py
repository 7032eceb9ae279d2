"""Where requests go: the router over real feeds and a real index."""

from collections import Counter

import msgspec
import pytest

from router import ListedModel, NoWorker, Router, RouteRequest, Usage
from router.policy import KvCacheAware
from tests.router.fleet import Fleet, prompt


def test_a_prompt_goes_where_its_prefix_is() -> None:
    """The longest held prefix wins among idle workers, and is predicted in tokens."""
    fleet = Fleet(3)
    ids = prompt(1, 1_000)
    fleet.store("w2", ids[:480])
    fleet.store("w3", ids[:800])
    decision = fleet.router.decide(fleet.request(ids))
    assert decision.worker.url == "w3"
    assert (decision.hit_tokens, decision.best_hit_tokens) == (800, 800)
    assert decision.prompt_tokens == 1_000
    assert decision.rendering is not None
    assert decision.rendering.block_size == 16
    assert [hop.worker.url for hop in decision.hops] == ["w3"]


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


def test_a_cold_prompt_goes_to_the_idle_worker() -> None:
    """Not to the smaller cache."""
    fleet = Fleet(2)
    fleet.store("w1", prompt(1, 64))
    fleet.store("w2", prompt(2, 16_000))
    for _ in range(50):
        fleet.worker("w1").ledger(0).book(100, 10, prefill_s=None)
    assert fleet.router.decide(fleet.request(prompt(3, 500))).worker.url == "w2"


def test_an_imbalance_does_not_throw_affinity_away() -> None:
    """Of 40, 41 and 80 in flight, the warm 41 is better than the cold 40."""
    fleet = Fleet(3)
    ids = prompt(1, 4_000)
    fleet.store("w2", ids)
    for url, requests in (("w1", 40), ("w2", 41), ("w3", 80)):
        for _ in range(requests):
            fleet.worker(url).ledger(0).book(100, 10, prefill_s=None)
    assert fleet.router.decide(fleet.request(ids)).worker.url == "w2"


def test_few_long_prompts_weigh_more_than_many_short() -> None:
    """Load is tokens: 3 x 200,000 against 30 x 200."""
    for policy in ("kv_cache_aware", "least_loaded"):
        fleet = Fleet(2, policy=policy)
        for _ in range(3):
            fleet.worker("w1").ledger(0).book(200_000, 10, prefill_s=None)
        for _ in range(30):
            fleet.worker("w2").ledger(0).book(200, 10, prefill_s=None)
        decision = fleet.router.decide(fleet.request(prompt(1, 50_000)))
        assert decision.worker.url == "w2"


@pytest.mark.parametrize("policy", ["kv_cache_aware", "least_loaded", "round_robin"])
@pytest.mark.parametrize("keep", [0, 1, 7, 500], ids=lambda keep: f"{keep}_at_a_time")
def test_equal_workers_share_unique_prompts(policy: str, keep: int) -> None:
    """500 prompts over 5 workers, one after the other or together: 15 to 25 % each."""
    fleet = Fleet(5, policy=policy)
    going = []
    counts: Counter[str] = Counter()
    for seed in range(500):
        decision = fleet.router.decide(fleet.request(prompt(seed, 20 + seed % 90)))
        counts[decision.worker.url] += 1
        decision.sent()
        going.append(decision)
        if len(going) > keep:
            going.pop(0).finished(Usage(prompt_tokens=100, completion_tokens=20))
    assert len(counts) == 5
    assert all(75 <= count <= 125 for count in counts.values())


def test_load_beats_affinity_when_saturated() -> None:
    """A warm worker with a long queue is left alone."""
    fleet = Fleet(2)
    ids = prompt(1, 2_000)
    fleet.store("w1", ids)
    fleet.worker("w1").ledger(0).book(100_000, 10, prefill_s=None)
    decision = fleet.router.decide(fleet.request(ids))
    assert decision.worker.url == "w2"
    assert (decision.hit_tokens, decision.best_hit_tokens) == (0, 1_984)


def test_siblings_find_each_other_and_a_hot_prefix_replicates() -> None:
    """100 requests at once: followers hit what leaders brought, on several workers."""
    fleet = Fleet(8)
    shared = prompt(0, 4_000)
    seen: set[str] = set()
    counts: Counter[str] = Counter()
    for seed in range(1, 101):
        decision = fleet.router.decide(fleet.request(shared + prompt(seed, 200)))
        decision.sent()
        url = decision.worker.url
        assert decision.hit_tokens == (4_000 if url in seen else 0)
        seen.add(url)
        counts[url] += 1
    booked = sum(worker.inflight_tokens for worker in fleet.pool.workers)
    assert booked == 100 * 200 + 4_000 * len(seen)
    assert 3 <= len(seen) <= 8
    assert max(counts.values()) <= 30


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


def test_explain_decides_the_same_and_books_nothing() -> None:
    """Field by field as a decision would weigh it."""
    fleet = Fleet(2)
    ids = prompt(1, 1_000)
    fleet.store("w2", ids[:800])
    fleet.worker("w2").ledger(0).book(200, 10, prefill_s=None)
    explanation = fleet.router.explain(fleet.request(ids))
    assert explanation.prompt_tokens == 1_000
    assert explanation.chosen == fleet.router.explain(fleet.request(ids)).chosen
    cold, warm = explanation.workers
    assert (warm.url, warm.rank, warm.held_tokens) == ("w2", 0, 800)
    assert (warm.uncached_tokens, warm.inflight_tokens) == (200, 200)
    assert warm.inflight_requests == 1
    assert warm.cost_s == pytest.approx(0.03)
    assert warm.estimate_s == pytest.approx(0.02)
    assert cold.cost_s == pytest.approx(0.1)
    assert explanation.why == (
        "least prefill cost: 800 of 1000 prompt tokens held, 200 in flight"
    )
    assert [worker.inflight_requests for worker in fleet.pool.workers] == [0, 1]
    assert fleet.router.decide(fleet.request(ids)).why == explanation.why


def test_explain_says_what_was_not_rendered() -> None:
    """And that a single candidate was no choice."""
    fleet = Fleet(1)
    request = RouteRequest(model="qwen", prompt_tokens=50, not_rendered="media")
    assert fleet.router.explain(request).why == (
        "the only candidate: 0 of 50 prompt tokens held, 0 in flight "
        "(estimates, not rendered: media)"
    )


def test_the_time_of_each_matching_is_told() -> None:
    """For a metric; by the timer that was passed in."""
    fleet = Fleet(2)
    took: list[float] = []
    ticks = iter(range(10))
    router = Router(
        fleet.pool,
        KvCacheAware(),
        on_match=took.append,
        timer=lambda: float(next(ticks)),
    )
    router.explain(fleet.request(prompt(1, 100)))
    assert took == [1.0]


def test_blocks_off_the_gpu_weigh_less() -> None:
    """They are predicted in full, and cost as much as the weight says."""
    fleet = Fleet(1)
    ids = prompt(1, 1_001)
    fleet.store("w1", ids, medium="CPU")
    for weight, uncached in ((1.0, 9), (0.5, 505), (0.0, 1_001)):
        router = Router(fleet.pool, KvCacheAware(), offload_weight=weight)
        (only,) = router.explain(fleet.request(ids)).workers
        assert (only.held_tokens, only.uncached_tokens) == (992, uncached)


def test_no_worker_left_is_an_error_of_its_own() -> None:
    """With or without one tried before."""
    fleet = Fleet(1)
    with pytest.raises(NoWorker, match="no other worker is left"):
        fleet.router.decide(fleet.request(prompt(1, 9), exclude=["w1"]))
    with pytest.raises(NoWorker, match="no workers"):
        Router(Fleet().pool, KvCacheAware()).explain(RouteRequest())


def test_a_removed_worker_gets_nothing_and_releases_what_it_had() -> None:
    """Its requests end in its own books."""
    fleet = Fleet(2)
    decision = fleet.router.decide(fleet.request(prompt(1, 400)))
    worker = fleet.pool.remove(decision.worker.url)
    assert worker is not None
    other = fleet.router.decide(fleet.request(prompt(2, 400)))
    assert other.worker is not worker
    decision.failed("reset")
    assert (worker.inflight_requests, worker.inflight_tokens) == (0, 0)
