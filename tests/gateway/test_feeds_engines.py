"""Feeds of every engine, followed end to end with no flag of the gateway's."""

import pytest

from simworker.server import SimWorker
from tests.gateway.fed import ENGINES, SIZE, TURN, feeds, held, options, told, turn
from tests.running import Running, StartGateway, StartWorker, until


@pytest.mark.parametrize("engine", ENGINES)
async def test_events_are_followed(
    engine: str, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """What a worker announces is in the index; the next request's hit is foretold."""
    worker = await start_worker(options(engine))
    gateway = await start_gateway(worker)
    first = await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) >= 8)
    feed = feeds(gateway, worker)[0]
    assert (feed.state, feed.complete) == ("live", True)
    assert feed.counters.undecodable == {}
    source = worker.kv_endpoint or "POST /kv_cache_events"
    assert (await gateway.feed())["source"] == source
    prompt_tokens = first.body["usage"]["prompt_tokens"]
    expected = (prompt_tokens - 1) // SIZE * SIZE
    assert await told(gateway, TURN) == expected
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
    worker = await start_worker(options(engine, data_parallel_size=2))
    gateway = await start_gateway(worker)
    turns = [turn(n) for n in range(4)]
    for messages in turns:
        await gateway.chat(messages)
    await until(lambda: _hold(gateway, worker, 2))
    assert {feed.state for feed in feeds(gateway, worker).values()} == {"live"}
    (known,) = gateway.gateway.pool.workers
    assert known.pinned is (engine != "trtllm")
    if known.pinned:
        for messages in turns:
            answer = await gateway.chat(messages)
            assert answer.cached >= 8 * SIZE
        predicted, delivered = await gateway.hits()
        assert predicted == delivered


def _hold(gateway: Running, worker: SimWorker, ranks: int) -> bool:
    owners = [feed.owner for feed in feeds(gateway, worker).values()]
    return sum(owner is not None and owner.blocks >= 8 for owner in owners) == ranks
