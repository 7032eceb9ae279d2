"""Field reports about sources of events and ranks: what went wrong, asserted.

Each test plays the report's input on whole gateways. What only concerns the meaning of
events is in the tests of kvindex.
"""

import json
from functools import partial
from typing import Any

import pytest

from gateway.settings.values import EventEndpoint
from kvindex.feed import FeedSettings
from simworker.server import SimWorker
from tests.gateway.fed import (
    SIZE,
    TURN,
    feeds,
    held,
    options,
    states,
    told,
    turn,
)
from tests.gateway.scripted import ANSWER, LISTING, ask
from tests.gateway.test_broken_events import (
    publishing,
)
from tests.gateway.test_event_reports import chain
from tests.gateway.test_ranks import ranks_sent
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer
from tests.running import MODEL, SIM, Running, StartGateway, StartWorker, until

pytestmark = pytest.mark.usefixtures("quick_looks")


async def test_a_worker_without_events(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One has events, the other none: it is named, with its likely cause.

    ai-dynamo/dynamo#11194
    """
    monkeypatch.setattr("gateway.events.silence.MISSING_AFTER_S", 0.2)
    monkeypatch.setattr("gateway.events.silence.CHECK_S", 0.05)
    lively, mute = await start_worker(options()), await start_worker(SIM)
    gateway = await start_gateway(lively, mute)
    for number in range(6):
        await gateway.chat(turn(number))
    await until(lambda: "unlike others" in caplog.text)
    (line,) = [r.getMessage() for r in caplog.records if "unlike" in r.getMessage()]
    assert mute.url in line
    assert "--kv-events-config" in line
    shown = {"worker": mute.url, "rank": "0", "state": "estimated"}
    assert await gateway.metric("feed_state", **shown) == 1


async def test_a_poll_that_returns_nothing(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """[] for ever: by its history, said once, and shown.

    NVIDIA/TensorRT-LLM#14882
    """
    soon = partial(FeedSettings, silent_after_s=0.1)
    monkeypatch.setattr("gateway.events.ingest.FeedSettings", soon)
    worker = await start_worker(options("trtllm", kv_events=False))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: states(gateway, worker) == ["silent"])
    assert "event_buffer_max_size" in caplog.text
    answer = await gateway.chat(TURN)
    assert answer.cached >= 8 * SIZE
    assert await gateway.hits() == (answer.cached, answer.cached)
    assert await gateway.metric("feed_state", state="silent") == 1


async def test_a_gateway_that_starts_late(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Blocks without a root are not credited; what requests find is learnt.

    sgl-project/sglang#39750
    """
    worker = await start_worker(options())
    first = await start_gateway(worker)
    await first.chat(TURN)
    late = await start_gateway(worker)
    more = [*TURN, {"role": "user", "content": "And who else? " * 40}]
    answer = await late.chat(more)
    assert answer.cached >= 8 * SIZE
    predicted, delivered = await late.hits()
    assert (predicted, delivered) == (0, answer.cached)
    assert await told(late, TURN) == 0
    again = await late.chat(more)
    later_predicted, later_delivered = await late.hits()
    assert later_predicted - predicted == later_delivered - delivered == again.cached


async def test_one_request_places_what_other_gateways_sent(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """A late one knows chats of others once it has asked below the same prompt itself.

    It has heard of them, but not of the system prompt, which was cached before.
    """
    worker = await start_worker(options())
    first = await start_gateway(worker)
    system = {"role": "system", "content": TURN[0]["content"]}
    chats = [[system, *turn(number)] for number in range(3)]
    await first.chat(chats[0])
    late = await start_gateway(worker)
    await first.chat(chats[1])
    await until(lambda: feeds(late, worker)[0].counters.orphans)
    await late.until_events_arrive(worker)
    await late.chat(chats[2])
    await until(lambda: held(late, worker))
    await late.until_events_arrive(worker)
    more = [*chats[1], {"role": "user", "content": "And who else? " * 40}]
    before = await late.hits()
    answer = await late.chat(more)
    predicted, delivered = await late.hits()
    assert (predicted - before[0], delivered - before[1]) == (answer.cached,) * 2
    assert answer.cached >= 16 * SIZE


async def test_ranks_are_kept_apart(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """What rank 3 announces is held by (worker, 3) alone.

    llm-d/llm-d-router#2379
    """
    worker = await start_worker(SIM)
    async with publishing() as publisher, publishing() as other:
        sources = (
            EventEndpoint(worker.url, 0, other.endpoint),
            EventEndpoint(worker.url, 3, publisher.endpoint),
        )
        gateway = await start_gateway(worker, kv_events=sources)
        await publisher.heard()
        publisher.events(0, chain(1, 4))
        await until(lambda: held(gateway, worker) == 4)
        found = {r: f.owner.blocks if f.owner else 0 for r, f in _all(gateway, worker)}
        assert found == {0: 0, 3: 4}


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
async def test_block_sizes_of_all_kinds(
    engine: str, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Sizes 128, 32 and 48 side by side: each worker is matched by its own.

    NVIDIA/TensorRT-LLM#15005

    None is refused: every size has an index of its own.
    """
    sizes = (128, 32, 48)
    workers = [await start_worker(options(engine, block_size=n)) for n in sizes]
    gateway = await start_gateway(*workers, policy="round_robin")
    answers = [await gateway.chat(TURN) for _ in workers]
    await until(lambda: all(held(gateway, worker) for worker in workers))
    prompt_tokens = answers[0].body["usage"]["prompt_tokens"]
    body = {"model": MODEL, "messages": TURN}
    explained = await gateway.post("/gateway/explain", body)
    found = {shown["url"]: shown["held_tokens"] for shown in explained["workers"]}
    assert found == {
        worker.url: (prompt_tokens - 1) // size * size
        for worker, size in zip(workers, sizes, strict=True)
    }


async def test_a_key_is_wanted(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """401 on /server_info alone: said once, with the flag; events come all the same.

    sgl-project/sglang#30046
    """
    worker = await start_worker(options("trtllm", render_fingerprint="unauthorised"))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) >= 8)
    lines = [r.getMessage() for r in caplog.records if "answers 401" in r.getMessage()]
    assert len(lines) == 1
    assert worker.url in lines[0]
    assert "--worker-api-key" in lines[0]


async def test_a_key_is_wanted_where_sources_are_told(
    start_gateway: StartGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """SGLang tells its events on that page alone: the feed names the 401 and the flag.

    sgl-project/sglang#30046
    """
    shut = True
    listing = json_answer(b'{"data": [{"id": "m", "owned_by": "sglang"}]}')
    opened = {"page_size": 64, "startup_time": 1.0, "kv_events": None}

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            answer = json_answer(b"{}", status=b"404 Not Found")
            if b"/v1/models" in request.split(b"\r\n")[0]:
                answer = listing
            elif b"/server_info" in request.split(b"\r\n")[0]:
                answer = json_answer(json.dumps(opened).encode())
                if shut:
                    answer = json_answer(b"{}", status=b"401 Unauthorized")
            await connection.send(answer)

    async with RawWorker(script) as worker:
        gateway = await start_gateway(worker)
        feed = await gateway.feed()
        assert feed["state"] == "estimated"
        assert "/server_info answers 401" in feed["reason"]
        assert "--worker-api-key" in feed["reason"]
        lines = [r.getMessage() for r in caplog.records if "answers 401" in r.message]
        assert len(lines) == 1
        shut = False
        (known,) = gateway.gateway.pool.workers
        await until(lambda: known.knowledge[0].feed.reason == "no event source")
        assert known.block_size_of(0) == 64


def _all(gateway: Running, worker: SimWorker) -> Any:
    return feeds(gateway, worker).items()


LATER_RANKS = json_answer(
    b'vllm:num_requests_running{engine="4",model_name="m"} 0.0\n'
    b'vllm:num_requests_running{engine="5",model_name="m"} 0.0\n'
    b'vllm:num_requests_running{engine="6",model_name="m"} 0.0\n'
    b'vllm:num_requests_running{engine="7",model_name="m"} 0.0\n'
)
REFUSAL = json_answer(
    json.dumps({"error": {"message": "rank out of range"}}).encode(),
    status=b"400 Bad Request",
)


async def test_global_ranks(start_gateway: StartGateway) -> None:
    """A worker that owns ranks 4 to 7 is asked for those and no others.

    vllm-project/router#210
    """

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            path = request.split(b" ")[1]
            answer = {b"/v1/models": LISTING, b"/metrics": LATER_RANKS}.get(
                path, json_answer(b"{}", status=b"404 Not Found")
            )
            if path == b"/v1/chat/completions":
                lower = request.lower()
                mine = any(
                    b"x-data-parallel-rank: %d" % r in lower for r in range(4, 8)
                )
                answer = ANSWER if mine else REFUSAL
            await connection.send(answer)

    async with RawWorker(script) as worker:
        gateway = await start_gateway(worker.url, policy="round_robin")
        for _ in range(8):
            assert (await ask(gateway))[0] == 200
        assert sorted(ranks_sent(worker)) == [
            b"4",
            b"4",
            b"5",
            b"5",
            b"6",
            b"6",
            b"7",
            b"7",
        ]
