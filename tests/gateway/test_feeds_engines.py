"""Feeds of every engine, followed end to end with no flag of the gateway's."""

from typing import Any

import msgspec
import pytest

from simworker.server import SimWorker
from tests.running import WITH_EVENTS, Running, StartGateway, StartWorker, until

TEXT = "Which harbour is the oldest that is still in use, and who says so? " * 12
TURN = [{"role": "user", "content": TEXT}]
ENGINES = ["vllm", "sglang", "trtllm"]


def feeds(gateway: Running, worker: SimWorker) -> dict[int, Any]:
    """A worker's feeds by rank."""
    known = gateway.gateway.pool.get(worker.url)
    assert known is not None
    return {rank: knowledge.feed for rank, knowledge in known.knowledge.items()}


def held(gateway: Running, worker: SimWorker) -> int:
    """The blocks that the index has for a worker, at all its ranks."""
    owners = [feed.owner for feed in feeds(gateway, worker).values()]
    return sum(owner.blocks for owner in owners if owner)


@pytest.mark.parametrize("engine", ENGINES)
async def test_events_are_followed(
    engine: str, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """What a worker announces is in the index; the next request's hit is foretold."""
    options = msgspec.structs.replace(WITH_EVENTS, engine=engine, block_size=16)
    worker = await start_worker(options)
    gateway = await start_gateway(worker)
    first = await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) >= 8)
    feed = feeds(gateway, worker)[0]
    assert (feed.state, feed.complete) == ("live", True)
    assert feed.counters.undecodable == {}
    asked = {"model": "qwen3-demo", "messages": TURN}
    explained = await gateway.post("/gateway/explain", asked)
    prompt_tokens = first.body["usage"]["prompt_tokens"]
    expected = (prompt_tokens - 1) // 16 * 16
    assert explained["workers"][0]["held_tokens"] == expected
    second = await gateway.chat(TURN)
    assert second.cached == expected
    predicted, delivered = await gateway.hits()
    assert predicted == delivered == expected


@pytest.mark.parametrize("engine", ENGINES)
async def test_data_parallel_ranks(
    engine: str, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Each rank has a feed of its own; a chat comes back to the rank that holds it.

    TensorRT-LLM picks the rank itself, so it is one candidate.
    """
    worker = await start_worker(
        msgspec.structs.replace(
            WITH_EVENTS, engine=engine, block_size=16, data_parallel_size=2
        )
    )
    gateway = await start_gateway(worker)
    turns = [[{"role": "user", "content": f"{n}: {TEXT}"}] for n in range(4)]
    for turn in turns:
        await gateway.chat(turn)
    await until(lambda: _hold(gateway, worker, 2))
    assert {feed.state for feed in feeds(gateway, worker).values()} == {"live"}
    (known,) = gateway.gateway.pool.workers
    assert known.pinned is (engine != "trtllm")
    if known.pinned:
        for turn in turns:
            answer = await gateway.chat(turn)
            assert answer.cached >= 8 * 16
        predicted, delivered = await gateway.hits()
        assert predicted == delivered


def _hold(gateway: Running, worker: SimWorker, ranks: int) -> bool:
    owners = [feed.owner for feed in feeds(gateway, worker).values()]
    return sum(owner is not None and owner.blocks >= 8 for owner in owners) == ranks
