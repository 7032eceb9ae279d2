"""Requests that not every worker can answer, and what answers teach of a worker."""

import msgspec
import pytest

from router import ListedModel, NoCandidate, Usage
from tests.router.fleet import MODEL, Fleet, prompt

ADAPTER = "sql"


def test_an_adapter_only_goes_to_workers_that_list_it() -> None:
    """However busy they are, and whatever the others hold of the prompt."""
    fleet = Fleet(2)
    listing = [ListedModel(id=MODEL), ListedModel(id=ADAPTER, parent=MODEL)]
    fleet.add("a1", listing=listing)
    ids = prompt(1, 1_000)
    fleet.store("w1", ids)
    fleet.worker("a1").ledger(0).book(1_000_000, 10, prefill_s=None)
    asked = [fleet.router.decide(fleet.request(ids, model=ADAPTER)) for _ in range(5)]
    assert {decision.worker.url for decision in asked} == {"a1"}
    with pytest.raises(NoCandidate):
        fleet.router.decide(fleet.request(ids, model=ADAPTER, exclude=["a1"]))


def test_only_one_worker_can_answer() -> None:
    """It gets the request, whatever it costs; another if it was tried, or is gone."""
    fleet = Fleet(3)
    ids = prompt(1, 1_000)
    fleet.store("w1", ids)
    fleet.worker("w2").ledger(0).book(1_000_000, 10, prefill_s=None)
    request = msgspec.structs.replace(fleet.request(ids), worker="w2")
    assert fleet.router.decide(request).worker.url == "w2"
    tried = msgspec.structs.replace(request, exclude=frozenset({"w2"}))
    assert fleet.router.decide(tried).worker.url == "w1"
    fleet.pool.remove("w2")
    assert fleet.router.decide(request).worker.url == "w1"


def _answer(fleet: Fleet, seed: int, *, speed: float, stream: bool = True) -> None:
    """One request, prefilled at that speed after 10 ms."""
    tokens = 500 + 100 * (seed % 20)
    decision = fleet.router.decide(fleet.request(prompt(seed, tokens), stream=stream))
    decision.sent()
    fleet.clock += 0.01 + tokens / speed
    if stream:
        decision.first_token()
    fleet.clock += 1.0
    usage = Usage(prompt_tokens=tokens, completion_tokens=20, cached_tokens=0)
    decision.finished(usage)


def test_streams_teach_a_workers_speed() -> None:
    """From the requests themselves; the ones behind reckon with it."""
    fleet = Fleet(1)
    for seed in range(60):
        _answer(fleet, seed, speed=5_000)
    rate = fleet.worker("w1").rate
    assert rate.source == "learnt"
    assert rate.tokens_per_s == pytest.approx(5_000, rel=0.1)
    (only,) = fleet.router.explain(fleet.request(prompt(99, 1_000))).workers
    assert only.prefill_s == pytest.approx(0.2, rel=0.1)


def test_answers_that_are_not_streamed_teach_nothing() -> None:
    """Nobody saw their prefill end."""
    fleet = Fleet(1)
    for seed in range(60):
        _answer(fleet, seed, speed=5_000, stream=False)
    assert fleet.worker("w1").rate.source == "prior"


def test_failures_teach_nothing() -> None:
    """Nor do they leave the meter waiting for them."""
    fleet = Fleet(1)
    for seed in range(60):
        decision = fleet.router.decide(fleet.request(prompt(seed, 900)))
        decision.sent()
        fleet.clock += 30.0
        decision.failed("timeout")
    assert fleet.worker("w1").rate.source == "prior"
    for seed in range(60):
        _answer(fleet, seed, speed=20_000)
    assert fleet.worker("w1").rate.tokens_per_s == pytest.approx(20_000, rel=0.1)
