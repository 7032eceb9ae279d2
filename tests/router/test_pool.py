"""The fleet: members, and who may get a request."""

import pytest

from router import ListedModel, WorkerPool, WorkerSpec
from router.worker import WorkerState
from tests.router.fleet import Clock, Fleet, prompt, urls


def test_adding_twice_is_an_error_and_removing_is_not() -> None:
    """A URL names one worker."""
    pool = WorkerPool(clock=Clock())
    worker = pool.add(WorkerSpec(url="w1"))
    with pytest.raises(ValueError, match="w1 is already in the pool"):
        pool.add(WorkerSpec(url="w1"))
    assert pool.get("w1") is worker
    assert pool.remove("w1") is worker
    assert pool.remove("w1") is None
    assert pool.workers == []


def test_what_was_in_flight_at_a_url_is_so_at_the_next_worker_there() -> None:
    """To its end: load, first tokens owed, and signs of life."""
    fleet = Fleet(1)
    requests = [fleet.request(prompt(seed, 100)) for seed in (1, 2)]
    first, second = (fleet.router.decide(request) for request in requests)
    first.sent()
    second.sent()
    fleet.pool.remove("w1")
    again = fleet.add("w1")
    assert again is not first.worker
    assert (again.inflight_requests, again.inflight_tokens) == (2, 200)
    assert again.pulse.owed == 2
    beats = again.pulse.beats
    first.first_token()
    assert (again.inflight_tokens, again.pulse.owed) == (100, 1)
    assert again.pulse.beats > beats
    first.finished(None)
    second.failed("client")
    second.failed("client")
    assert (again.inflight_requests, again.inflight_tokens) == (0, 0)
    assert again.pulse.owed == 0


def test_one_that_had_nothing_in_flight_leaves_nothing() -> None:
    """Whoever is there next begins anew."""
    fleet = Fleet(1)
    decision = fleet.router.decide(fleet.request(prompt(1, 100)))
    decision.finished(None)
    before = fleet.worker("w1")
    fleet.pool.remove("w1")
    again = fleet.add("w1")
    assert again.pulse is not before.pulse
    assert again.ledgers == {}


def test_the_best_class_that_is_not_empty_is_used() -> None:
    """Working, then joining, then busy, then out of order, then draining."""
    fleet = Fleet(4)
    fleet.pool.listed(fleet.pool.add(WorkerSpec(url="new")), [ListedModel(id="qwen")])
    busy, suspect, draining = (fleet.worker(url) for url in ("w2", "w3", "w4"))
    fleet.pool.busy(busy, 10)
    fleet.pool.failed(suspect, "refused")
    draining.state = WorkerState.draining
    gone: list[str] = []
    for url in ("w1", "new", "w2", "w3", "w4"):
        assert urls(fleet.pool.candidates("qwen", frozenset(gone))) == [url]
        gone.append(url)
    assert fleet.pool.candidates("qwen", frozenset(gone)) == []


def test_if_every_worker_looks_bad_all_may_be_tried() -> None:
    """A back-off never makes the fleet unreachable."""
    fleet = Fleet(3)
    for worker in fleet.pool.workers:
        fleet.pool.failed(worker, "refused")
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2", "w3"]
