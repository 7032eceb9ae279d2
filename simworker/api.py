"""The HTTP side of a simulated worker: what is the same whatever the engine.

An engine's routes are all it serves, but for those under `/sim`, which none has.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import TypeVar

import msgspec
from aiohttp import web

from render import Renderer
from render.refused import RenderRefused
from simworker.control import Control
from simworker.drain import EventBuffer
from simworker.errors import Envelope, answer_errors, json_answer
from simworker.exchange import Exchange, Service
from simworker.hashing import Identity
from simworker.job import Job
from simworker.options import SimOptions
from simworker.planning import Planner, Task
from simworker.rank import Ranks
from simworker.request import Body, Call, read_body
from simworker.totals import Totals

MAX_BODY = 256 << 20

Route = Callable[[web.Request], Awaitable[web.StreamResponse]]
_T = TypeVar("_T")


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What the routes work with; `model` is the name of the served model.

    `buffer` has the events that wait to be drained, of engines that have no sockets.
    """

    options: SimOptions
    model: str
    renderer: Renderer
    planner: Planner
    ranks: Ranks
    buffer: EventBuffer | None
    service: Service
    executor: Executor
    max_model_len: int


class Api(ABC):
    """The handlers of one engine. `totals` is for tests, and for `/sim/stats`."""

    envelope: Envelope

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.totals = Totals()
        self._open: dict[str, Exchange] = {}

    def application(self) -> web.Application:
        """The aiohttp application with all routes."""
        answered = answer_errors(type(self).envelope)
        app = web.Application(client_max_size=MAX_BODY, middlewares=[answered])
        control = Control(self._parts.ranks)
        for path, handler in {**self._posts(), **control.posts()}.items():
            app.router.add_post(path, handler)
        gets = {**self._gets(), **control.gets(), "/sim/stats": self.stats}
        for path, handler in gets.items():
            app.router.add_get(path, handler, allow_head=False)
        app.on_response_prepare.append(_sign)
        return app

    @abstractmethod
    def _posts(self) -> Mapping[str, Route]:
        """The engine's POST routes."""

    @abstractmethod
    def _gets(self) -> Mapping[str, Route]:
        """The engine's GET routes."""

    @abstractmethod
    def _resolve(self, call: Call, headers: Mapping[str, str]) -> tuple[str, Identity]:
        """The model as answers name it, and the namespace. Raises ApiError."""

    async def _generate(
        self,
        request: web.Request,
        parse: Callable[[Body, Mapping[str, str], int], Call],
        plan: Callable[[Call], list[Task]],
        exchange: type[Exchange],
    ) -> web.StreamResponse:
        parts = self._parts
        self.totals.requests += 1
        try:
            body = await read_body(request)
            call = parse(body, request.headers, parts.max_model_len)
            model, identity = self._resolve(call, request.headers)
            tasks = await self._in_thread(lambda: plan(call))
        except RenderRefused:
            self.totals.refused += 1
            raise
        self.totals.skipped_rendering += call.prompt_ids is not None
        running = exchange(parts.service, call, tasks, model=model, identity=identity)
        self._open[running.id] = running
        try:
            answer = await running.answer(request)
        finally:
            self._open.pop(running.id, None)
        self.totals.add(tasks)
        return answer

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(
            self._parts.executor, work
        )

    async def _one_token(self) -> None:
        """A real generation, as some health checks ask for."""
        job = Job([0], [0])
        async with self._parts.ranks[0].runner.generate(
            [job], every_token=False
        ) as run:
            await run.changed()

    async def health(self, request: web.Request) -> web.Response:
        """An empty 200"""
        return web.Response()

    async def stats(self, request: web.Request) -> web.Response:
        """GET /sim/stats: what tests want to know; no engine has this route"""
        totals, ranks = self.totals, list(self._parts.ranks)
        engines = [rank.engine for rank in ranks]
        buffer = self._parts.buffer
        return json_answer(
            {
                "requests": totals.requests,
                "refused": totals.refused,
                "skipped_rendering": totals.skipped_rendering,
                "finished": sum(totals.finished.values()),
                "aborted": sum(rank.runner.aborted for rank in ranks),
                "running": sum(engine.running for engine in engines),
                "waiting": sum(engine.waiting for engine in engines),
                "queried_tokens": sum(engine.queried_tokens for engine in engines),
                "hit_tokens": sum(engine.hit_tokens for engine in engines),
                "held_blocks": sum(rank.cache.held for rank in ranks),
                "event_batches": sum(
                    rank.stream.next_sequence for rank in ranks if rank.stream
                ),
                "event_drains": buffer.drains if buffer else 0,
                "events_lost": buffer.lost if buffer else 0,
            }
        )


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    """Tell a client behind a gateway which worker answered, under what address."""
    response.headers["Server"] = "uvicorn"
    response.headers["X-Sim-Worker"] = f"http://{request.host}"
