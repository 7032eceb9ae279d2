"""Workers that owe first tokens and send nothing, and those that only take long."""

import pytest

from router import Decision, Worker, WorkerState
from tests.router.choices import candidate, choose
from tests.router.fleet import Fleet, prompt, urls


def state(worker: Worker) -> WorkerState:
    """Its state now."""
    return worker.state


def send(
    fleet: Fleet, url: str, seed: int = 0, tokens: int = 160, *, stream: bool = True
) -> Decision:
    """A request on its way to that worker."""
    others = [worker.url for worker in fleet.pool.workers if worker.url != url]
    request = fleet.request(prompt(seed, tokens), exclude=others, stream=stream)
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


@pytest.mark.parametrize(("a_second", "most"), [(12, 4), (20, 5), (50, 8)])
def test_few_requests_are_lost_where_it_hangs(a_second: int, most: int) -> None:
    """However fast they come, it gets a handful before the others are preferred."""
    fleet = Fleet(2)
    given = 0
    while "w1" in urls(fleet.pool.candidates("qwen")):
        send(fleet, "w1", seed=given)
        given += 1
        fleet.clock += 1 / a_second
    assert given <= most


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


def test_what_is_sent_to_a_worker_that_hangs_does_not_hide_its_stall() -> None:
    """However much is in flight there in the end."""
    fleet = Fleet(1)
    worker = fleet.worker("w1")
    for number in range(120):
        fleet.pool.rank(worker)
        send(fleet, "w1", number, 4000)
        fleet.clock += 0.1
    assert worker.prefill_s > 20
    fleet.pool.rank(worker)
    fleet.clock += 1
    fleet.pool.rank(worker)
    assert state(worker) is WorkerState.suspect


@pytest.mark.parametrize("patience_s", [0.3, 1.0, 5.0])
def test_clients_that_leave_take_no_evidence_along(patience_s: float) -> None:
    """One that hangs is found out, and tried more and more rarely."""
    fleet = Fleet(2)
    waiting: list[tuple[float, Decision]] = []
    lost = 0
    for number in range(3000):
        fleet.clock += 0.05
        while waiting and waiting[0][0] <= fleet.clock.now:
            waiting.pop(0)[1].failed("client")
        decision = fleet.router.decide(fleet.request(prompt(number, 160)))
        decision.sent()
        if decision.worker.url == "w1":
            lost += 1
            waiting.append((fleet.clock.now + patience_s, decision))
        else:
            decision.first_token()
            decision.finished(None)
    assert fleet.worker("w1").failures > 2
    assert lost <= 20


def test_a_client_that_leaves_at_once_is_no_evidence() -> None:
    """Nor one that leaves before its first token is late."""
    fleet = Fleet(2)
    for number in range(100):
        decision = send(fleet, "w1", number, 20_000)
        fleet.clock += 0.9
        decision.failed("client")
        assert urls(fleet.pool.candidates("qwen")) == ["w1", "w2"]
    assert fleet.worker("w1").failures == 0


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("others", "failed"), [(False, True), (True, False)])
def test_a_timeout_speaks_against_a_worker_that_is_silent(
    *, others: bool, failed: bool, stream: bool
) -> None:
    """Not where its other answers go on, or have since it was sent."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    decision = send(fleet, "w1", stream=stream)
    other = send(fleet, "w1", seed=1, stream=stream)
    fleet.clock += 1000
    if others and stream:
        other.first_token()
    elif others:
        other.finished(None)
    decision.failed("timeout")
    assert (state(worker) is WorkerState.suspect) is failed


def test_answers_before_a_request_was_sent_are_no_sign_of_life() -> None:
    """Nor does anything else that came of it; one that hangs was well before."""
    fleet = Fleet(2)
    worker = fleet.worker("w1")
    send(fleet, "w1", stream=False).finished(None)
    decision = send(fleet, "w1", seed=1, stream=False)
    decision.answered(200)
    fleet.clock += 1000
    decision.failed("timeout")
    assert (state(worker), worker.reason) == ("suspect", "no answer in time")


@pytest.mark.parametrize(("heard", "least", "most"), [(False, 5, 16), (True, 150, 300)])
def test_a_worker_that_hangs_is_tried_more_and_more_rarely(
    *, heard: bool, least: int, most: int
) -> None:
    """By requests whose outcome is known only when they time out."""
    fleet = Fleet(2, policy="round_robin")
    send(fleet, "w1", stream=False).failed("timeout")
    tried = 0
    for number in range(600):
        fleet.clock += 1
        decision = fleet.router.decide(fleet.request(prompt(number, 16), stream=False))
        decision.sent()
        if decision.worker.url == "w1":
            tried += 1
            if heard:
                decision.heard()
        else:
            decision.finished(None)
    assert least <= tried <= most


@pytest.mark.parametrize(
    ("rate", "late_s", "chosen"),
    [(20_000, 0.02, 0), (20_000, 0.04, 1), (2_000, 0.04, 0), (2_000, 0.4, 1)],
)
def test_a_late_worker_keeps_what_is_dear_to_move(
    rate: float, late_s: float, chosen: int
) -> None:
    """Its lateness is weighed three times: a hiccup does not scatter long prefills.

    900 tokens held are worth their prefill twice, here 0.09 s and 0.9 s.
    """
    late = candidate("late", uncached=100, rate=rate, late_s=late_s)
    assert choose("kv_cache_aware", late, candidate(rate=rate)) == chosen


def test_it_is_late_from_three_times_what_a_first_token_takes() -> None:
    """Its prefill and the fixed cost of a first token; nothing once it speaks."""
    fleet = Fleet(1)
    worker = fleet.worker("w1")
    due_s = 3 * (worker.rate.seconds(160) + worker.rate.cost_s)
    decision = send(fleet, "w1", tokens=160)
    fleet.clock += due_s
    assert worker.late_s == 0
    fleet.clock += 0.2
    assert worker.late_s == pytest.approx(0.2)
    decision.first_token()
    assert worker.late_s == 0
