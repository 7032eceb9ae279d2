"""The fleet and its states."""

import logging

import pytest

from router import ListedModel, Worker, WorkerPool, WorkerSpec, WorkerState
from router.pool import back_off_s
from tests.router.fleet import Clock, Fleet


def urls(workers: list[Worker]) -> list[str]:
    """Their URLs, in order."""
    return [worker.url for worker in workers]


def test_a_worker_joins_and_is_ready_at_its_first_answer() -> None:
    """The change is reported once, with the state before."""
    changes: list[tuple[str, WorkerState, WorkerState]] = []
    pool = WorkerPool(
        clock=Clock(),
        on_change=lambda worker, before: changes.append(
            (worker.url, before, worker.state)
        ),
    )
    worker = pool.add(WorkerSpec(url="w1"))
    assert worker.state is WorkerState.joining
    pool.answered(worker)
    pool.answered(worker)
    assert changes == [("w1", WorkerState.joining, WorkerState.ready)]


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


@pytest.mark.parametrize(
    ("failures", "rest_s", "state"),
    [
        (1, 1, WorkerState.suspect),
        (2, 2, WorkerState.suspect),
        (3, 4, WorkerState.suspect),
        (4, 8, WorkerState.suspect),
        (5, 16, WorkerState.suspect),
        (6, 30, WorkerState.down),
        (7, 30, WorkerState.down),
        (5_000, 30, WorkerState.down),
    ],
)
def test_back_off_doubles_until_down(
    failures: int, rest_s: float, state: WorkerState
) -> None:
    """Each failure after a back-off starts a longer one, up to 30 s."""
    fleet = Fleet(1)
    worker = fleet.worker("w1")
    for _ in range(min(failures, 40)):
        fleet.clock += worker.retry_at - fleet.clock.now
        fleet.pool.connect_failed(worker, "refused")
    assert worker.state is state
    assert worker.retry_at - fleet.clock.now == rest_s
    assert back_off_s(failures) == rest_s


@pytest.mark.parametrize("state", [WorkerState.suspect, WorkerState.down])
def test_one_answer_makes_it_ready_again(state: WorkerState) -> None:
    """From suspect and from down alike, and the back-off starts small again."""
    fleet = Fleet(1)
    worker = fleet.worker("w1")
    while worker.state is not state:
        fleet.clock += worker.retry_at - fleet.clock.now
        fleet.pool.connect_failed(worker, "refused")
    fleet.pool.answered(worker)
    assert (worker.state, worker.failures) == (WorkerState.ready, 0)
    fleet.pool.connect_failed(worker, "refused")
    assert worker.retry_at - fleet.clock.now == 1


def test_failures_of_one_outage_count_once() -> None:
    """Fifty streams that break together are one failure, logged once."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    for _ in range(50):
        fleet.pool.connect_failed(worker, "reset")
    assert (worker.failures, worker.state) == (1, WorkerState.suspect)


def test_state_changes_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """One line a change, with the reason; none while nothing changes."""
    fleet = Fleet(1)
    worker = fleet.worker("w1")
    with caplog.at_level(logging.INFO, logger="router.pool"):
        for _ in range(3):
            fleet.clock += 5
            fleet.pool.connect_failed(worker, "connection refused")
        fleet.pool.answered(worker)
        fleet.pool.answered(worker)
    assert caplog.messages == [
        "worker w1: ready -> suspect: connection refused",
        "worker w1: suspect -> ready: answered",
    ]


def test_after_the_back_off_exactly_one_request_may_try() -> None:
    """The one that is chosen; the others wait for its outcome or a back-off more."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    fleet.pool.connect_failed(worker, "refused")
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]
    fleet.clock += 1
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]
    fleet.pool.chosen(worker)
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]
    fleet.clock += 1
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"], "trial without outcome"
    fleet.pool.chosen(worker)
    fleet.pool.connect_failed(worker, "refused")
    assert worker.retry_at - fleet.clock.now == 2
    fleet.clock += 2
    fleet.pool.chosen(worker)
    fleet.pool.answered(worker)
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]
    assert worker.state is WorkerState.ready


def test_a_failed_trial_counts_even_within_its_new_back_off() -> None:
    """The failure of the trial itself is news; a second one with it is not."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    fleet.pool.connect_failed(worker, "refused")
    fleet.clock += 1
    fleet.pool.chosen(worker)
    fleet.pool.connect_failed(worker, "refused")
    fleet.pool.connect_failed(worker, "refused")
    assert worker.failures == 2


@pytest.mark.parametrize(
    ("retry_after_s", "rest_s"),
    [
        (None, 1),
        (5.0, 5),
        (0.0, 0),
        (-4.0, 0),
        (3_600.0, 30),
        (float("inf"), 30),
        (float("nan"), 1),
    ],
)
def test_a_busy_worker_rests_as_long_as_it_asked(
    retry_after_s: float | None, rest_s: float
) -> None:
    """At most 30 s, 1 s if it did not say; it stays ready."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    fleet.pool.busy(worker, retry_after_s)
    assert worker.state is WorkerState.ready
    if rest_s:
        fleet.clock += rest_s - 0.01
        assert urls(fleet.pool.candidates("qwen")) == ["w2"]
        fleet.clock += 0.02
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]


def test_a_shorter_rest_does_not_cut_a_longer_one() -> None:
    """And an answer to an older request does not end it."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    fleet.pool.busy(worker, 20)
    fleet.pool.busy(worker, 1)
    fleet.pool.answered(worker)
    fleet.clock += 19
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]


def test_the_best_class_that_is_not_empty_is_used() -> None:
    """Working, then joining, then busy, then out of order, then draining."""
    fleet = Fleet(4)
    fleet.pool.listed(fleet.pool.add(WorkerSpec(url="new")), [ListedModel(id="qwen")])
    busy, suspect, draining = (fleet.worker(url) for url in ("w2", "w3", "w4"))
    fleet.pool.busy(busy, 10)
    fleet.pool.connect_failed(suspect, "refused")
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
        fleet.pool.connect_failed(worker, "refused")
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2", "w3"]


def test_a_draining_worker_keeps_its_state() -> None:
    """Answers and failures of what it still has do not bring it back."""
    fleet = Fleet(1)
    worker = fleet.worker("w1")
    worker.state = WorkerState.draining
    fleet.pool.answered(worker)
    fleet.pool.connect_failed(worker, "reset")
    assert (worker.state, worker.failures) == (WorkerState.draining, 0)
