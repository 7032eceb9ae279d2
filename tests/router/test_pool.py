"""The fleet: members, and who may get a request."""

import pytest

from router import ListedModel, WorkerPool, WorkerSpec
from router.worker import WorkerState
from tests.router.fleet import Clock, Fleet, urls


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
