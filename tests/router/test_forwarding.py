"""Whether ids go along: the fleet, the chosen worker, the request."""

import random
from collections.abc import Mapping
from typing import Any, get_args

import pytest

from router.decision import Decision
from router.forwarding import WITHHELD, Blocker, Forwarding, Proof, When
from router.policies import POLICIES
from router.proof import ONLY_IDS
from router.request import Forwardable, RouteRequest
from router.router import Router
from router.states import DOWN_AFTER
from router.worker import TOKENS, Worker, WorkerState
from tests.router.fleet import MODEL, Clock, Fleet

DIGEST = Proof(by="digest")
DIFFERS = Blocker(reason="template_differs", detail="templates.server")
PLAIN = {"vllm": Forwardable()}


def fleet_of(*proofs: Proof | Blocker) -> tuple[Fleet, list[Worker]]:
    """Ready workers with these proofs."""
    fleet = Fleet(len(proofs), events=False)
    for worker, proof in zip(fleet.pool.workers, proofs, strict=True):
        worker.proof = proof
    return fleet, fleet.pool.workers


def request(
    forwardable: Mapping[str, Forwardable] = PLAIN, **fields: Any
) -> RouteRequest:
    """A request whose ids are at hand."""
    return RouteRequest(model=MODEL, forwardable=forwardable, **fields)


def against(
    fleet: Fleet, worker: Worker, *, when: When = "all", **features: Any
) -> str | None:
    """What speaks against sending ids to a worker with a request of these features."""
    rule = Forwarding(fleet.pool, when)
    return rule.against(request({"vllm": Forwardable(**features)}), worker)


def test_a_proven_fleet() -> None:
    """Nothing speaks against it, by digest or probes; `never` says no all the same."""
    fleet, workers = fleet_of(DIGEST, Proof(by="probes", shapes=frozenset({"tools"})))
    for worker in workers:
        assert against(fleet, worker) is None
        assert against(fleet, worker, when="chosen") is None
        assert against(fleet, worker, when="never") == "switched_off"


def test_one_worker_blocks_all_or_itself() -> None:
    """By default all workers for the model must be proven; `chosen` asks the chosen."""
    fleet, (proven, other) = fleet_of(DIGEST, DIFFERS)
    assert against(fleet, proven) == "worker_blocked"
    assert against(fleet, proven, when="chosen") is None
    assert against(fleet, other, when="chosen") == "worker_blocked"


def test_a_worker_that_takes_ids_only() -> None:
    """It is sent the ids of all that is rendered, whatever others say to that."""
    fleet, (_, other) = fleet_of(DIFFERS, ONLY_IDS)
    other.api = TOKENS
    rule = Forwarding(fleet.pool, "never")
    assert rule.against(request({}, no_ids="endpoint"), other) is None
    media = request({}, no_ids="not_rendered", not_rendered="media")
    assert rule.against(media, other) == "not_rendered"


@pytest.mark.parametrize(
    ("state", "counts"),
    [
        (WorkerState.ready, True),
        (WorkerState.suspect, True),
        (WorkerState.joining, False),
        (WorkerState.down, False),
        (WorkerState.draining, False),
    ],
)
def test_only_ready_and_suspect_workers_count(state: WorkerState, counts: bool) -> None:
    """A worker without requests blocks none; chosen all the same, it gets no ids."""
    fleet, (proven, other) = fleet_of(DIGEST, DIFFERS)
    other.state = state
    expected = "worker_blocked" if counts else None
    assert against(fleet, proven) == expected
    assert against(fleet, other) == "worker_blocked"
    assert bool(Forwarding(fleet.pool).blockers()) is counts


def test_workers_of_other_models_do_not_count() -> None:
    """The candidates for the request's model decide."""
    fleet, (proven,) = fleet_of(DIGEST)
    fleet.add("other", model="llama")
    assert against(fleet, proven) is None
    assert Forwarding(fleet.pool).offer("llama").withheld == "worker_blocked"
    # A model that nobody lists may go to any of them.
    assert Forwarding(fleet.pool).offer("nobody").withheld == "worker_blocked"


def test_shapes_are_covered_by_the_chosen_ones_proof() -> None:
    """All features must have been compared; a digest covers every shape."""
    probed = Proof(by="probes", shapes=frozenset({"tools", "system"}))
    fleet, (by_probes, by_digest) = fleet_of(probed, DIGEST)
    for features, expected in (
        ({"tools"}, None),
        ({"tools", "system"}, None),
        ({"tools", "documents"}, "shape_not_proven"),
    ):
        assert against(fleet, by_probes, features=frozenset(features)) == expected
        assert against(fleet, by_digest, features=frozenset(features)) is None


def test_a_mode_in_the_prompt_is_not_hidden_from_its_parser() -> None:
    """Not from any worker's that counts; prompts without one go."""
    reads = Proof(by="digest", reads_mode=True)
    fleet, (reader, other) = fleet_of(reads, DIGEST)
    for worker in (reader, other):
        assert against(fleet, worker, shows_mode=True) == "mode_in_prompt"
        assert against(fleet, worker) is None
    assert against(fleet, reader, when="chosen", shows_mode=True) == "mode_in_prompt"
    assert against(fleet, other, when="chosen", shows_mode=True) is None


@pytest.mark.parametrize("when", ["all", "chosen"])
def test_a_requests_own_reasons(when: When) -> None:
    """They are told by their words, whatever is proven."""
    fleet, (worker,) = fleet_of(DIGEST)
    assert against(fleet, worker, when=when, never="named_tool_choice") == (
        "named_tool_choice"
    )
    rule = Forwarding(fleet.pool, when)
    assert rule.against(request({}, no_ids="endpoint"), worker) == "endpoint"


def test_ids_of_another_profile_are_not_sent() -> None:
    """A worker whose profile was not rendered gets none."""
    fleet, (worker, other) = fleet_of(DIGEST, DIFFERS)
    worker.profile = other.profile = "sglang"
    assert against(fleet, worker) == "not_rendered"
    assert against(fleet, other) == "worker_blocked"


def test_what_is_offered() -> None:
    """The profiles that are worth the work, as things are; else why none is."""
    fleet, (first, second) = fleet_of(DIGEST, DIFFERS)
    first.profile = "trtllm"
    assert Forwarding(fleet.pool, "never").offer(MODEL) == (frozenset(), "switched_off")
    assert Forwarding(fleet.pool).offer(MODEL) == (frozenset(), "worker_blocked")
    assert Forwarding(fleet.pool, "chosen").offer(MODEL).profiles == {"trtllm"}
    second.proof = DIGEST
    assert Forwarding(fleet.pool).offer(MODEL).profiles == {"trtllm", "vllm"}
    for worker in (first, second):
        for _ in range(DOWN_AFTER):
            worker.retry_at = 0.0
            fleet.pool.failed(worker, "gone")
    assert Forwarding(fleet.pool).offer(MODEL) == (frozenset(), "no_workers")


def test_decisions_and_explanations_say_it() -> None:
    """The verdict is the chosen worker's, both where it is booked and explained."""
    fleet, (proven, other) = fleet_of(DIGEST, DIFFERS)
    router = Router(
        fleet.pool,
        POLICIES["round_robin"](random.Random(1), Clock()),
        forwarding=Forwarding(fleet.pool, "chosen"),
    )
    verdicts: dict[str, str | None] = {}
    for _ in range(2):
        explained = router.explain(request())
        decision: Decision = router.decide(request())
        assert explained.chosen.url == decision.worker.url
        assert explained.ids_reason == decision.no_ids
        assert explained.would_forward_ids == (decision.no_ids is None)
        verdicts[decision.worker.url] = decision.no_ids
        decision.failed("client")
    assert verdicts == {proven.url: None, other.url: "worker_blocked"}


def test_the_words() -> None:
    """Of three modes and six reasons."""
    assert get_args(When) == ("all", "chosen", "never")
    assert len(WITHHELD) == len(set(WITHHELD)) == 6
