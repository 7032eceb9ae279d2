"""The header that tells where a request went."""

from aiohttp import web

from gateway.request.decision_header import HEADER
from tests.gateway.answering import Scripted
from tests.running import StartGateway

NAME = HEADER.decode()
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello " * 200}]}


async def _answer(request: web.Request) -> web.StreamResponse:
    """A worker that has such a header of its own."""
    if request.path == "/v1/models":
        return web.json_response({"object": "list", "data": [{"id": "m"}]})
    headers = {NAME.lower(): "mine", "X-Other": "stays"}
    return web.json_response({"choices": []}, headers=headers)


async def test_it_is_told_if_the_operator_wants_it(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    """Worker, rank, held and uncached tokens, in place of what the worker says."""
    url = await scripted(_answer)
    gateway = await start_gateway(url, decision_header=True)
    told = []
    for _ in range(2):
        asked = gateway.client.post(gateway.url + "/v1/chat/completions", json=CHAT)
        async with asked as answer:
            assert answer.headers["X-Other"] == "stays"
            told.append(answer.headers.getall(NAME))
    assert told == [
        [f'worker="{url}", rank=0, held=0, uncached=209'],
        [f'worker="{url}", rank=0, held=208, uncached=1'],
    ]


async def test_it_is_off_by_default(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    """Clients need not know of workers; what a worker says passes."""
    gateway = await start_gateway(await scripted(_answer))
    asked = gateway.client.post(gateway.url + "/v1/chat/completions", json=CHAT)
    async with asked as answer:
        assert answer.headers.getall(NAME) == ["mine"]
