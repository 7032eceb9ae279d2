"""Workers under any sequence of events: what always holds of their states."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from router.states import MAX_BACK_OFF_S
from router.worker import WorkerState
from tests.router.fleet import Fleet, prompt

EVENTS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 4000)),
    st.tuples(st.just("answer"), st.sampled_from([200, 400, 429, 500, 503])),
    st.tuples(st.just("token"), st.none()),
    st.tuples(st.just("finish"), st.none()),
    st.tuples(
        st.just("fail"),
        st.sampled_from(["connect", "reset", "timeout", "client", "stale", "status"]),
    ),
    st.tuples(st.just("check"), st.sampled_from([None, "no answer"])),
    st.tuples(st.just("drain"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 5.0, 70.0])),
)


class Course:
    """A fleet of three, and the requests under way."""

    def __init__(self, *, checked: bool) -> None:
        self.fleet = Fleet(3, checked=checked)
        self.open: list[Any] = []

    def play(self, turn: int, kind: str, value: Any) -> None:
        """One event, at a worker or a request that `turn` picks."""
        pool = self.fleet.pool
        worker = pool.workers[turn % 3]
        if kind == "send":
            request = self.fleet.request(prompt(turn, value), stream=turn % 4 > 0)
            self.open.append(self.fleet.router.decide(request))
            self.open[-1].sent()
        elif kind == "wait":
            self.fleet.clock += value
        elif kind == "check":
            pool.checked(worker, value, rise=2, fall=3)
        elif kind == "drain":
            (pool.drain if value else pool.undrain)(worker)
        elif self.open:
            self._go_on(self.open[turn % len(self.open)], kind, value)

    def _go_on(self, decision: Any, kind: str, value: Any) -> None:
        if kind == "answer":
            decision.answered(value)
        elif kind == "token":
            decision.first_token()
        else:
            self.open.remove(decision)
            if kind == "finish":
                decision.finished(None)
            else:
                decision.failed(value)


@settings(max_examples=150, deadline=None)
@given(checked=st.booleans(), events=st.lists(st.tuples(st.integers(0, 99), EVENTS)))
def test_whatever_happens(
    *, checked: bool, events: list[tuple[int, tuple[str, Any]]]
) -> None:
    """Somebody is always tried; no rest is too long; nothing is owed in the end."""
    course = Course(checked=checked)
    fleet = course.fleet
    for turn, (kind, value) in events:
        course.play(turn, kind, value)
        assert fleet.pool.candidates("qwen")
        for worker in fleet.pool.workers:
            assert worker.retry_at - fleet.clock.now <= MAX_BACK_OFF_S
            assert worker.state is not WorkerState.joining
    for decision in course.open:
        decision.failed("client")
    for worker in fleet.pool.workers:
        assert (worker.pulse.owed, worker.inflight_requests) == (0, 0)


@settings(max_examples=60, deadline=None)
@given(events=st.lists(st.tuples(st.integers(0, 99), EVENTS)))
def test_all_come_back(events: list[tuple[int, tuple[str, Any]]]) -> None:
    """After any trouble, checks that pass and whole answers make all of them ready."""
    course = Course(checked=True)
    pool = course.fleet.pool
    for turn, (kind, value) in events:
        course.play(turn, kind, value)
    for decision in course.open:
        decision.failed("client")
    for _ in range(2):
        course.fleet.clock += 70
        for worker in pool.workers:
            pool.rank(worker)
            pool.undrain(worker)
            for _ in range(2):
                pool.checked(worker, None, rise=2, fall=3)
            pool.chosen(worker)
            pool.answered(worker)
            pool.finished(worker)
    assert [worker.state for worker in pool.workers] == [WorkerState.ready] * 3
    assert len(pool.candidates("qwen")) == 3
