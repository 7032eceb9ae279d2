"""Responses that another gateway had made: their workers are found by asking."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.request import response_makers
from tests.gateway.answering import Scripted
from tests.gateway.makers import Maker, make
from tests.gateway.processes.rig import several
from tests.running import StartGateway, until

HANGS_S = 40.0
CLIENT = {"Authorization": "Bearer client"}


def _maker_of(made: str) -> str:
    return made.split("_")[1]


async def test_what_another_gateway_had_made_is_found(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    """Each worker is asked once; then it is known. One that is not named is not."""
    makers = [Maker("a"), Maker("b"), Maker("c")]
    urls = [await scripted(maker.answer) for maker in makers]
    first = await start_gateway(*urls, policy="round_robin")
    other = await start_gateway(*urls, policy="round_robin")
    responses = [await make(first) for _ in range(3)]
    assert {_maker_of(made) for made in responses} == {"a", "b", "c"}
    for made in responses:
        again = await make(other, previous_response_id=made)
        assert _maker_of(again) == _maker_of(made)
    asked = [len(maker.asked) for maker in makers]
    for made in responses:
        by = {"by": _maker_of(made)}
        assert await other.get(f"/v1/responses/{made}") == by
        assert await other.post(f"/v1/responses/{made}/cancel", {}) == by
    assert [len(maker.asked) for maker in makers] == [n + 2 for n in asked]
    await other.get("/v1/responses/nothing", status=404)
    assert sum(len(maker.asked) for maker in makers) == sum(asked) + 7


async def test_a_worker_that_hangs_is_not_waited_for(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    """Neither where another one has it, nor for long where none has."""
    maker, free = Maker("a"), asyncio.Event()
    hung: list[str] = []
    waited_for: list[str] = []

    async def hang(request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": "m"}]})
        if request.method == "GET" and request.path.startswith("/v1/responses/"):
            hung.append(request.path)
            if len(hung) <= 2:
                try:
                    await asyncio.wait_for(free.wait(), HANGS_S)
                except TimeoutError:
                    waited_for.append(request.path)
        return web.json_response({"by": "hung"}, status=404)

    made = "resp_a_0"
    maker.made.add(made)
    gateway = await start_gateway(await scripted(maker.answer), await scripted(hang))
    try:
        assert await gateway.get(f"/v1/responses/{made}") == {"by": "a"}
        await gateway.get("/v1/responses/resp_unknown", status=404)
    finally:
        free.set()
    assert waited_for == []
    assert hung[:2] == [f"/v1/responses/{made}", "/v1/responses/resp_unknown"]


async def test_a_worker_that_hangs_keeps_only_its_own_places(
    start_gateway: StartGateway, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many ask for ids that nobody has; one that another worker has is found still."""
    monkeypatch.setattr(response_makers, "ASK_S", 2 * HANGS_S)
    monkeypatch.setattr(response_makers, "AT_ONCE", 2)
    maker, free = Maker("a"), asyncio.Event()
    hung: list[str] = []

    async def hang(request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": "m"}]})
        if request.path.startswith("/v1/responses/"):
            hung.append(request.path)
            await free.wait()
        return web.json_response({}, status=404)

    maker.made.add("resp_a_0")
    gateway = await start_gateway(await scripted(maker.answer), await scripted(hang))
    unknown = [
        asyncio.create_task(gateway.get(f"/v1/responses/resp_{n}", status=404))
        for n in range(5)
    ]
    try:
        await until(lambda: len(hung) == 2 and len(maker.asked) == 5)
        async with asyncio.timeout(HANGS_S):
            assert await gateway.get("/v1/responses/resp_a_0") == {"by": "a"}
        assert len(hung) == 2
    finally:
        free.set()
        for task in unknown:
            task.cancel()
        await asyncio.gather(*unknown, return_exceptions=True)


@pytest.mark.parametrize("replaced", [False, True])
async def test_workers_are_asked_in_the_clients_name(
    start_gateway: StartGateway, scripted: Scripted, replaced: bool
) -> None:
    """They are shown what they are shown of any request of that client."""
    makers = [Maker("a"), Maker("b")]
    urls = [await scripted(maker.answer) for maker in makers]
    ours = {"worker_auth": "replace", "worker_api_key": "ours"} if replaced else {}
    gateway = await start_gateway(*urls, **ours)
    url = f"{gateway.url}/v1/responses/resp_unknown"
    async with gateway.client.get(url, headers=CLIENT) as answer:
        assert answer.status == 404
    shown = "Bearer ours" if replaced else "Bearer client"
    assert [show for maker in makers for show in maker.shown] == [shown] * 3


async def test_explain_asks_no_worker(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    """It sends nothing, least of all an operator's key."""
    makers = [Maker("a"), Maker("b")]
    gateway = await start_gateway(*[await scripted(maker.answer) for maker in makers])
    asked = {"model": "m", "input": "hello", "previous_response_id": "resp_a_0"}
    await gateway.post("/gateway/explain", asked)
    assert [maker.asked for maker in makers] == [[], []]


async def test_two_processes(scripted: Scripted, tmp_path: Path) -> None:
    """Whichever process a connection meets, the worker is found."""
    makers = [Maker("a"), Maker("b"), Maker("c")]
    urls = ",".join([await scripted(maker.answer) for maker in makers])
    async with AsyncExitStack() as stack:
        running = several(tmp_path / "log", "--workers", urls)
        gateway = await asyncio.to_thread(running.__enter__)
        stack.push(running.__exit__)
        fresh = aiohttp.TCPConnector(force_close=True)  # a connection a request
        client = await stack.enter_async_context(aiohttp.ClientSession(connector=fresh))
        url = gateway.url + "/v1/responses"

        async def ask(**fields: str) -> str:
            body = {"model": "m", "input": "hello", **fields}
            async with client.post(url, json=body) as answer:
                assert answer.status == 200
                return str(json.loads(await answer.text())["id"])

        responses = [await ask() for _ in range(18)]
        again = [await ask(previous_response_id=made) for made in responses]
        assert list(map(_maker_of, again)) == list(map(_maker_of, responses))
    assert set(map(_maker_of, responses)) == {"a", "b", "c"}
