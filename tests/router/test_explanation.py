"""What `explain` says: each tier and cost term, why the winner won, where it ends."""

import msgspec
import pytest

from router import Rendering, RouteRequest
from router.explanation import ExplainedCandidate, Explanation
from tests.router.fleet import Fleet, prompt

IDS = prompt(1, 1_000)


def by_url(explanation: Explanation) -> dict[str, ExplainedCandidate]:
    """The explained candidates of workers with one rank each."""
    return {candidate.url: candidate for candidate in explanation.workers}


def test_tiers_and_doubt() -> None:
    """On the GPU, elsewhere, and how much of either is in doubt."""
    fleet = Fleet(2)
    fleet.store("w1", IDS[:320], medium="CPU")
    fleet.store("w2", IDS[:480])
    feed = fleet.worker("w2").knowledge[0].feed
    feed.disconnected("connection lost")
    warm = by_url(fleet.router.explain(fleet.request(IDS)))
    first, second = warm["w1"], warm["w2"]
    assert (first.held_tokens, first.gpu_tokens, first.offloaded_tokens) == (
        320,
        0,
        320,
    )
    assert (second.held_tokens, second.gpu_tokens) == (480, 480)
    assert (first.suspect_tokens, second.suspect_tokens) == (0, 480)
    assert (first.knowledge, second.knowledge) == ("live", "degraded")
    assert first.uncached_tokens == 1_000 - 160
    assert second.uncached_tokens == 1_000 - 240


def test_cost_is_the_sum_of_its_terms() -> None:
    """What waits before it, its own prefill, and what it makes others wait."""
    fleet = Fleet(2)
    fleet.store("w2", IDS[:800])
    fleet.worker("w2").ledger(0).book(400, 10, prefill_s=None)
    for candidate in fleet.router.explain(fleet.request(IDS)).workers:
        assert candidate.cost_s == pytest.approx(
            candidate.wait_s + candidate.prefill_s + candidate.delay_s
        )
        rate = candidate.prefill_rate
        assert candidate.wait_s == pytest.approx(candidate.inflight_tokens / rate)
        assert candidate.prefill_s == pytest.approx(candidate.uncached_tokens / rate)


def test_the_winner_is_set_beside_the_next() -> None:
    """The cost of both, and what the other holds and has in flight."""
    fleet = Fleet(2)
    fleet.store("w2", IDS[:800])
    fleet.worker("w1").ledger(0).book(200, 10, prefill_s=None)
    explained = fleet.router.explain(fleet.request(IDS))
    assert explained.chosen.url == "w2"
    assert explained.why == (
        "least prefill cost: 800 of 1000 prompt tokens held, 0 in flight; it costs "
        "0.02 s, next is w1 rank 0 with 0.11 s (0 held, 200 in flight)"
    )


def test_equals_take_turns() -> None:
    """Or the one that was sent less lately is taken."""
    fleet = Fleet(2)
    explained = fleet.router.explain(fleet.request(IDS))
    assert explained.why.endswith("w2 rank 0 costs the same, 0.1 s: they take turns")
    booking = fleet.worker("w1").ledger(0).book(0, 500, prefill_s=None)
    booking.first_token()
    explained = fleet.router.explain(fleet.request(IDS))
    assert explained.chosen.url == "w2"
    assert explained.why.endswith("costs the same, 0.1 s, and was sent more lately")


def test_a_policy_that_ignores_cost_says_what_it_costs() -> None:
    """The cheaper one is named."""
    fleet = Fleet(2, policy="round_robin")
    fleet.store("w2", IDS[:800])
    explained = fleet.router.explain(fleet.request(IDS))
    assert explained.chosen.url == "w1"
    assert explained.why.startswith("its turn: 0 of 1000 prompt tokens held")
    assert "it costs 0.1 s, w2 rank 0 would cost 0.02 s (800 held" in explained.why


def test_a_home_of_a_session_is_named() -> None:
    """Where nobody holds any of the prompt, the session decides."""
    fleet = Fleet(2)
    reasons = set()
    for name in ("a", "b", "c", "d", "e", "f"):
        request = msgspec.structs.replace(fleet.request(IDS), session=name)
        reasons.add(fleet.router.explain(request).why.partition(":")[0])
    assert "its session's home, as none of it is held anywhere" in reasons


def test_where_the_prompt_stops_being_known() -> None:
    """The first block that no candidate holds, and the token it begins with."""
    fleet = Fleet(2)
    nowhere = fleet.router.explain(fleet.request(IDS)).unknown_from
    assert nowhere is not None
    assert (nowhere.block, nowhere.token) == (0, 0)
    fleet.store("w1", IDS[:320])
    fleet.store("w2", IDS[:480])
    found = fleet.router.explain(fleet.request(IDS)).unknown_from
    assert found is not None
    assert (found.block, found.token, found.block_size) == (30, 480, 16)
    assert (found.url, found.rank) == ("w2", 0)


def test_a_prompt_that_is_known_to_its_end() -> None:
    """No worker reuses the last block of a prompt that ends with it."""
    fleet = Fleet(1)
    fleet.store("w1", IDS[:992])
    assert fleet.router.explain(fleet.request(IDS[:992])).unknown_from is None
    assert fleet.router.explain(fleet.request(IDS)).unknown_from is None


def test_the_longest_known_prefix_of_different_block_sizes() -> None:
    """Tokens are compared, not blocks."""
    fleet = Fleet(0)
    fleet.add("small", block_size=16)
    fleet.add("large", block_size=64)
    fleet.store("small", IDS[:320])
    fleet.store("large", IDS[:640])
    found = fleet.router.explain(fleet.request(IDS)).unknown_from
    assert found is not None
    assert (found.block, found.token, found.block_size) == (10, 640, 64)


def test_what_was_not_rendered_has_no_such_place() -> None:
    """Positions in raw content are guesses."""
    fleet = Fleet(2)
    content = Rendering(
        profile="content", block_size=64, hashes=[1, 2], token_count=150, estimated=True
    )
    request = RouteRequest(model="qwen", content=content, not_rendered="media")
    explained = fleet.router.explain(request)
    assert explained.unknown_from is None
    assert "(estimates, not rendered: media)" in explained.why
    for candidate in explained.workers:
        assert candidate.gpu_tokens == candidate.offloaded_tokens == 0
        assert candidate.block_size == 16, "the worker's, not that of the guess"


def test_ranks_that_cannot_be_pinned_count_by_their_mean() -> None:
    """As they are credited."""
    fleet = Fleet(0)
    worker = fleet.add("w1", ranks=(0, 1))
    worker.can_pin_ranks = False
    fleet.store("w1", IDS[:320], rank=1)
    (candidate,) = fleet.router.explain(fleet.request(IDS)).workers
    assert (candidate.held_tokens, candidate.gpu_tokens) == (160, 160)
