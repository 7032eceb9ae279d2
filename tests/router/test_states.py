"""How a worker's state changes: failures, back-off, probation, health checks."""

import logging

import pytest

from router import Decision, Worker, WorkerPool, WorkerSpec, WorkerState
from router.states import back_off_s
from tests.router.fleet import Clock, Fleet, prompt, urls


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
    """Its client left: nothing is known, and the next request may try."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    fail(fleet, worker)
    fleet.clock += 1
    fleet.pool.chosen(worker)
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]
    fleet.pool.undecided(worker)
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]


def test_a_worker_that_answers_500_at_once_does_not_keep_its_share() -> None:
    """It would have the least load of all; four in a row, and it rests."""
    fleet = Fleet(2)
    sent = [0, 0]
    for number in range(40):
        decision = fleet.router.decide(fleet.request(prompt(number, 64)))
        decision.sent()
        bad = decision.worker.url == "w1"
        sent[not bad] += 1
        if bad:
            decision.answered(500)
            decision.failed("status")
        else:
            decision.answered(200)
            decision.finished(None)
    assert sent[0] == 4
    assert fleet.worker("w1").reason == "answers 500"


def test_a_trial_that_is_answered_500_has_failed() -> None:
    """One is enough then, and the rest is longer."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    for _ in range(4):
        fleet.pool.answered(worker, 500)
    assert worker.failures == 1
    fleet.clock += 1
    fleet.pool.chosen(worker)
    fleet.pool.answered(worker, 500)
    assert (worker.failures, worker.retry_at - fleet.clock.now) == (2, 2)


@pytest.mark.parametrize("status", [400, 404, 413, 422, 429, 501])
def test_refusals_are_no_failures(status: int) -> None:
    """However many: what a client does wrong says nothing of a worker."""
    fleet = Fleet(2)
    for _ in range(30):
        fleet.pool.answered(fleet.worker("w1"), status)
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]


def test_500_from_all_of_them_leaves_all_of_them() -> None:
    """Where every worker fails on somebody's requests, all are still tried."""
    fleet = Fleet(2)
    for worker in fleet.pool.workers:
        for _ in range(8):
            fleet.pool.answered(worker, 500)
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]


def check(fleet: Fleet, worker: Worker, reason: str | None, times: int = 1) -> None:
    """Health checks with that outcome; two in a row count as passed, three as not."""
    for _ in range(times):
        fleet.pool.checked(worker, reason, rise=2, fall=3)


def test_health_checks_take_a_worker_out_and_bring_it_back() -> None:
    """Three that fail in a row; two that pass after the back-off."""
    fleet = Fleet(2, checked=True)
    worker = fleet.worker("w1")
    check(fleet, worker, "no answer", 2)
    check(fleet, worker, None)
    check(fleet, worker, "no answer", 2)
    assert state(worker) is WorkerState.ready
    check(fleet, worker, "no answer")
    assert worker.reason == "health checks fail: no answer"
    check(fleet, worker, None, 3)
    assert state(worker) is WorkerState.suspect, "its back-off is not over"
    fleet.clock += 1
    check(fleet, worker, None)
    assert (worker.state, worker.returns) == (WorkerState.ready, 1)


def test_with_health_checks_no_request_is_risked_before_they_pass() -> None:
    """After its back-off, too; then one at a time until one is answered whole."""
    fleet = Fleet(2, checked=True)
    worker = fleet.worker("w1")
    fail(fleet, worker)
    fleet.clock += 100
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]
    check(fleet, worker, None, 2)
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]
    fleet.pool.chosen(worker)
    fleet.pool.answered(worker)
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]
    fleet.pool.finished(worker)
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]


def send(fleet: Fleet, url: str, seed: int = 0, tokens: int = 160) -> Decision:
    """A streamed request on its way to that worker."""
    others = [worker.url for worker in fleet.pool.workers if worker.url != url]
    request = fleet.request(prompt(seed, tokens), exclude=others)
    decision = fleet.router.decide(request)
    decision.sent()
    return decision


def test_a_worker_that_owes_first_tokens_and_is_silent_is_avoided() -> None:
    """After a second, and suspect after ten; its own first token brings it back."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    decision = send(fleet, "w1")
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]
    fleet.clock += 1.5
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]
    assert state(worker) is WorkerState.ready
    fleet.clock += 10
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]
    assert state(worker) is WorkerState.suspect
    decision.first_token()
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]
    assert state(worker) is WorkerState.ready


def test_the_more_it_owes_the_sooner_it_is_avoided() -> None:
    """Few requests are lost where it hangs, however many come."""
    fleet = Fleet(2)
    decisions = [send(fleet, "w1", seed) for seed in range(5)]
    fleet.clock += 0.4
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]
    decisions[0].first_token()
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]


def test_a_long_prefill_is_no_dead_worker() -> None:
    """What was sent to it is expected to take its time."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    send(fleet, "w1", tokens=100_000)
    seconds = worker.rate.seconds(100_000)
    for _ in range(10):
        fleet.clock += 2 * seconds / 10
        assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]


def test_a_worker_whose_other_streams_go_on_is_alive() -> None:
    """However long its queue."""
    fleet = Fleet(2)
    streaming, _ = send(fleet, "w1"), send(fleet, "w1", seed=1)
    streaming.first_token()
    for _ in range(60):
        fleet.clock += 1
        streaming.heard()
        assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]


def test_a_stall_that_ends_without_a_token_is_a_failure() -> None:
    """Whoever waited has given up: it does not get the next ones at once."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    decision = send(fleet, "w1")
    for _ in range(12):
        fleet.clock += 1
        fleet.pool.candidates("qwen")
    decision.failed("client")
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]
    assert worker.reason == "first tokens never came"


@pytest.mark.parametrize(("others", "failed"), [(False, True), (True, False)])
def test_a_timeout_speaks_against_a_worker_that_is_silent(
    *, others: bool, failed: bool
) -> None:
    """Not where its other answers go on."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    decision, other = send(fleet, "w1"), send(fleet, "w1", seed=1)
    fleet.clock += 1000
    if others:
        other.first_token()
    decision.failed("timeout")
    assert (state(worker) is WorkerState.suspect) is failed


def test_drained_and_back() -> None:
    """A drained worker gets nothing while there is another."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    fleet.pool.drain(worker)
    assert urls(fleet.pool.candidates("qwen")) == ["w2"]
    fleet.pool.undrain(worker)
    assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]
