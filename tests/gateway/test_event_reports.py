"""Field reports about event streams: what went wrong in other gateways, asserted.

Each test plays the report's input on whole gateways. What only concerns the meaning of
events is in the tests of kvindex.
"""

from typing import Any

import pytest

from gateway.events import replay
from kvindex.events import AllBlocksCleared, BlockStored
from simworker.server import SimWorker
from tests.gateway.fed import (
    SIZE,
    TURN,
    feeds,
    held,
    options,
    sim,
    states,
    told,
    turn,
)
from tests.gateway.test_broken_events import (
    publishing,
    stored,
    subscribed,
)
from tests.running import SIM, Running, StartGateway, StartWorker, until

pytestmark = pytest.mark.usefixtures("quick_looks")


def chain(number: int, blocks: int, parent: int | None = None) -> BlockStored:
    """Blocks `number`, `number + 1`, ... of 16 tokens, one after the other."""
    events = [stored(number + step) for step in range(blocks)]
    return BlockStored(
        hashes=tuple(event.hashes[0] for event in events),
        parent=parent,
        token_ids=b"".join(event.token_ids for event in events),
        block_size=16,
    )


async def test_a_cache_that_was_wiped(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """AllBlocksCleared counts at once.

    vllm-project/aibrix#2287
    """
    worker = await start_worker(SIM)
    async with publishing() as publisher:
        gateway = await subscribed(start_gateway, worker, publisher)
        publisher.events(0, chain(1, 8))
        await until(lambda: held(gateway, worker) == 8)
        publisher.events(1, AllBlocksCleared())
        await until(lambda: held(gateway, worker) == 0)
        assert states(gateway, worker) == ["live"]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
async def test_a_cache_that_was_wiped_unheard(
    engine: str,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No event, but the worker finds nothing cached: the index corrects itself.

    vllm-project/aibrix#2287
    """
    worker = await start_worker(options(engine))
    gateway = await start_gateway(worker)
    for _ in range(2):  # SGLang leaves zeros out: before its first hit none is believed
        await gateway.chat(TURN)
        await until(lambda: held(gateway, worker) >= 8)
    feed = feeds(gateway, worker)[0]
    cleared = feed.counters.cleared
    await sim(gateway, worker, "/sim/faults", mute=True)
    for _ in range(2):  # one may have skipped the cache
        assert await told(gateway, TURN) >= 8 * SIZE
        await sim(gateway, worker, "/sim/reset")
        assert (await gateway.chat(TURN)).cached == 0
    assert await told(gateway, TURN) == 0
    assert "the worker finds less than is indexed" in caplog.text
    assert (feed.complete, feed.counters.cleared) == (False, cleared)
    assert feed.counters.found_less >= 2 * 8
    await sim(gateway, worker, "/sim/faults")
    await gateway.chat(turn(1))
    await until(lambda: feed.counters.gaps > 0 or feed.counters.cleared > cleared)
    answer = await gateway.chat(TURN)
    assert answer.cached >= 8 * SIZE
    await until(lambda: held(gateway, worker) >= 8)


async def test_a_restart_without_replay(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Numbers begin anew: the old blocks vanish, with no replay endpoint at all.

    llm-d/llm-d-router#2853
    """
    worker = await start_worker(SIM)
    async with publishing() as publisher:
        gateway = await subscribed(start_gateway, worker, publisher)
        for sequence in range(501):
            publisher.events(sequence, stored(sequence + 1))
        await until(lambda: held(gateway, worker) == 501)
        publisher.events(0, stored(9000))
        await until(lambda: feeds(gateway, worker)[0].counters.restarts == 1)
        await until(lambda: held(gateway, worker) == 1)
        assert states(gateway, worker) == ["live"]


async def test_children_of_unknown_parents(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """They are kept, counted and shown, and count once their parent is told.

    llm-d/llm-d-kv-cache#372
    """
    worker = await start_worker(SIM)
    async with publishing() as publisher:
        gateway = await subscribed(start_gateway, worker, publisher)
        publisher.events(7, chain(2, 3, parent=0xAB))
        publisher.events(8, chain(5, 2, parent=4))
        await until(lambda: feeds(gateway, worker)[0].last_sequence == 8)
        assert held(gateway, worker) == 0
        (page,) = (await gateway.get("/gateway/index"))["owners"]
        assert page["orphans"] == 5
        root = BlockStored(
            hashes=(0xAB,), token_ids=stored(99).token_ids, block_size=16
        )
        publisher.events(9, root)
        await until(lambda: held(gateway, worker) == 6)


async def test_missed_batches_without_replay(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """1, 2, 5: two were missed, and the worker is in doubt.

    llm-d/llm-d-router#1737
    """
    worker = await start_worker(SIM)
    async with publishing() as publisher:
        gateway = await subscribed(start_gateway, worker, publisher)
        for sequence in (1, 2, 5):
            publisher.events(sequence, stored(sequence))
        await until(lambda: held(gateway, worker) == 3)
        counters = feeds(gateway, worker)[0].counters
        assert (counters.gaps, counters.missed_batches) == (1, 2)
        assert states(gateway, worker) == ["degraded"]


async def test_missed_batches_with_replay(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The replay is asked once, from the last batch seen, and mends it all.

    llm-d/llm-d-router#1737
    """
    worker = await start_worker(options(replay_port=0))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) >= 8 and _caught_up(gateway, worker))
    feed = feeds(gateway, worker)[0]
    last, asked = feed.last_sequence, _asked(monkeypatch)
    await sim(gateway, worker, "/sim/faults", drop=2)
    for number in range(4):
        await gateway.chat(turn(number))
    await until(lambda: _caught_up(gateway, worker) and feed.state == "live")
    assert asked == [last]
    assert feed.complete
    assert (feed.counters.missed_batches, feed.counters.restarts) == (0, 0)
    for number in range(4):
        assert await told(gateway, turn(number)) >= 8 * SIZE


def _asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers from which batches are asked for again, from now on."""
    asked: list[int] = []
    ask = replay._ask

    async def noted(context: Any, endpoint: str, start: int, *others: Any) -> bool:
        asked.append(start)
        return await ask(context, endpoint, start, *others)

    monkeypatch.setattr(replay, "_ask", noted)
    return asked


@pytest.mark.parametrize("legacy", [False, True])
async def test_replay_frames(
    legacy: bool, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """With a topic in them or, before vLLM 0.26, without.

    vllm-project/vllm#45174
    """
    worker = await start_worker(options(replay_port=0, legacy_replay=legacy))
    first = await start_gateway(worker)
    await first.chat(TURN)
    late = await start_gateway(worker)
    await until(lambda: held(late, worker) >= 8)
    counters = feeds(late, worker)[0].counters
    assert (counters.undecodable, counters.restarts) == ({}, 0)


async def test_one_recovery_per_gap(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """What is replayed runs ahead of the live batches: no second recovery.

    ai-dynamo/dynamo#7072
    """
    worker = await start_worker(options(replay_port=0))
    gateway = await start_gateway(worker)
    for number in range(3):
        await gateway.chat(turn(number))
    await sim(gateway, worker, "/sim/faults", drop=1)
    for number in range(3, 9):
        await gateway.chat(turn(number))
    feed = feeds(gateway, worker)[0]
    await until(lambda: _caught_up(gateway, worker))
    replayed = feed.counters.replayed
    for number in range(9, 14):
        await gateway.chat(turn(number))
    await until(lambda: _caught_up(gateway, worker))
    assert feed.counters.replayed == replayed
    assert (feed.counters.restarts, feed.state, feed.complete) == (0, "live", True)


def _caught_up(gateway: Running, worker: SimWorker) -> bool:
    assert worker.publisher is not None
    last = worker.publisher.next_sequence - 1
    return feeds(gateway, worker)[0].last_sequence == last
