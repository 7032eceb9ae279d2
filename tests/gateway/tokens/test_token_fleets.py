"""Workers that take token ids only, among others: who is chosen, what is predicted."""

import gzip
from typing import Any

import aiohttp
import msgspec

from gateway.doctor.trial import try_out
from gateway.settings.values import declared_api
from simworker.server import SimWorker
from tests.gateway.tokens.rig import (
    CHAT,
    TOKENS,
    TOKENS_WITH_EVENTS,
    USER,
    ask,
    chat,
    neutral,
)
from tests.running import SIM, WITH_EVENTS, StartGateway, StartWorker, until


async def test_a_mixed_fleet(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
) -> None:
    """Both answer alike; what cannot be rendered goes to those that take chats."""
    plain, taker = (
        await start_worker(WITH_EVENTS),
        await start_worker(TOKENS_WITH_EVENTS),
    )
    gateway = await start_gateway(plain, taker, policy="round_robin")
    answers = {}
    for _ in range(4):
        told = await ask(client, gateway.url, chat())
        answers[told.headers["X-Sim-Worker"]] = neutral(told.body)["choices"]
    assert {*answers} == {plain.url, taker.url}
    assert answers[plain.url] == answers[taker.url]
    for _ in range(3):
        packed = gzip.compress(msgspec.json.encode(chat()))
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        async with client.post(
            gateway.url + CHAT, data=packed, headers=headers
        ) as response:
            assert response.headers["X-Sim-Worker"] == plain.url
        told = await ask(client, gateway.url, {"prompt": "x"}, "/tokenize")
        assert (told.status, told.headers["X-Sim-Worker"]) == (200, plain.url)
        told = await ask(client, gateway.url, chat(USER, echo=True))
        assert (told.status, told.headers["X-Sim-Worker"]) == (200, plain.url)


async def test_hits_are_predicted_and_delivered_as_ever(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
) -> None:
    """Also of a stream whose client asked for no usage."""
    worker = await start_worker(TOKENS_WITH_EVENTS)
    gateway = await start_gateway(worker)
    text = " ".join(f"word{n}" for n in range(100))
    body = chat({"role": "user", "content": text}, stream=True)
    for _ in range(3):
        told = await ask(client, gateway.url, body)
        assert not any(event.get("usage") for event in told.events)
        await gateway.until_events_arrive(worker)
    predicted, delivered = await gateway.hits()
    assert predicted == delivered > 2 * 96
    assert await gateway.metric("first_token_seconds_count") == 3
    assert await gateway.metric("not_rendered_total") == 0


async def test_rendering_that_routing_would_not_wait_for_is_waited_for(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
) -> None:
    """The deadline is that of routing."""
    worker = await start_worker(TOKENS)
    gateway = await start_gateway(worker, render_deadline=1e-9)
    assert (await ask(client, gateway.url, chat())).status == 200


async def test_it_can_be_declared(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
) -> None:
    """Of a worker that has both routes."""
    one, other = await start_worker(SIM), await start_worker(SIM)
    apis = (declared_api("tokens"), declared_api(f"{other.url}=chat"))
    gateway = await start_gateway(one, other, worker_api=apis)
    page = await gateway.get("/gateway/workers")
    assert [worker["api"] for worker in page["workers"]] == ["tokens", "chat"]
    assert (await ask(client, gateway.url, chat())).status == 200


async def test_a_busy_worker_gives_way(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
) -> None:
    """One that is gone, too: another answers, whatever it takes."""
    gone: SimWorker = await start_worker(TOKENS)
    plain = await start_worker(SIM)
    gateway = await start_gateway(gone, plain, policy="round_robin")
    await gone.stop()
    for _ in range(4):
        told = await ask(client, gateway.url, chat())
        assert (told.status, told.headers["X-Sim-Worker"]) == (200, plain.url)


async def test_its_rendering_is_no_matter(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """There is nothing to prove; a doctor's chats go to it as ids."""
    worker = await start_worker(TOKENS_WITH_EVENTS)
    gateway = await start_gateway(worker)

    async def told() -> Any:
        page = await gateway.get("/gateway/workers")
        return page["workers"][0]["forwarding"]

    async def is_told() -> bool:
        return bool((await told())["reason"] == "only_ids")

    await until(is_told)
    assert (await told())["allowed"] is False
    found = await try_out(gateway.gateway.config, gateway.gateway.pool.workers, 5.0)
    trial = found[worker.url]
    assert trial.problem is None
    assert trial.cached_tokens is not None
    assert trial.cached_tokens >= 64
