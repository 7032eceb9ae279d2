"""What the gateway says of itself, in every state of its workers."""

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.app import Gateway
from gateway.errors import NoWorker
from gateway.settings.config import Config
from gateway.workers.contact import WorkerFacts
from gateway.workers.engines.facts import EventSource
from router.models import ListedModel
from router.request import RouteRequest
from router.worker import Worker, WorkerState

URLS = ("http://w1:8000", "http://w2:8000")


def fact(*ids: str) -> WorkerFacts:
    """What a worker that lists these models told."""
    return WorkerFacts(
        models=tuple(ListedModel(id=name) for name in ids),
        listing=tuple({"id": name, "object": "model"} for name in ids),
        engine="vllm",
    )


@pytest.fixture
def gateway() -> Gateway:
    """A gateway that was not started, with two workers that answered once."""
    gateway = Gateway(Config(workers=(URLS,), render="never"))
    for worker, names in zip(
        gateway.pool.workers, (("a", "b"), ("b", "c")), strict=True
    ):
        gateway.monitor._write_down(worker, fact(*names))
    return gateway


def fail(gateway: Gateway, worker: Worker, times: int) -> None:
    """Failures in a row, each after the back-off of the one before."""
    for _ in range(times):
        worker.retry_at = 0.0
        worker.on_trial = True
        gateway.pool.failed(worker, "refused")


def state(worker: Worker) -> WorkerState:
    """Its state now."""
    return worker.state


def ids(listing: dict[str, Any]) -> list[str]:
    """The ids of a list of models."""
    return [entry["id"] for entry in listing["data"]]


def test_models_of_workers_that_are_down_are_left_out(gateway: Gateway) -> None:
    """A suspect worker's still count, a down one's do not; those of all if all are."""
    first, second = gateway.pool.workers
    assert ids(gateway.admin.models()) == ["a", "b", "c"]
    fail(gateway, first, 1)
    assert state(first) is WorkerState.suspect
    assert ids(gateway.admin.models()) == ["a", "b", "c"]
    fail(gateway, first, 6)
    assert state(first) is WorkerState.down
    assert ids(gateway.admin.models()) == ["b", "c"]
    fail(gateway, second, 6)
    assert ids(gateway.admin.models()) == ["a", "b", "c"]


def test_ready_while_a_request_would_find_a_worker(gateway: Gateway) -> None:
    """Suspect workers are tried; with all down it is not ready."""
    assert gateway.admin.ready()
    for worker in gateway.pool.workers:
        fail(gateway, worker, 1)
    assert gateway.admin.ready()
    for worker in gateway.pool.workers:
        fail(gateway, worker, 6)
    assert not gateway.admin.ready()


def test_not_ready_by_failures_alone() -> None:
    """A worker that never answered is no better for having been tried."""
    gateway = Gateway(Config(workers=(URLS,), render="never"))
    fail(gateway, gateway.pool.workers[0], 1)
    assert state(gateway.pool.workers[0]) is WorkerState.suspect
    assert not gateway.admin.ready()


def test_pages_are_json(gateway: Gateway) -> None:
    """Every page can be written, whatever state it shows."""
    fail(gateway, gateway.pool.workers[0], 6)
    for page in (
        asyncio.run(gateway.admin.workers()),
        gateway.admin.index(),
        gateway.admin.models(),
        gateway.explain_page.explain(RouteRequest()),
    ):
        assert msgspec.json.decode(msgspec.json.encode(page))
    first, _ = asyncio.run(gateway.admin.workers())["workers"]
    assert (first["state"], first["reason"]) == ("down", "refused")


def test_explain_without_workers(gateway: Gateway) -> None:
    """Nobody to choose is an error of its own."""
    for url in URLS:
        gateway.pool.remove(url)
    with pytest.raises(NoWorker):
        gateway.explain_page.explain(RouteRequest())


def test_times_in_a_state_are_durations(gateway: Gateway) -> None:
    """Seconds since the last change, not a clock's reading."""
    (first, _) = asyncio.run(gateway.admin.workers())["workers"]
    assert 0 <= first["state_s"] < 5
    assert 0 <= first["feeds"][0]["state_s"] < 5


def test_ranks_that_come_and_go(gateway: Gateway) -> None:
    """Each rank with an event source is an owner; one that is gone is forgotten."""
    (worker, _) = gateway.pool.workers
    told = msgspec.structs.replace(
        fact("a"),
        sources={
            0: EventSource(endpoint="tcp://w1:1"),
            1: EventSource(endpoint="tcp://w1:2"),
        },
    )
    gateway.monitor._write_down(worker, told)
    assert list(worker.ranks) == [0, 1]
    first, _ = asyncio.run(gateway.admin.workers())["workers"]
    assert [(f["rank"], f["state"]) for f in first["feeds"]] == [
        (0, "live"),
        (1, "live"),
    ]
    unanswered = msgspec.structs.replace(told, sources=None)
    gateway.monitor._write_down(worker, unanswered)
    assert list(worker.ranks) == [0, 1]
    gateway.monitor._write_down(worker, msgspec.structs.replace(told, sources={}))
    assert list(worker.ranks) == [0]
    first, _ = asyncio.run(gateway.admin.workers())["workers"]
    assert [(f["rank"], f["state"]) for f in first["feeds"]] == [(0, "estimated")]


def test_block_sizes_that_change(gateway: Gateway) -> None:
    """A worker that comes back with other blocks is matched by those."""
    (worker, _) = gateway.pool.workers
    for size in (16, 32, None, 64):
        facts = msgspec.structs.replace(fact("a", "b"), block_size=size)
        gateway.monitor._write_down(worker, facts)
        assert worker.block_size_of(0) == (size or 32)


@pytest.mark.parametrize(
    ("block_size", "cache_blocks", "expected"),
    [
        *((16, 700, 700), (32, 700, 700), (8, 700, 350), (1, 1600, 100)),
        *((None, 700, 700), (None, 1 << 40, 1 << 20), (16, 1 << 40, 1 << 20)),
    ],
)
def test_history_is_as_large_as_the_cache(
    gateway: Gateway, block_size: int | None, cache_blocks: int, expected: int
) -> None:
    """Pages under 16 tokens are indexed several to a block; none is beyond measure."""
    (worker, _) = gateway.pool.workers
    facts = msgspec.structs.replace(
        fact("a"), block_size=block_size, cache_blocks=cache_blocks
    )
    gateway.monitor._write_down(worker, facts)
    assert worker.knowledge[0].history.capacity_blocks == expected


def test_the_page_of_a_large_fleet_holds_up_nobody() -> None:
    """Other work goes on between its workers."""
    urls = tuple(f"http://w{number}:8000" for number in range(64))
    gateway = Gateway(Config(workers=(urls,), render="never"))
    assert sum(1 for _ in gateway.admin.workers().__await__()) == 8
