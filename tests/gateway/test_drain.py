"""Events that are fetched: how often, by whom else, and what fails."""

import asyncio
import json
import logging
from typing import Any

import aiohttp
import pytest

from gateway import drain, monitor
from kvindex.wire.trtllm_hashes import v1_block_key
from tests.gateway.fed import TURN, feeds, held, options, sim, states, told, turn
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer
from tests.running import Running, StartGateway, StartWorker, until

LISTING = json_answer(b'{"data": [{"id": "m", "owned_by": "tensorrt_llm"}]}')
INFO = json_answer(b'{"tokens_per_block": 16, "disaggregated_params": {}}')


def created(event_id: int) -> dict[str, Any]:
    """The first event of a cache."""
    return {
        "event_id": event_id,
        "data": {"type": "created", "num_blocks_per_cache_level": [100, 0]},
        "window_size": 4096,
    }


def stored(event_id: int, *numbers: int, rank: int | None = None) -> dict[str, Any]:
    """A chain of blocks of 16 tokens, by this engine's own recipe."""
    blocks, name = [], 0
    for number in numbers:
        ids = range(16 * number, 16 * number + 16)
        name = v1_block_key(ids, name)
        block = {
            "type": "stored_block",
            "block_hash": name,
            "tokens": [{"type": "unique_token", "token_id": i} for i in ids],
            "cache_level": 0,
            "priority": 35,
        }
        blocks.append(block)
    data = {"type": "stored", "parent_hash": None, "blocks": blocks}
    event: dict[str, Any] = {"event_id": event_id, "data": data, "window_size": 4096}
    return event if rank is None else event | {"attention_dp_rank": rank}


class Scripted(RawWorker):
    """A TensorRT-LLM worker with answers to give out: events, or raw bytes."""

    def __init__(self, *answers: list[dict[str, Any]] | bytes) -> None:
        super().__init__(self._serve)
        self.answers = list(answers)
        self.fetches = 0
        self.over = False

    async def __aenter__(self) -> "Scripted":
        await super().__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.over = True  # a fetch may come just when its connection is cancelled
        await super().__aexit__(*error)

    async def _serve(self, connection: WorkerConnection) -> None:
        while not self.over and (request := await connection.request()):
            method, path, _ = request.split(b" ", 2)
            if path == b"/v1/models":
                await connection.send(LISTING)
            elif path == b"/server_info":
                await connection.send(INFO)
            elif (method, path) == (b"POST", b"/kv_cache_events"):
                self.fetches += 1
                answer = self.answers.pop(0) if self.answers else []
                if not answer and isinstance(answer, bytes):
                    return  # hang up
                if not isinstance(answer, bytes):
                    answer = json_answer(json.dumps(answer).encode())
                await connection.send(answer)
            else:
                await connection.send(json_answer(b"{}", status=b"404 Not Found"))


def warned(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    """Warnings with this text."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and text in record.getMessage()
    ]


async def test_each_rank_has_its_own_numbers(start_gateway: StartGateway) -> None:
    """Event ids count per attention-DP rank; ranks appear with their events."""
    events = [
        [created(0), stored(1, 1), created(0) | {"attention_dp_rank": 2}],
        [stored(1, 5, 6, rank=2), stored(2, 2)],
        [stored(3, 3), stored(3, 9, rank=-4)],
    ]
    async with Scripted(*events) as worker:
        gateway = await start_gateway(worker.url)
        await until(lambda: held(gateway, worker.url) == 5)
        found = feeds(gateway, worker.url)
        assert {rank: feed.last_sequence for rank, feed in found.items()} == {
            0: 3,
            2: 1,
        }
        assert {feed.state for feed in found.values()} == {"live"}
        assert all(feed.complete for feed in found.values())
        (known,) = gateway.gateway.pool.workers
        assert list(known.ranks) == [0, 2]
        assert not known.pinned


@pytest.mark.parametrize("left", [1, 2])
async def test_a_restart_with_fewer_ranks(
    left: int, start_gateway: StartGateway
) -> None:
    """Ranks that are no more hold nothing; those that are begin anew, complete."""
    before = [[created(0), created(0) | {"attention_dp_rank": 1}]]
    before += [[stored(1, 1, 2), stored(1, 5, 6, 7, rank=1)]]
    async with Scripted(*before) as worker:
        gateway = await start_gateway(worker.url)
        await until(lambda: held(gateway, worker.url) == 5)
        ranks = range(left)
        worker.answers += [[created(0) | {"attention_dp_rank": r} for r in ranks]]
        worker.answers += [[stored(1, 8, rank=r) for r in ranks]]
        await until(lambda: held(gateway, worker.url) == left)
        (known,) = gateway.gateway.pool.workers
        assert list(known.ranks) == list(feeds(gateway, worker.url)) == list(ranks)
        assert all(feed.complete for feed in feeds(gateway, worker.url).values())


async def test_the_cache_size_is_in_the_events(start_gateway: StartGateway) -> None:
    """All media count, and the history has as many blocks; a restart may change it."""
    first, second = created(0), created(0)
    first["data"]["num_blocks_per_cache_level"] = [500, 250]
    async with Scripted([first, stored(1, 1)]) as worker:
        gateway = await start_gateway(worker.url)
        await until(lambda: held(gateway, worker.url) == 1)
        (known,) = gateway.gateway.pool.workers
        assert known.knowledge[0].history.capacity_blocks == 750
        worker.answers += [[second, stored(1, 1, 2)]]
        await until(lambda: held(gateway, worker.url) == 2)
        assert known.knowledge[0].history.capacity_blocks == known.cache_blocks == 100


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (json_answer(b"{}", status=b"503 Busy"), "answers 503"),
        (json_answer(b"{}", status=b"404 Not Found"), "answers 404"),
        (b"", "Disconnected"),
        (b"garbage\r\n\r\n", "BadStatusLine|Expected HTTP|Bad status|ClientResponse"),
    ],
)
async def test_a_fetch_that_fails(
    answer: bytes,
    reason: str,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In doubt until the next ids show that nothing was lost."""
    monkeypatch.setattr(drain, "RETRY_S", 0.05)
    async with Scripted([created(0), stored(1, 1)]) as worker:
        gateway = await start_gateway(worker.url)
        await until(lambda: held(gateway, worker.url) == 1)
        worker.answers += [answer] * 2
        await until(lambda: states(gateway, worker.url) == ["degraded"])
        feed = feeds(gateway, worker.url)[0]
        assert "/kv_cache_events" in feed.reason
        assert any(part in feed.reason for part in reason.split("|"))
        worker.answers += [[stored(2, 2)]]
        await until(lambda: states(gateway, worker.url) == ["live"])
        assert feed.complete
        assert held(gateway, worker.url) == 2


async def test_answers_that_are_no_events(start_gateway: StartGateway) -> None:
    """Counted, and the next ones are read."""
    odd = [b'{"a": 1}', b"no json", b'["x", 1, null, {"event_id": "z"}]', b"[[[[[]]]]]"]
    async with Scripted([created(0), stored(1, 1)], *map(json_answer, odd)) as worker:
        gateway = await start_gateway(worker.url)
        await until(lambda: not worker.answers)
        worker.answers += [[stored(2, 2)]]
        await until(lambda: held(gateway, worker.url) == 2)
        assert await gateway.metric("undecodable_events_total") > 0


async def test_answers_without_end_are_cut(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker makes the gateway hold more than so much; its events are missed."""
    monkeypatch.setattr(drain, "ANSWER_LIMIT", 10_000)
    monkeypatch.setattr(drain, "RETRY_S", 0.05)
    large = [stored(n, n) for n in range(2, 40)]
    async with Scripted([created(0), stored(1, 1)], large) as worker:
        gateway = await start_gateway(worker.url)
        await until(lambda: states(gateway, worker.url) == ["degraded"])
        assert "more than 10000" in feeds(gateway, worker.url)[0].reason
        worker.answers += [[stored(40, 40)]]
        await until(lambda: held(gateway, worker.url) == 2)
        assert feeds(gateway, worker.url)[0].counters.gaps == 1


async def test_a_worker_that_hangs(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fetch has a time limit; requests are served meanwhile."""
    monkeypatch.setattr(drain, "TIMEOUT", aiohttp.ClientTimeout(total=0.2))
    monkeypatch.setattr(drain, "RETRY_S", 0.05)
    worker = await start_worker(options("trtllm"))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) > 0)
    await sim(gateway, worker, "/sim/faults", drain="hang", pause_s=1.0)
    await gateway.chat(turn(1))
    await until(lambda: "no answer in time" in feeds(gateway, worker)[0].reason)
    await sim(gateway, worker, "/sim/faults")
    await gateway.chat(turn(2))
    await until(lambda: _knows(gateway, 2))


async def _knows(gateway: Running, number: int) -> bool:
    return await told(gateway, turn(number)) >= 8 * 16


async def test_another_consumer_is_noticed(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each event is handed out once: what another fetched is missing, and is said."""
    worker = await start_worker(options("trtllm"))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) > 0)
    thief = asyncio.create_task(_fetch_away(gateway, worker.url))
    for number in range(12):
        await gateway.chat(turn(number))
    thief.cancel()
    await gateway.chat(turn(20))
    await until(lambda: feeds(gateway, worker)[0].counters.gaps > 0)
    (line,) = warned(caplog, "event ids have holes")
    assert worker.url in line
    assert "another consumer" in line
    assert states(gateway, worker) == ["degraded"]
    assert "drain" in feeds(gateway, worker)[0].reason


async def _fetch_away(gateway: Running, url: str) -> None:
    while True:
        async with gateway.client.post(url + "/kv_cache_events") as response:
            await response.read()
        await asyncio.sleep(0.005)


async def test_a_buffer_that_runs_over(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest events are gone: in doubt, and the setting is named."""
    monkeypatch.setattr(drain, "BUSY_S", 0.7)
    worker = await start_worker(options("trtllm", event_buffer=4))
    gateway = await start_gateway(worker)
    await asyncio.gather(*(gateway.chat(turn(number)) for number in range(12)))
    await until(lambda: feeds(gateway, worker)[0].counters.gaps > 0)
    (line,) = warned(caplog, "event ids have holes")
    assert "event_buffer_max_size" in line


async def test_a_restart_in_place(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ids begin anew with a new cache: nothing of the old one is believed."""
    monkeypatch.setattr(monitor, "REFRESH_S", 0.2)
    worker = await start_worker(options("trtllm"))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) > 0)
    await sim(gateway, worker, "/sim/restart")
    await until(lambda: feeds(gateway, worker)[0].counters.restarts == 1)
    assert held(gateway, worker) == 0
    assert states(gateway, worker) == ["live"]
    assert feeds(gateway, worker)[0].complete
    answer = await gateway.chat(TURN)
    assert answer.cached == 0
    await until(lambda: held(gateway, worker) > 0)
