"""The life of a decision: bookings, notes, outcomes, and what counts against whom."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvindex.standing import FeedState
from router import Rendering, RouteRequest, Usage, WorkerState
from router.decision import Outcome
from tests.router.fleet import Fleet, prompt

CALLS = ["sent", "first_token", "finished", "none", "connect", "reset", "client"]


@given(
    calls=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(CALLS), st.floats(0, 5)),
        max_size=40,
    ),
    last=st.sampled_from(["finished", "none", "connect", "client"]),
    streams=st.lists(st.booleans(), min_size=5, max_size=5),
    events=st.booleans(),
)
def test_whatever_happens_all_is_released(
    calls: list[tuple[int, str, float]], last: str, streams: list[bool], events: bool
) -> None:
    """Calls in any order, repeated or missing: the books are empty at the end."""
    fleet = Fleet(2, events=events)
    decisions = [
        fleet.router.decide(fleet.request(prompt(seed, 100), stream=stream))
        for seed, stream in enumerate(streams)
    ]

    def call(which: int, name: str) -> None:
        decision = decisions[which]
        if name in ("sent", "first_token"):
            getattr(decision, name)()
        elif name == "finished":
            decision.finished(Usage(prompt_tokens=100, cached_tokens=32))
        elif name == "none":
            decision.finished(None)
        else:
            decision.failed(name)

    for which, name, seconds in calls:
        call(which, name)
        fleet.clock += seconds
        assert all(worker.inflight_tokens >= 0 for worker in fleet.pool.workers)
    for which in range(5):
        call(which, last)
    for worker in fleet.pool.workers:
        assert (worker.inflight_requests, worker.inflight_tokens) == (0, 0)
        assert worker.ledger(0).decode_tokens == 0


def test_uncached_tokens_are_booked_until_the_first_token() -> None:
    """Streamed: what the worker has to compute counts from the decision on."""
    fleet = Fleet(1)
    ids = prompt(1, 1_000)
    fleet.store("w1", ids[:800])
    worker = fleet.worker("w1")
    decision = fleet.router.decide(fleet.request(ids, max_tokens=40))
    assert (worker.inflight_requests, worker.inflight_tokens) == (1, 200)
    decision.sent()
    fleet.clock += 100
    assert worker.inflight_tokens == 200
    decision.first_token()
    assert (worker.inflight_requests, worker.inflight_tokens) == (1, 0)
    assert worker.ledger(0).decode_tokens == 40
    decision.finished(None)
    assert worker.inflight_requests == 0


def test_unstreamed_requests_queue_up_in_the_estimate() -> None:
    """Two prefills of a second each: the second is over after two."""
    fleet = Fleet(1)
    worker = fleet.worker("w1")
    for seed in (1, 2):
        fleet.router.decide(fleet.request(prompt(seed, 20_000), stream=False))
    assert worker.inflight_tokens == 40_000
    fleet.clock += 1.0
    assert worker.inflight_tokens == 20_000
    fleet.clock += 1.0
    assert (worker.inflight_tokens, worker.inflight_requests) == (0, 2)


def test_the_outcome_compares_predicted_with_delivered() -> None:
    """Token counts of the worker win; the prediction is what the decision took."""
    fleet = Fleet(2)
    ids = prompt(1, 1_000)
    fleet.store("w1", ids[:800])
    decision = fleet.router.decide(fleet.request(ids))
    assert decision.outcome is None
    decision.finished(
        Usage(prompt_tokens=1_001, completion_tokens=9, cached_tokens=784)
    )
    assert decision.outcome == Outcome(
        prompt_tokens=1_001,
        predicted_hit_tokens=800,
        best_hit_tokens=800,
        delivered_hit_tokens=784,
        estimated=False,
    )


@pytest.mark.parametrize(
    ("usage", "delivered"),
    [
        (None, None),
        (Usage(), None),
        (Usage(cached_tokens=0), 0),
        (Usage(cached_tokens=-7), 0),
        (Usage(cached_tokens=10**12), 100),
    ],
)
def test_odd_usage_cannot_spoil_the_outcome(
    usage: Usage | None, delivered: int | None
) -> None:
    """Unreported stays unreported; more than the prompt cannot have been cached."""
    fleet = Fleet(1)
    decision = fleet.router.decide(fleet.request(prompt(1, 100)))
    decision.finished(usage)
    assert decision.outcome is not None
    assert decision.outcome.prompt_tokens == 100
    assert decision.outcome.delivered_hit_tokens == delivered


def test_only_the_first_end_counts() -> None:
    """A late failure is no second outcome and no fault of the worker."""
    fleet = Fleet(1)
    decision = fleet.router.decide(fleet.request(prompt(1, 100)))
    decision.finished(Usage(prompt_tokens=100, completion_tokens=5))
    outcome = decision.outcome
    decision.failed("reset")
    decision.finished(None)
    assert decision.outcome is outcome
    assert fleet.worker("w1").state is WorkerState.ready


def test_answers_teach_how_long_answers_are() -> None:
    """Expected decode work follows finished requests, empty answers apart."""
    fleet = Fleet(1)
    for _ in range(300):
        decision = fleet.router.decide(fleet.request(prompt(1, 20)))
        decision.finished(Usage(completion_tokens=1_000))
        fleet.router.decide(fleet.request(prompt(1, 20))).finished(Usage())
    fleet.router.decide(fleet.request(prompt(1, 20))).first_token()
    assert fleet.worker("w1").ledger(0).decode_tokens >= 990


def test_without_events_a_sent_prompt_is_expected_where_it_went() -> None:
    """From being sent on, for as long as the worker's cache would keep it."""
    fleet = Fleet(3, events=False)
    ids = prompt(1, 400)
    first = fleet.router.decide(fleet.request(ids))
    assert fleet.router.explain(fleet.request(ids)).workers[0].history_tokens == 0
    first.sent()
    first.first_token()
    first.finished(Usage(prompt_tokens=400, cached_tokens=0))
    fleet.clock += 3_600
    second = fleet.router.decide(fleet.request(ids))
    assert second.worker is first.worker
    assert second.hit_tokens == 384
    rows = {row.url: row for row in fleet.router.explain(fleet.request(ids)).workers}
    assert rows[first.worker.url].history_tokens == 384
    assert rows[first.worker.url].held_tokens == 0


def test_delivered_tokens_contradict_what_was_believed() -> None:
    """A worker that keeps nothing is believed twice, then no more."""
    fleet = Fleet(1, events=False)
    request = fleet.request(prompt(1, 400))
    predicted = []
    for _ in range(5):
        decision = fleet.router.decide(request)
        predicted.append(decision.hit_tokens)
        decision.finished(Usage(prompt_tokens=400, cached_tokens=0))
    assert predicted == [0, 384, 384, 0, 0]


def test_with_live_events_history_counts_until_events_have_spoken() -> None:
    """Siblings follow at once; five seconds after the first token events decide."""
    fleet = Fleet(2)
    request = fleet.request(prompt(1, 401))
    first = fleet.router.decide(request)
    first.sent()
    fleet.clock += 60
    assert fleet.router.explain(request).workers[0].history_tokens == 400
    first.first_token()
    fleet.clock += 4.9
    assert fleet.router.explain(request).workers[0].history_tokens == 400
    fleet.clock += 0.2
    assert fleet.router.explain(request).workers[0].history_tokens == 0


@pytest.mark.parametrize("kind", ["connect", "client", "busy"])
def test_with_live_events_a_failed_request_is_forgotten_soon(kind: str) -> None:
    """Whether the worker computed anything of it, events tell."""
    fleet = Fleet(2)
    request = fleet.request(prompt(1, 401))
    first = fleet.router.decide(request)
    first.sent()
    first.failed(kind)
    fleet.clock += 5.1
    fleet.pool.answered(first.worker)
    assert fleet.router.explain(request).workers[0].history_tokens == 0
    fleet.clock += 60
    feed = first.worker.knowledge[0].feed
    feed.tick()
    assert feed.state is FeedState.LIVE, "no block had to be stored"


def test_finished_requests_without_events_make_a_feed_silent() -> None:
    """New blocks must have been stored, and nothing was said of them."""
    fleet = Fleet(1)
    request = fleet.request(prompt(1, 401))
    fleet.clock += 1
    decision = fleet.router.decide(request)
    decision.first_token()
    decision.finished(Usage(prompt_tokens=401, cached_tokens=0))
    fleet.clock += 11
    feed = fleet.worker("w1").knowledge[0].feed
    feed.tick()
    assert feed.state is FeedState.SILENT
    assert fleet.router.decide(request).hit_tokens == 400, "routed by history"


def test_a_rank_that_was_not_asked_for_by_name_is_never_called_silent() -> None:
    """Another rank may have answered, so its silence proves nothing."""
    fleet = Fleet()
    worker = fleet.add("w1", ranks=(0, 1))
    worker.can_pin_ranks = False
    fleet.clock += 1
    for seed in range(4):
        decision = fleet.router.decide(fleet.request(prompt(seed, 401)))
        decision.finished(Usage(prompt_tokens=401, cached_tokens=0))
    fleet.clock += 11
    for knowledge in worker.knowledge.values():
        knowledge.feed.tick()
        assert knowledge.feed.state is FeedState.LIVE


def test_a_request_that_never_left_leaves_no_trace() -> None:
    """Failed before it was sent: nothing is noted, nothing booked."""
    fleet = Fleet(2, events=False)
    ids = prompt(1, 400)
    fleet.router.decide(fleet.request(ids)).failed("connect")
    rows = fleet.router.explain(fleet.request(ids)).workers
    assert [row.history_tokens for row in rows] == [0]
    assert all(worker.inflight_requests == 0 for worker in fleet.pool.workers)


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
    fleet.pool.connect_failed(fleet.worker("w1"), "refused")
    fleet.clock += 1.0
    decisions = [fleet.router.decide(fleet.request(ids)) for _ in range(20)]
    assert [d.worker.url for d in decisions].count("w1") == 1
    assert decisions[0].worker.url == "w1"
    decisions[0].answered(200)
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
    fleet.pool.connect_failed(missing, "refused")
    for _ in range(5):
        decision = fleet.router.decide(fleet.request(prompt(1, 50)))
        assert decision.worker.url == "w1"
    fleet.pool.answered(missing)
    assert fleet.router.decide(fleet.request(prompt(2, 50))).worker is missing


def content(seed: int, pieces: int) -> Rendering:
    """Pseudo blocks of raw content; equal seeds share a prefix."""
    return Rendering(
        profile="content",
        block_size=16,
        hashes=[seed * 10_000 + piece for piece in range(pieces)],
        token_count=pieces * 16 + 5,
        estimated=True,
    )


def unrendered(seed: int, pieces: int) -> RouteRequest:
    """A request that could not be rendered."""
    return RouteRequest(
        model="qwen", content=content(seed, pieces), not_rendered="media", stream=True
    )


def test_unrendered_requests_follow_their_content() -> None:
    """The same opening goes to the same worker; the real index knows nothing of it."""
    fleet = Fleet(3)
    first = fleet.router.decide(unrendered(1, 20))
    assert (first.hit_tokens, first.prompt_tokens) == (0, 325)
    first.sent()
    first.first_token()
    first.finished(Usage(prompt_tokens=300, cached_tokens=0))
    for seed in (2, 3, 4):
        fleet.router.decide(unrendered(seed, 20)).sent()
    second = fleet.router.decide(unrendered(1, 30))
    assert second.worker is first.worker
    assert (second.hit_tokens, second.prompt_tokens) == (320, 485)
    assert first.outcome is not None
    assert first.outcome.estimated
    assert all(len(worker.knowledge[0].history) == 0 for worker in fleet.pool.workers)


def test_unrendered_requests_are_balanced_by_the_same_cost() -> None:
    """Estimated tokens in flight count like any others."""
    fleet = Fleet(2)
    first = fleet.router.decide(unrendered(1, 20))
    first.sent()
    fleet.worker(first.worker.url).ledger(0).book(100_000, 0, prefill_s=None)
    assert fleet.router.decide(unrendered(1, 20)).worker is not first.worker


def test_what_has_no_content_goes_by_size_alone() -> None:
    """An opaque body is booked with its estimated tokens."""
    fleet = Fleet(2)
    decision = fleet.router.decide(RouteRequest(prompt_tokens=1_234))
    decision.sent()
    assert decision.worker.inflight_tokens == 1_234
    decision.finished(Usage(prompt_tokens=9, cached_tokens=9))
    assert decision.outcome is not None
    assert decision.outcome.estimated
