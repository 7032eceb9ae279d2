"""Reports from the field about load that nobody counted, and what they say of us."""

import asyncio

from aiohttp import web

from tests.gateway.answering import Answer, Scripted
from tests.running import StartGateway

ASKED = 30


def _slow(counts: list[int], number: int) -> Answer:
    """A worker that takes its time, and counts."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"object": "list", "data": [{"id": "m"}]})
        counts[number] += 1
        await asyncio.sleep(0.5)
        return web.json_response({})

    return answer


async def test_load_on_passed_through_routes_counts(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    """vllm-project/router#179: one engine got all of `/inference/v1/generate`."""
    counts = [0, 0, 0]
    urls = [await scripted(_slow(counts, number)) for number in range(3)]
    gateway = await start_gateway(*urls)

    async def ask(number: int) -> int:
        path = gateway.url + "/inference/v1/generate"
        ids = list(range(number, 2_000 + number))
        body = {"model": "m", "token_ids": ids, "sampling_params": {}}
        async with gateway.client.post(path, json=body) as answer:
            return answer.status

    assert set(await asyncio.gather(*map(ask, range(ASKED)))) == {200}
    assert sum(counts) == ASKED
    assert min(counts) >= ASKED // 6
