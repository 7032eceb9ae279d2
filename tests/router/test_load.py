"""What workers say of their load, and what the router makes of it."""

from typing import Any

import pytest

from router import RouteRequest
from router.load import LIVES_S, Load, of_others
from tests.router.fleet import MODEL, Fleet, prompt

IDS = prompt(1, 1_600)


def report(fleet: Fleet, url: str, own: int = 0, **told: Any) -> None:
    """A worker says something of its load."""
    worker = fleet.worker(url)
    fleet.pool.reported(worker, 0, Load(**told), own=own, source="/metrics")


def chosen(fleet: Fleet, ids: list[int] | None = None) -> str:
    """Who would get a request now."""
    return fleet.router.explain(fleet.request(ids or IDS)).chosen.url


@pytest.mark.parametrize(
    ("load", "own", "tokens"),
    [
        (Load(waiting=5), 0, 5_000),
        (Load(waiting=5), 3, 2_000),
        (Load(waiting=5), 7, 0),
        (Load(running=9), 0, 0),
        (Load(waiting=4, waiting_tokens=8_000), 1, 6_000),
        (Load(waiting=0, waiting_tokens=8_000), 0, 0),
    ],
)
def test_what_waits_besides_ours(load: Load, own: int, tokens: int) -> None:
    """Counted in requests of the usual length, or in the engine's own tokens."""
    assert of_others(load, own, 1_000.0) == tokens


def test_a_larger_report_wins_over_the_own_ledger() -> None:
    """The ledger says idle; another gateway's requests wait there nevertheless."""
    fleet = Fleet(2)
    fleet.store("w1", IDS)
    assert chosen(fleet) == "w1"
    report(fleet, "w1", waiting=40)
    assert chosen(fleet) == "w2"
    told = fleet.router.explain(fleet.request(IDS)).workers[0]
    assert (told.inflight_tokens, told.others_tokens) == (0, 40_000)
    assert told.wait_s == pytest.approx(2.0)


def test_a_smaller_report_changes_nothing() -> None:
    """The ledger knows what was sent a moment ago; the worker did not, yet."""
    fleet = Fleet(2)
    decision = fleet.router.decide(fleet.request(IDS))
    report(fleet, decision.worker.url, own=1, waiting=0)
    explained = fleet.router.explain(fleet.request(prompt(2, 1_600)))
    told = {worker.url: worker.inflight_tokens for worker in explained.workers}
    assert told[decision.worker.url] == 1_600
    assert explained.chosen.url != decision.worker.url


def test_requests_of_ours_are_not_counted_twice() -> None:
    """They wait there, and the worker says so: they are the ledger's."""
    fleet = Fleet(1)
    for number in range(3):
        fleet.router.decide(fleet.request(prompt(number, 1_600)))
    report(fleet, "w1", own=fleet.worker("w1").ledger(0).prefills, waiting=3)
    told = fleet.router.explain(fleet.request(IDS)).workers[0]
    assert (told.inflight_tokens, told.others_tokens) == (4_800, 0)


def test_the_usual_length_is_learnt() -> None:
    """A waiting request is taken to be as long as those seen lately."""
    fleet = Fleet(2)
    for number in range(200):
        fleet.router.decide(fleet.request(prompt(number, 4_000))).finished(None)
    report(fleet, "w1", waiting=1)
    told = fleet.router.explain(fleet.request(IDS)).workers[0]
    assert told.others_tokens == pytest.approx(4_000, rel=0.01)


def test_a_report_expires() -> None:
    """Whoever says nothing any more is as loaded as the ledger knows."""
    fleet = Fleet(2)
    fleet.store("w1", IDS)
    report(fleet, "w1", waiting=40, kv_usage=1.0)
    fleet.clock += LIVES_S
    assert chosen(fleet) == "w2"
    fleet.clock += 0.1
    assert chosen(fleet) == "w1"
    assert fleet.router.explain(fleet.request(IDS)).workers[0].kv_usage is None


def test_a_worker_whose_cache_is_full_is_busy() -> None:
    """It says 99 % of its KV cache are in use, our own count says next to nothing.

    ai-dynamo/dynamo#7753: two publishers wrote one field, and the last one won. Here
    they are two: the ledger, and the report.
    """
    fleet = Fleet(2)
    fleet.store("w1", IDS)
    report(fleet, "w1", kv_usage=0.99)
    for _ in range(5):
        assert fleet.router.decide(fleet.request(IDS)).worker.url == "w2"
    explained = fleet.router.explain(fleet.request(IDS))
    assert [(w.url, w.full) for w in explained.workers] == [("w1", True), ("w2", False)]
    assert explained.workers[0].kv_usage == 0.99


@pytest.mark.parametrize("policy", ["round_robin", "random", "least_loaded", "session"])
def test_no_policy_sends_to_a_full_worker(policy: str) -> None:
    """It is a matter of the worker, not of the choice."""
    fleet = Fleet(3, policy=policy)
    report(fleet, "w2", kv_usage=1.0)
    urls = {fleet.router.decide(fleet.request(IDS)).worker.url for _ in range(30)}
    assert urls == {"w1", "w3"}


def test_if_all_are_full_all_are_asked() -> None:
    """A request is sent nevertheless, where it costs least."""
    fleet = Fleet(2)
    fleet.store("w2", IDS)
    report(fleet, "w1", kv_usage=1.0)
    report(fleet, "w2", kv_usage=0.98)
    assert chosen(fleet) == "w2"


def test_one_full_rank_does_not_close_the_others() -> None:
    """Ranks have caches of their own."""
    fleet = Fleet()
    worker = fleet.add("w1", ranks=(0, 1))
    fleet.pool.reported(worker, 0, Load(kv_usage=1.0), own=0, source="/metrics")
    ranks = {fleet.router.decide(fleet.request(IDS)).rank for _ in range(6)}
    assert ranks == {1}


def test_a_worker_that_picks_the_rank_itself_is_full_when_all_are() -> None:
    """Each rank tells of itself; what waits is shared by them."""
    fleet = Fleet()
    worker = fleet.add("w1", ranks=(0, 1))
    worker.can_pin_ranks = False
    fleet.pool.reported(worker, 0, Load(waiting=4, kv_usage=1.0), own=0, source="x")
    fleet.pool.reported(worker, 1, Load(waiting=2, kv_usage=0.5), own=0, source="x")
    (told,) = fleet.router.explain(fleet.request(IDS)).workers
    assert (told.full, told.others_tokens, told.kv_usage) == (False, 3_000, 0.75)


def test_a_request_without_renderings_sees_the_load_too() -> None:
    """Whatever is known of its prompt, others' requests come first."""
    fleet = Fleet(2)
    report(fleet, "w1", waiting=10)
    request = RouteRequest(model=MODEL, prompt_tokens=100)
    assert {fleet.router.decide(request).worker.url for _ in range(4)} == {"w2"}
