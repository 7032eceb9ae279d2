"""The life of a decision: bookings, outcomes, the end that counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvindex.blocks import Namespace, chain, pack_ids
from router import Rendering, RouteRequest, Usage, WorkerState
from router.outcome import Outcome
from tests.router.fleet import MODEL, Fleet, prompt

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


def untold(ids: list[int]) -> RouteRequest:
    """A request for blocks that no event tells of."""
    root = Namespace(model=MODEL, untold="key").root()
    rendering = Rendering(
        profile="vllm",
        block_size=16,
        hashes=chain(pack_ids(ids), 16, root),
        token_count=len(ids),
        by_history=True,
    )
    return RouteRequest(model=MODEL, renderings={("vllm", 16): rendering})


def test_what_events_do_not_tell_is_known_by_history() -> None:
    """However long ago, and until it is contradicted; the feed is not asked."""
    fleet = Fleet(1)
    feed = fleet.worker("w1").knowledge[0].feed

    def ask(ids: list[int], cached_tokens: int) -> int:
        decision = fleet.router.decide(untold(ids))
        decision.first_token()
        decision.finished(Usage(prompt_tokens=100, cached_tokens=cached_tokens))
        fleet.clock += 60
        feed.tick()
        return decision.hit_tokens

    prompts = [prompt(seed, 100) for seed in (1, 2, 3)]
    for ids in prompts:
        fleet.store("w1", ids)
        assert ask(ids, 0) == 0
    assert [ask(ids, 96) for ids in prompts] == [96, 96, 96]
    assert [ask(prompts[0], 0) for _ in range(3)] == [96, 96, 0]
    assert (feed.state, feed.complete) == ("live", True)
    for ids in prompts:
        assert fleet.router.decide(fleet.request(ids)).hit_tokens == 96


def test_what_never_came_is_not_kept_by_history() -> None:
    """Also of what no event tells."""
    fleet = Fleet(1)
    ids = prompt(1, 100)
    decision = fleet.router.decide(untold(ids))
    decision.sent()
    decision.failed("connect")
    fleet.pool.answered(fleet.worker("w1"))
    assert fleet.router.decide(untold(ids)).hit_tokens == 0
