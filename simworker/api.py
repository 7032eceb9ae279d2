"""The HTTP side of a simulated worker: what is the same whatever the engine.

An engine's routes are all it serves, but for `/sim/stats`, which none has.
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
from simworker.cache import BlockCache
from simworker.engine import Job
from simworker.errors import Envelope, answer_errors, json_answer
from simworker.exchange import Exchange, Service
from simworker.hashing import Identity
from simworker.options import SimOptions
from simworker.planning import Planner, Task
from simworker.publisher import Publisher
from simworker.request import Body, Call, read_body
from simworker.runner import Runner
from simworker.totals import Totals

MAX_BODY = 256 << 20

Route = Callable[[web.Request], Awaitable[web.StreamResponse]]
_T = TypeVar("_T")


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What the routes work with; `started` is in Unix seconds.

    `model` is the name of the served model.
    """

    options: SimOptions
    model: str
    renderer: Renderer
    planner: Planner
    runner: Runner
    cache: BlockCache
    publisher: Publisher | None
    service: Service
    executor: Executor
    max_model_len: int
    started: float


class Api(ABC):
    """The handlers of one engine. `totals` is for tests, and for `/sim/stats`."""

    envelope: Envelope

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.totals = Totals()

    def application(self) -> web.Application:
        """The aiohttp application with all routes."""
        answered = answer_errors(type(self).envelope)
        app = web.Application(client_max_size=MAX_BODY, middlewares=[answered])
        for path, handler in self._posts().items():
            app.router.add_post(path, handler)
        for path, handler in {**self._gets(), "/sim/stats": self.stats}.items():
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
        answer = await running.answer(request)
        self.totals.add(tasks)
        return answer

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(
            self._parts.executor, work
        )

    async def _one_token(self) -> None:
        """A real generation, as some health checks ask for."""
        job = Job([0], [0])
        async with self._parts.runner.generate([job], every_token=False) as run:
            await run.changed()

    async def health(self, request: web.Request) -> web.Response:
        """An empty 200"""
        return web.Response()

    async def stats(self, request: web.Request) -> web.Response:
        """GET /sim/stats: what tests want to know; no engine has this route"""
        parts, totals = self._parts, self.totals
        publisher = parts.publisher
        return json_answer(
            {
                "requests": totals.requests,
                "refused": totals.refused,
                "skipped_rendering": totals.skipped_rendering,
                "finished": sum(totals.finished.values()),
                "aborted": parts.runner.aborted,
                "running": parts.runner.engine.running,
                "waiting": parts.runner.engine.waiting,
                "queried_tokens": parts.runner.engine.queried_tokens,
                "hit_tokens": parts.runner.engine.hit_tokens,
                "held_blocks": parts.cache.held,
                "event_batches": publisher.next_sequence if publisher else 0,
            }
        )


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    """Tell a client behind a gateway which worker answered, under what address."""
    response.headers["Server"] = "uvicorn"
    response.headers["X-Sim-Worker"] = f"http://{request.host}"
