"""Health checks and 5xx: what takes a worker out, what does not, and its return."""

import pytest

from router import RouteRequest, Worker, WorkerState
from router.ledger import MOST_GUESSED
from tests.router.fleet import MODEL, Fleet, prompt, urls


def state(worker: Worker) -> WorkerState:
    """Its state now."""
    return worker.state


def fail(fleet: Fleet, worker: Worker) -> None:
    """A failure after its back-off."""
    fleet.clock += max(0.0, worker.retry_at - fleet.clock.now)
    fleet.pool.failed(worker, "reset")


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


def test_checks_that_failed_while_it_was_drained_do_not_hide_the_next() -> None:
    """It takes part anew; those that go on failing take it out."""
    fleet = Fleet(2, checked=True)
    worker = fleet.worker("w1")
    fleet.pool.drain(worker)
    check(fleet, worker, "no answer", 8)
    fleet.pool.undrain(worker)
    check(fleet, worker, "no answer", 2)
    assert state(worker) is WorkerState.ready
    check(fleet, worker, "no answer")
    assert state(worker) is WorkerState.suspect


def test_an_older_request_does_not_shorten_what_a_long_prefill_excuses() -> None:
    """Checks passed while it was silent: the worker was alive until the last."""
    fleet = Fleet(1, checked=True)
    worker = fleet.worker("w1")
    send(fleet, 160)
    for _ in range(4):
        fleet.clock += 5
        check(fleet, worker, None)
    send(fleet, 200_000)
    fleet.clock += 5
    assert worker.excused
    fleet.clock += 2 * worker.rate.seconds(200_000)
    assert worker.excused
    send(fleet, 200_000)
    fleet.clock += 1.5 * worker.rate.seconds(200_000)
    assert not worker.excused


def test_the_size_of_a_body_is_no_excuse_for_minutes() -> None:
    """An image of 8 MB is not two million tokens, though it may look like it."""
    fleet = Fleet(1, checked=True)
    worker = fleet.worker("w1")
    for _ in range(2):
        guess = RouteRequest(model=MODEL, prompt_tokens=2_000_000)
        fleet.router.decide(guess).sent()
    assert worker.inflight_tokens == 4_000_000
    assert worker.prefill_s == worker.rate.seconds(2 * MOST_GUESSED) < 15
    fleet.router.decide(fleet.request(prompt(1, 200_000))).sent()
    known = worker.rate.seconds(2 * MOST_GUESSED + 200_000)
    assert worker.prefill_s == known, "what was counted is taken as it is"


def send(fleet: Fleet, tokens: int) -> None:
    """A request that is not streamed, on its way."""
    fleet.router.decide(fleet.request(prompt(tokens, tokens), stream=False)).sent()
