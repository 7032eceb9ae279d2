"""Health checks of a worker at a long prefill: it is not dead, and which one is."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from gateway.workers import health
from router.worker import Worker, WorkerState
from simworker.api import Route
from simworker.sglang.api import SglangApi
from tests.gateway.scripted import CHAT, state
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer
from tests.running import SIM, Running, StartGateway, StartWorker, until

QUICK = {
    "health_interval": 0.05,
    "health_timeout": 0.2,
    "health_fall": 3,
    "forward_when": "never",
}
"""And nothing is proven by chats of the gateway's own."""
SGLANG = json_answer(b'{"data": [{"id": "m", "owned_by": "sglang"}]}')
MISSING = json_answer(b"{}", status=b"404 Not Found")
FINE = json_answer(b"{}")
LONG = {"prefill_rate": 10.0}
"""A prompt of a few dozen tokens takes seconds."""
SHORT = {"prefill_rate": 1e6}
SOME = {**CHAT, "messages": [{"role": "user", "content": "some words " * 100}]}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed workers are checked again soon."""
    monkeypatch.setattr(health, "SOON_S", 0.05)


class AtPrefill:
    """An SGLang worker of before `/ready`: `/health` is silent until a prefill ends."""

    def __init__(self, in_prefill: bytes | None = None) -> None:
        self.checks = 0
        """Asked during a prefill; answered so, if at all."""
        self.prefilling = False
        self.end = asyncio.Event()
        self._in_prefill = in_prefill

    async def __call__(self, connection: WorkerConnection) -> None:
        while request := await connection.request():
            if request.startswith(b"POST /v1/chat"):
                self.prefilling = True
                await self.end.wait()
                self.prefilling = False
                await connection.send(FINE)
            elif request.startswith(b"GET /health"):
                await self._health(connection)
            else:
                listed = request.startswith(b"GET /v1/models")
                await connection.send(SGLANG if listed else MISSING)

    async def _health(self, connection: WorkerConnection) -> None:
        self.checks += self.prefilling
        if self.prefilling and self._in_prefill is None:
            await connection.closed_by_peer()
        else:
            answer = self._in_prefill if self.prefilling else None
            await connection.send(answer or FINE)


async def during(
    gateway: Running,
    what: Callable[[], Awaitable[None]],
    end: asyncio.Event,
    **body: Any,
) -> None:
    """Do it while a request is prefilled."""

    async def post() -> int:
        url = gateway.url + "/v1/chat/completions"
        async with gateway.client.post(url, json=SOME | body) as response:
            await response.read()
            return response.status

    asked = asyncio.create_task(post())
    try:
        await what()
    finally:
        end.set()
    assert await asked == 200


def only(gateway: Running) -> Worker:
    """Its only worker."""
    (worker,) = gateway.gateway.pool.workers
    return worker


@pytest.mark.parametrize("stream", [True, False])
async def test_checks_that_get_no_answer_in_a_long_prefill(
    start_gateway: StartGateway, *, stream: bool
) -> None:
    """Nothing at all comes from it, for as long as that may well be so."""
    script = AtPrefill()
    async with RawWorker(script) as worker:
        gateway = await start_gateway(worker.url, **QUICK, **LONG)
        await until(lambda: only(gateway).checks > 0)

        async def many_checks() -> None:
            await until(lambda: script.checks >= 6)
            assert state(gateway, worker) is WorkerState.ready

        await during(gateway, many_checks, script.end, stream=stream)
        assert (only(gateway).failures, only(gateway).returns) == (0, 0)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("rate", "answer"),
    [(SHORT, None), (LONG, json_answer(b"", status=b"503 Dead"))],
    ids=["overdue", "bad"],
)
async def test_what_a_long_prefill_does_not_explain(
    start_gateway: StartGateway,
    *,
    stream: bool,
    rate: dict[str, float],
    answer: bytes | None,
) -> None:
    """Silence where the prefill should be over; an answer that it is not well."""
    script = AtPrefill(answer)
    async with RawWorker(script) as worker:
        gateway = await start_gateway(worker.url, **QUICK, **rate)
        await until(lambda: only(gateway).checks > 0)

        async def suspected() -> None:
            await until(lambda: state(gateway, worker) is WorkerState.suspect)
            assert only(gateway).reason.startswith("health checks fail: ")

        await during(gateway, suspected, script.end, stream=stream)


class Hung(AtPrefill):
    """Silent for good from the first long prompt on; a short one is never answered."""

    async def __call__(self, connection: WorkerConnection) -> None:
        while request := await connection.request():
            if request.startswith(b"POST /v1/chat"):
                self.prefilling |= b"some words" in request
                await self.end.wait()
                await connection.send(FINE)
            elif request.startswith(b"GET /health"):
                await self._health(connection)
            else:
                listed = request.startswith(b"GET /v1/models")
                await connection.send(SGLANG if listed else MISSING)


@pytest.mark.parametrize("stream", [True, False])
async def test_requests_that_keep_coming_do_not_hide_that_it_hangs(
    start_gateway: StartGateway, *, stream: bool
) -> None:
    """Each would take a tenth of a second, and there are ever more of them."""
    script = Hung()
    async with RawWorker(script) as worker, asyncio.TaskGroup() as clients:
        gateway = await start_gateway(worker.url, **QUICK, prefill_rate=3000.0)
        await until(lambda: only(gateway).checks > 0)

        async def post() -> None:
            url = gateway.url + "/v1/chat/completions"
            body = SOME | {"stream": stream}
            async with gateway.client.post(url, json=body) as response:
                await response.read()

        async def come() -> None:
            while not script.end.is_set():
                clients.create_task(post())
                await asyncio.sleep(0.05)

        coming = clients.create_task(come())
        try:
            await until(lambda: state(gateway, worker) is WorkerState.suspect)
            assert only(gateway).reason.startswith("health checks fail: ")
        finally:
            script.end.set()
            await coming


async def test_a_long_prefill_behind_a_request_that_is_silent(
    start_gateway: StartGateway,
) -> None:
    """Its checks pass until that prefill begins: it counts from then."""
    script = Hung()
    async with RawWorker(script) as worker:
        gateway = await start_gateway(worker.url, **QUICK, prefill_rate=200.0)
        await until(lambda: only(gateway).checks > 0)

        async def then_a_long_one() -> None:
            enough = only(gateway).checks + 100  # longer than all may take
            await until(lambda: only(gateway).checks >= enough, 30.0)
            await during(gateway, many_checks, script.end)

        async def many_checks() -> None:
            await until(lambda: script.checks >= 5)
            assert state(gateway, worker) is WorkerState.ready

        await during(gateway, then_a_long_one, script.end, messages=CHAT["messages"])
        assert (only(gateway).failures, only(gateway).returns) == (0, 0)


def routes_asked(monkeypatch: pytest.MonkeyPatch, *, older: bool) -> set[str]:
    """The health routes that simulated SGLang workers are asked for from now on.

    `older` ones have no `/ready`.
    """
    asked: set[str] = set()
    gets = SglangApi._gets

    def noting(path: str, handler: Route) -> Route:
        async def handle(request: Any) -> Any:
            asked.add(path)
            return await handler(request)

        return handle

    def those(api: SglangApi) -> dict[str, Route]:
        known = dict(gets(api))
        if older:
            del known["/ready"]
        named = ("/ready", "/health")
        return known | {
            path: noting(path, known[path]) for path in known if path in named
        }

    monkeypatch.setattr(SglangApi, "_gets", those)
    return asked


@pytest.mark.parametrize("older", [False, True])
async def test_an_sglang_worker_at_a_long_prefill(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
    *,
    older: bool,
) -> None:
    """It has a route that is cheap; before, its health is a generation in the queue."""
    asked = routes_asked(monkeypatch, older=older)
    worker = await start_worker(
        msgspec.structs.replace(SIM, engine="sglang", speed=10.0, prefill_rate=100.0)
    )
    limits = {"health_interval": 0.1, "health_timeout": 0.5}
    gateway = await start_gateway(worker, prefill_rate=1000.0, **limits)
    await until(lambda: only(gateway).checks > 0)
    answer = await gateway.chat([{"role": "user", "content": "some words " * 1500}])
    assert answer.worker == worker.url
    known = only(gateway)
    assert (known.state, known.failures, known.returns) == (WorkerState.ready, 0, 0)
    assert asked == ({"/health"} if older else {"/ready"})
