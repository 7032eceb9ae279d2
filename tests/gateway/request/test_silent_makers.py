"""Stored responses whose makers do not say that they have them."""

import asyncio

import pytest
from aiohttp import web

from gateway.request import response_makers
from tests.gateway.answering import Scripted
from tests.gateway.makers import Maker
from tests.running import Running, StartGateway

MADE = "resp_a_0"
NEVER_S = 60.0


class Silent(Maker):
    """A maker that answers requests, but not whether it has a response."""

    def __init__(self, name: str, how: int | None) -> None:
        """`how` is the status it says instead; None: it says nothing at all."""
        super().__init__(name)
        self.how = how
        self.questions = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """As a maker, but for questions."""
        if request.method == "GET" and request.path.startswith("/v1/responses/"):
            self.questions += 1
            if self.how is None:
                await asyncio.sleep(NEVER_S)
            return web.json_response({}, status=self.how or 404)
        return await super().answer(request)


async def turn(
    gateway: Running, path: str = "/v1/responses", previous: str = MADE
) -> tuple[int, str]:
    """The status of a further turn, and who answered."""
    body = {"model": "m", "input": "hi", "previous_response_id": previous}
    async with gateway.client.post(gateway.url + path, json=body) as answer:
        told = await answer.json()
        return answer.status, told.get("by", "")


@pytest.mark.parametrize("how", [None, 503, 500, 401, 403, 429])
async def test_the_only_one_left_has_it(
    start_gateway: StartGateway,
    scripted: Scripted,
    monkeypatch: pytest.MonkeyPatch,
    how: int | None,
) -> None:
    """All others say 404. Once it has answered, nobody is asked again."""
    monkeypatch.setattr(response_makers, "ASK_S", 0.5)
    silent, others = Silent("a", how), [Maker("b"), Maker("c")]
    silent.made.add(MADE)
    urls = [await scripted(one.answer) for one in (*others, silent)]
    gateway = await start_gateway(*urls, policy="round_robin")
    for _ in range(4):
        assert await turn(gateway) == (200, "a")
    assert silent.questions == 1
    assert [len(other.asked) for other in others] == [1, 1]


async def test_a_busy_makers_answer_is_the_clients(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    """What is the maker's alone is not said by another: that would be a 404."""
    maker, other = Maker("a"), Maker("b")
    maker.made.add(MADE)
    maker.refusal = 503
    urls = [await scripted(one.answer) for one in (other, maker)]
    gateway = await start_gateway(*urls, policy="round_robin")
    for _ in range(3):
        assert (await turn(gateway))[0] == 503
    maker.refusal = None
    assert await turn(gateway) == (200, "a")


async def test_a_worker_that_is_down_may_have_it(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    """That it cannot be reached is what the client is told; not that there is none."""
    other = Maker("b")
    urls = [await scripted(other.answer), "http://127.0.0.1:9"]
    gateway = await start_gateway(*urls, policy="round_robin")
    for _ in range(3):
        await gateway.get(f"/v1/responses/{MADE}", status=502)


@pytest.mark.parametrize("refusal", [None, 503])
async def test_several_are_left(
    start_gateway: StartGateway, scripted: Scripted, refusal: int | None
) -> None:
    """The request goes on until one has it, or until none is left."""
    silent = [Silent(name, 500) for name in "abcd"]
    silent[0].made.add(MADE)
    silent[1].refusal = refusal
    urls = [await scripted(one.answer) for one in (*silent[1:], silent[0])]
    gateway = await start_gateway(*urls, policy="round_robin")
    for _ in range(4):
        assert await turn(gateway) == (200, "a")
    assert [one.questions for one in silent] == [1, 1, 1, 1]
    silent[0].refusal = 503
    silent[0].made.add("resp_late")
    assert (await turn(gateway, previous="resp_late"))[0] == 503


@pytest.mark.parametrize(("workers", "status"), [(8, 404), (9, 502)])
async def test_more_are_left_than_are_asked(
    start_gateway: StartGateway, scripted: Scripted, workers: int, status: int
) -> None:
    """That eight have it not does not say that the others have not."""
    silent = [Silent(str(number), 500) for number in range(workers)]
    urls = [await scripted(one.answer) for one in silent]
    gateway = await start_gateway(*urls, policy="round_robin")
    assert (await turn(gateway))[0] == status
    assert await gateway.metric("inflight_requests") == 0
    assert all(worker.inflight_requests == 0 for worker in gateway.gateway.pool.workers)


async def test_nobody_has_it(start_gateway: StartGateway, scripted: Scripted) -> None:
    """Then any says so, and only one."""
    makers = [Maker("a"), Maker("b")]
    urls = [await scripted(maker.answer) for maker in makers]
    gateway = await start_gateway(*urls, policy="round_robin")
    assert (await turn(gateway))[0] == 404
    assert sum(len(maker.asked) for maker in makers) == 3


@pytest.mark.parametrize("path", ["compact", "input_tokens", "compact?x=1"])
async def test_a_route_below_is_no_id(
    start_gateway: StartGateway, scripted: Scripted, path: str
) -> None:
    """What the body goes on with says where it has to go."""
    makers = [Maker(name) for name in "abc"]
    makers[0].made.add(MADE)
    urls = [await scripted(maker.answer) for maker in makers]
    gateway = await start_gateway(*urls, policy="round_robin")
    for _ in range(3):
        await turn(gateway, f"/v1/responses/{path}")
    posts = [sum(asked.startswith("POST") for asked in maker.asked) for maker in makers]
    assert posts == [3, 0, 0]
