"""What is noted of requests: history beside events, raw content, contradictions."""

import msgspec
import pytest

from kvindex.standing import FeedState
from router import Rendering, RouteRequest, Usage
from tests.router.fleet import Fleet, prompt


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
    first.heard()
    assert fleet.router.explain(request).workers[0].history_tokens == 400
    first.first_token()
    fleet.clock += 4.9
    assert fleet.router.explain(request).workers[0].history_tokens == 400
    fleet.clock += 0.2
    assert fleet.router.explain(request).workers[0].history_tokens == 0


@pytest.mark.parametrize("events", [True, False])
def test_the_next_turn_is_expected_to_find_the_last_block_too(events: bool) -> None:
    """A prompt of whole blocks is stored whole, though it cannot itself be matched."""
    fleet = Fleet(1, events=events)
    ids = prompt(1, 640)
    first = fleet.router.decide(fleet.request(ids))
    first.sent()
    assert fleet.router.explain(fleet.request(ids)).workers[0].history_tokens == 624
    following = fleet.request(ids + prompt(2, 100))
    assert fleet.router.decide(following).hit_tokens == 640
    first.first_token()
    first.finished(Usage(prompt_tokens=640, cached_tokens=0))
    assert fleet.router.decide(following).hit_tokens == 640


def test_a_repeated_prompt_of_whole_blocks_need_not_be_announced() -> None:
    """All that can be found was found: silence after it proves nothing."""
    fleet = Fleet(1)
    ids = prompt(1, 640)
    fleet.store("w1", ids)
    fleet.clock += 60
    decision = fleet.router.decide(fleet.request(ids))
    decision.first_token()
    decision.finished(Usage(prompt_tokens=640, cached_tokens=624))
    fleet.clock += 11
    feed = fleet.worker("w1").knowledge[0].feed
    feed.tick()
    assert feed.state is FeedState.LIVE


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


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("events", [True, False])
def test_content_of_rendered_requests_is_noted(events: bool, streamed: bool) -> None:
    """A later turn that is not rendered finds the worker of those that were."""
    fleet = Fleet(3, events=events)
    turn = msgspec.structs.replace(
        fleet.request(prompt(1, 320)), content=content(1, 20), stream=streamed
    )
    first = fleet.router.decide(turn)
    if streamed:
        first.first_token()
    first.finished(Usage(prompt_tokens=320, cached_tokens=0))
    for _ in range(3):
        following = fleet.router.decide(unrendered(1, 30))
        assert following.worker is first.worker
        assert following.hit_tokens == 320
        following.failed("client")


def test_content_of_rendered_requests_does_not_route_them() -> None:
    """What is known of its blocks goes before what was seen of its text."""
    fleet = Fleet(1)
    fleet.router.decide(unrendered(1, 20)).sent()
    turn = msgspec.structs.replace(
        fleet.request(prompt(1, 320)), content=content(1, 20)
    )
    assert fleet.router.decide(turn).hit_tokens == 0


@pytest.mark.parametrize("kind", ["connect", "stale", "busy", "status"])
def test_content_of_refused_requests_is_not_noted(kind: str) -> None:
    """Rendered or not: the prompt was never computed."""
    fleet = Fleet(1)
    turn = msgspec.structs.replace(
        fleet.request(prompt(1, 320)), content=content(1, 20)
    )
    refused = fleet.router.decide(turn)
    refused.sent()
    refused.failed(kind)
    fleet.clock += 5  # the end of any back-off
    assert fleet.router.decide(unrendered(1, 30)).hit_tokens == 0


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


@pytest.mark.parametrize("kind", ["connect", "stale", "busy", "status"])
def test_a_request_that_was_refused_is_not_expected_there(kind: str) -> None:
    """No connection, or an error: its blocks are not in that worker's cache."""
    fleet = Fleet(2, events=False)
    request = fleet.request(prompt(1, 400))
    refused = fleet.router.decide(request)
    refused.sent()
    refused.failed(kind)
    fleet.clock += 5  # the end of any back-off
    rows = fleet.router.explain(request).workers
    assert {row.history_tokens for row in rows} == {0}


@pytest.mark.parametrize("kind", ["client", "reset", "timeout"])
def test_a_request_that_may_have_been_computed_is(kind: str) -> None:
    """The answer did not come whole, the prefill may have been done."""
    fleet = Fleet(1, events=False)
    request = fleet.request(prompt(1, 401))
    left = fleet.router.decide(request)
    left.sent()
    left.failed(kind)
    assert fleet.router.explain(request).workers[0].history_tokens == 400


def test_refused_raw_content_is_not_expected_either() -> None:
    """The table of unrendered requests is taken back in the same way."""
    fleet = Fleet(2, events=False)
    content = Rendering(
        profile="content",
        block_size=16,
        hashes=list(range(10)),
        token_count=161,
        estimated=True,
    )
    request = RouteRequest(model="qwen", content=content, not_rendered="no_model")
    refused = fleet.router.decide(request)
    refused.sent()
    refused.failed("busy")
    rows = fleet.router.explain(request).workers
    assert {row.history_tokens for row in rows} == {0}
