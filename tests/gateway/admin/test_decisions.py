"""The ring of decisions: what each one shows, and that it stays small."""

import pytest

from gateway.admin.decisions import FINISHED, UNDER_WAY, Decisions
from router import Decision, Usage
from tests.router.fleet import Clock, Fleet


@pytest.fixture
def fleet() -> Fleet:
    """Two workers."""
    return Fleet(2)


def decide(fleet: Fleet) -> Decision:
    """A decision over the fleet."""
    return fleet.router.decide(fleet.request(range(64)))


def test_from_its_beginning_to_its_end(fleet: Fleet) -> None:
    """Under way, then the first token, then finished with what was delivered."""
    clock = Clock()
    decisions = Decisions(clock=clock)
    decision = decide(fleet)
    noted = decisions.note(decision)
    (shown,) = decisions.page()
    assert shown["worker"] == decision.worker.url
    assert shown["why"] == decision.why
    assert (shown["prompt_tokens"], shown["end"]) == (64, UNDER_WAY)
    assert shown["first_token_s"] is shown["delivered_hit_tokens"] is None
    clock += 2.04
    noted.first_token(0.25)
    decision.finished(Usage(prompt_tokens=65, completion_tokens=3, cached_tokens=16))
    noted.finished(decision.outcome)
    (shown,) = decisions.page()
    assert (shown["end"], shown["ago_s"]) == (FINISHED, 2.0)
    assert (shown["first_token_s"], shown["delivered_hit_tokens"]) == (0.25, 16)
    assert shown["prompt_tokens"] == 65


def test_the_oldest_go(fleet: Fleet) -> None:
    """The last one comes first; one that failed says how."""
    decisions = Decisions(capacity=3)
    for kind in ("a", "b", "c", "connect"):
        decisions.note(decide(fleet)).failed(kind)
    assert [shown["end"] for shown in decisions.page()] == ["connect", "c", "b"]
