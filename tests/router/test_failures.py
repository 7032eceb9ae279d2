"""What a request's failure means: retries, rests, and what counts against whom."""

import msgspec
import pytest

from router import WorkerState
from tests.router.fleet import Fleet, prompt


def test_a_retry_is_a_new_decision_elsewhere() -> None:
    """The first is failed and released, the second excludes its worker."""
    fleet = Fleet(2)
    ids = prompt(1, 400)
    fleet.store("w1", ids)
    request = fleet.request(ids)
    first = fleet.router.decide(request)
    first.failed("connect")
    again = msgspec.structs.replace(request, exclude=frozenset({first.worker.url}))
    second = fleet.router.decide(again)
    assert (first.worker.url, second.worker.url) == ("w1", "w2")
    assert fleet.worker("w1").inflight_requests == 0
    assert fleet.worker("w1").state is WorkerState.suspect


def test_a_broken_warm_worker_is_tried_a_few_times_only() -> None:
    """It resets everything: of 100 requests in 10 s it sees one a back-off."""
    fleet = Fleet(3)
    ids = prompt(1, 4_000)
    fleet.store("w1", ids)
    tried = 0
    for _ in range(100):
        request = fleet.request(ids)
        decision = fleet.router.decide(request)
        if decision.worker.url == "w1":
            tried += 1
            decision.sent()
            decision.failed("reset")
            retry = msgspec.structs.replace(request, exclude=frozenset({"w1"}))
            decision = fleet.router.decide(retry)
        assert decision.worker.url != "w1"
        decision.answered(200)
        decision.finished(None)
        fleet.clock += 0.1
    assert 2 <= tried <= 4


def test_only_one_of_many_requests_tries_a_worker_after_its_back_off() -> None:
    """No stampede: the others go elsewhere until its answer is there."""
    fleet = Fleet(2)
    ids = prompt(1, 4_000)
    fleet.store("w1", ids)
    fleet.pool.failed(fleet.worker("w1"), "refused")
    fleet.clock += 1.0
    decisions = [fleet.router.decide(fleet.request(ids)) for _ in range(20)]
    assert [d.worker.url for d in decisions].count("w1") == 1
    assert decisions[0].worker.url == "w1"
    decisions[0].answered(200)
    decisions[0].finished(None)
    assert fleet.worker("w1").state is WorkerState.ready
    assert fleet.router.decide(fleet.request(ids)).worker.url == "w1"


def test_client_errors_never_count_against_a_worker() -> None:
    """Thirty bad requests change nothing."""
    fleet = Fleet(1)
    for status in [400, 404, 422] * 10:
        decision = fleet.router.decide(fleet.request(prompt(1, 50)))
        decision.sent()
        decision.answered(status)
        decision.failed("status")
    worker = fleet.worker("w1")
    assert (worker.state, worker.failures) == (WorkerState.ready, 0)
    assert fleet.router.decide(fleet.request(prompt(1, 50))).worker is worker


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_worker_gets_a_rest(status: int) -> None:
    """The retry goes elsewhere, and so do others for as long as it asked."""
    fleet = Fleet(2)
    ids = prompt(1, 4_000)
    fleet.store("w1", ids)
    decision = fleet.router.decide(fleet.request(ids))
    decision.answered(status, 7.0)
    decision.failed("status")
    assert fleet.router.decide(fleet.request(ids)).worker.url == "w2"
    fleet.clock += 7.0
    assert fleet.router.decide(fleet.request(ids)).worker.url == "w1"


def test_a_fleet_starts_with_a_worker_missing() -> None:
    """The one that refuses connections is passed over, and found when it comes."""
    fleet = Fleet(2)
    missing = fleet.worker("w2")
    missing.state = WorkerState.joining
    fleet.pool.failed(missing, "refused")
    for _ in range(5):
        decision = fleet.router.decide(fleet.request(prompt(1, 50)))
        assert decision.worker.url == "w1"
    fleet.clock += 1
    fleet.pool.contacted(missing)
    assert fleet.router.decide(fleet.request(prompt(2, 50))).worker is missing
