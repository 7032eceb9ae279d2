"""Made-up workloads: what they promise, and the same ones from the same seed."""

import random

import pytest

from simworker.simulate.prompts import length
from simworker.simulate.synthetic import SYNTHETIC


@pytest.mark.parametrize("name", list(SYNTHETIC))
def test_a_seed_is_a_workload(name: str) -> None:
    """The same requests each time; others from another seed."""
    make = SYNTHETIC[name]
    first = make(random.Random(1))
    assert make(random.Random(1)) == first
    assert make(random.Random(2)) != first
    assert all(r.follows is None or r.follows < n for n, r in enumerate(first))


def test_b2b() -> None:
    """150 tenants of five users, one question each: 7,200 tokens, 750 prompts."""
    asked = SYNTHETIC["b2b"](random.Random(0))
    assert 10_000 < len(asked) < 13_000
    assert {length(request.prompt) for request in asked} == {7_200}
    assert len({request.prompt[0].path for request in asked}) == 150
    assert len({request.prompt[-1].path for request in asked}) == 750
    assert asked[-1].at < 320


def test_chat4() -> None:
    """Four beginnings; each turn goes on with all that was said before."""
    asked = SYNTHETIC["chat4"](random.Random(0))
    assert {request.prompt[0].tokens for request in asked} == {1_000}
    assert len({request.prompt[0].path for request in asked}) == 4
    for request in asked:
        if request.follows is not None:
            before = asked[request.follows]
            assert request.prompt[: len(before.prompt)] == before.prompt
            assert request.session == before.session
    assert len({request.session for request in asked}) == 2_500


def test_agents() -> None:
    """Some grow beyond 100,000 tokens, and start groups of sub-agents."""
    asked = SYNTHETIC["agents"](random.Random(0))
    assert max(length(request.prompt) for request in asked) > 100_000
    followers = [request.follows for request in asked if request.follows is not None]
    assert max(followers.count(place) for place in set(followers)) >= 5


def test_no_sharing() -> None:
    """Every prompt is new."""
    asked = SYNTHETIC["no-sharing"](random.Random(0))
    assert len({request.prompt[0].path for request in asked}) == len(asked) == 6_000


def test_one_hot_prefix() -> None:
    """Four of five share 8,000 tokens."""
    asked = SYNTHETIC["one-hot-prefix"](random.Random(0))
    hot = sum(request.prompt[0].tokens == 8_000 for request in asked)
    assert hot / len(asked) == pytest.approx(0.8, abs=0.03)


def test_oversubscribed() -> None:
    """Prefixes of 5.4 million tokens, more than twice what eight workers hold."""
    asked = SYNTHETIC["oversubscribed"](random.Random(0))
    prefixes = {request.prompt[0] for request in asked}
    assert sum(prefix.tokens for prefix in prefixes) > 2 * 8 * 307_328 * 0.9
