"""Feeds of every engine, followed end to end with no flag of the gateway's."""

import asyncio

import pytest

from gateway.workers import monitor
from simworker.server import SimWorker
from tests.gateway.fed import (
    ENGINES,
    SIZE,
    TURN,
    feeds,
    held,
    options,
    sim,
    told,
    turn,
)
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


@pytest.mark.parametrize("replay_port", [None, 0])
@pytest.mark.parametrize("how", [{}, {"reconnect": True}, {"unheard": True}])
@pytest.mark.parametrize("engine", ENGINES)
async def test_a_restart_in_place(
    engine: str,
    how: dict[str, bool],
    replay_port: int | None,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """HTTP stays up, numbers and cache begin anew: the old cache is not believed in.

    Heard with the next number, or told by the start of the process where none goes
    back: TensorRT-LLM does not tell it.
    """
    if engine == "trtllm" and (replay_port == 0 or how == {"unheard": True}):
        pytest.skip("it has neither")
    monkeypatch.setattr(monitor, "REFRESH_S", 0.2)
    worker = await start_worker(options(engine, replay_port=replay_port))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await gateway.chat(turn(1))
    await until(lambda: held(gateway, worker) >= 16)
    await sim(gateway, worker, "/sim/restart", **how)
    feed = feeds(gateway, worker)[0]
    await until(lambda: feed.counters.restarts == 1)
    assert await told(gateway, TURN) == 0
    if "reconnect" in how and replay_port is None:
        await asyncio.sleep(1.3)  # what is sent before the sockets meet again is lost
    assert (await gateway.chat(TURN)).cached == 0
    if how != {"unheard": True}:
        await until(lambda: held(gateway, worker) >= 8)
        await until(lambda: feed.state == "live")
        assert (await gateway.chat(TURN)).cached == await told(gateway, TURN) > 0
    assert feed.counters.restarts == 1
