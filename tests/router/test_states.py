"""How a worker's state changes: failures, back-off, probation, health checks."""

import logging

import pytest

from router import Worker, WorkerPool, WorkerSpec, WorkerState
from router.states import back_off_s
from tests.router.fleet import Clock, Fleet, urls


def state(worker: Worker) -> WorkerState:
    """Its state now."""
    return worker.state


def fail(fleet: Fleet, worker: Worker) -> None:
    """A failure after its back-off."""
    fleet.clock += max(0.0, worker.retry_at - fleet.clock.now)
    fleet.pool.failed(worker, "reset")


def pass_trial(fleet: Fleet, worker: Worker) -> None:
    """After its back-off, a request that is answered whole."""
    fleet.clock += max(0.0, worker.retry_at - fleet.clock.now)
    fleet.pool.chosen(worker)
    fleet.pool.answered(worker)
    fleet.pool.finished(worker)


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
    assert state(worker) is WorkerState.joining
    pool.answered(worker)
    pool.answered(worker)
    assert changes == [("w1", WorkerState.joining, WorkerState.ready)]


@pytest.mark.parametrize(
    ("failures", "rest_s", "reached"),
    [
        (1, 1, WorkerState.suspect),
        (2, 2, WorkerState.suspect),
        (3, 4, WorkerState.suspect),
        (4, 8, WorkerState.suspect),
        (5, 16, WorkerState.suspect),
        (6, 32, WorkerState.down),
        (7, 60, WorkerState.down),
        (5_000, 60, WorkerState.down),
    ],
)
def test_back_off_doubles_until_down(
    failures: int, rest_s: float, reached: WorkerState
) -> None:
    """Each failure after a back-off starts a longer one, up to 60 s."""
    fleet = Fleet(1)
    worker = fleet.worker("w1")
    for _ in range(min(failures, 40)):
        fleet.clock += worker.retry_at - fleet.clock.now
        fleet.pool.failed(worker, "refused")
    assert state(worker) is reached
    assert worker.retry_at - fleet.clock.now == rest_s
    assert back_off_s(failures) == rest_s


@pytest.mark.parametrize("wanted", [WorkerState.suspect, WorkerState.down])
def test_one_whole_answer_ends_a_trial(wanted: WorkerState) -> None:
    """From suspect and from down alike; its head alone changes nothing."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    while worker.state is not wanted:
        fail(fleet, worker)
    fleet.clock += worker.retry_at - fleet.clock.now
    fleet.pool.chosen(worker)
    fleet.pool.answered(worker)
    assert state(worker) is wanted
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]
    fleet.pool.finished(worker)
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]


def test_failures_are_forgotten_after_as_long_as_it_rested() -> None:
    """One that keeps failing after each return rests longer and longer."""
    fleet = Fleet(1)
    worker = fleet.worker("w1")
    rests = []
    for _ in range(8):
        fail(fleet, worker)
        rests.append(worker.retry_at - fleet.clock.now)
        pass_trial(fleet, worker)
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60]
    fleet.clock += 60
    fleet.pool.finished(worker)
    assert worker.failures == 0
    fleet.pool.failed(worker, "reset")
    assert worker.retry_at - fleet.clock.now == 1


def test_answers_from_before_do_not_end_a_rest() -> None:
    """Streams that began before the failure say nothing of what comes after it."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    fleet.pool.failed(worker, "reset")
    fleet.pool.answered(worker)
    fleet.pool.finished(worker)
    assert state(worker) is WorkerState.suspect
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]


def test_failures_of_one_outage_count_once() -> None:
    """Fifty streams that break together are one failure, logged once."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    for _ in range(50):
        fleet.pool.failed(worker, "reset")
    assert (worker.failures, worker.state) == (1, WorkerState.suspect)


def test_state_changes_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """One line a change, with the reason; none while nothing changes."""
    fleet = Fleet(1)
    worker = fleet.worker("w1")
    with caplog.at_level(logging.INFO, logger="router.states"):
        for _ in range(3):
            fleet.clock += 5
            fleet.pool.failed(worker, "connection refused")
        pass_trial(fleet, worker)
        fleet.pool.answered(worker)
    assert caplog.messages == [
        "worker w1: ready -> suspect: connection refused",
        "worker w1: suspect -> ready: answered",
    ]


def test_after_the_back_off_exactly_one_request_may_try() -> None:
    """The one that is chosen; the others wait for its outcome or a back-off more."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    fleet.pool.failed(worker, "refused")
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]
    fleet.clock += 1
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]
    fleet.pool.chosen(worker)
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]
    fleet.clock += 1
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"], "trial without outcome"
    fleet.pool.chosen(worker)
    fleet.pool.failed(worker, "refused")
    assert worker.retry_at - fleet.clock.now == 2
    fleet.clock += 2
    fleet.pool.chosen(worker)
    fleet.pool.answered(worker)
    fleet.pool.finished(worker)
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]
    assert state(worker) is WorkerState.ready


def test_a_failed_trial_counts_even_within_its_new_back_off() -> None:
    """The failure of the trial itself is news; a second one with it is not."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    fleet.pool.failed(worker, "refused")
    fleet.clock += 1
    fleet.pool.chosen(worker)
    fleet.pool.failed(worker, "refused")
    fleet.pool.failed(worker, "refused")
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
    assert state(worker) is WorkerState.ready
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


def test_a_draining_worker_keeps_its_state() -> None:
    """Answers and failures of what it still has do not bring it back."""
    fleet = Fleet(1)
    worker = fleet.worker("w1")
    worker.state = WorkerState.draining
    fleet.pool.answered(worker)
    fleet.pool.failed(worker, "reset")
    assert (worker.state, worker.failures) == (WorkerState.draining, 0)


def test_a_trial_without_outcome_makes_room_for_another() -> None:
    """It was not sent, say: nothing is known, and the next request may try."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    fail(fleet, worker)
    fleet.clock += 1
    fleet.pool.chosen(worker)
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]
    fleet.pool.undecided(worker)
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]


@pytest.mark.parametrize("heard", [False, True])
def test_a_trial_whose_client_left(*, heard: bool) -> None:
    """It makes room at once only where anything has come since it began."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    fail(fleet, worker)
    rests = []
    for _ in range(8):
        fleet.clock += max(0.0, worker.retry_at - fleet.clock.now)
        fleet.pool.chosen(worker)
        worker.pulse.beats += heard
        fleet.clock += 0.5
        fleet.pool.undecided(worker, left=True)
        rests.append(worker.retry_at - fleet.clock.now + 0.5)
    assert rests == ([0.5] * 8 if heard else [1, 2, 4, 8, 16, 32, 60, 60])
    fleet.pool.failed(worker, "no answer in time")
    assert worker.retry_at - fleet.clock.now == (2 if heard else 60)


def test_drained_and_back() -> None:
    """A drained worker gets nothing while there is another."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    fleet.pool.drain(worker)
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]
    fleet.pool.undrain(worker)
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]


@pytest.mark.parametrize("heard", [False, True])
def test_drained_and_back_before_its_first_answer(heard: bool) -> None:
    """Only one that was heard of meanwhile is ready then."""
    pool = WorkerPool(clock=Clock())
    worker = pool.add(WorkerSpec(url="w1"))
    pool.drain(worker)
    if heard:
        pool.contacted(worker)
    pool.undrain(worker)
    assert state(worker) is (WorkerState.ready if heard else WorkerState.joining)
    pool.contacted(worker)
    assert state(worker) is WorkerState.ready
