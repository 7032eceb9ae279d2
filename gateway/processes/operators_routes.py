"""What the parent of several processes answers operators, on the port of their own.

Reads ask every process and name it; a change of the workers goes to every process
before it is answered; an explanation is one process's.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from gateway import answers
from gateway.access.operators import Operators
from gateway.admin.page.routes import PageRoutes
from gateway.errors import BadRequest, NotFound, Overloaded
from gateway.guard import Guard
from gateway.metrics.registry import CONTENT_TYPE, ServerMetrics
from gateway.processes import merging
from gateway.processes.changes import Changes
from gateway.processes.changing import Changing
from gateway.processes.process import Process, Reply
from gateway.processes.process_metrics import process_metrics
from gateway.request import body as bodies
from gateway.settings.config import Config

log = logging.getLogger(__name__)

PARENT = "parent"
"""What the label `process` is of what the parent itself counts."""
LOST = (aiohttp.ClientError, TimeoutError, OSError)
"""What asking a process that ends just then raises."""


def application(
    config: Config, processes: Sequence[Process], changes: Changes
) -> web.Application:
    """All of its routes."""
    app = web.Application(client_max_size=0)
    metrics = ServerMetrics()
    metrics.watch(process_metrics(processes))
    guard = Guard(app, metrics)
    operators = Operators(config.admin_key, config.metrics_key)
    pages = OperatorsRoutes(config, processes, operators, metrics)
    pages.add_to(guard)
    Changing(processes, changes, check=operators.check_admin, get=pages.workers).add_to(
        guard
    )
    PageRoutes(pages.of_late, check=operators.check_admin).add_to(guard)
    guard.or_else(_nothing, "other")
    return app


class OperatorsRoutes:
    """The handlers of what is read."""

    def __init__(
        self,
        config: Config,
        processes: Sequence[Process],
        operators: Operators,
        metrics: ServerMetrics,
    ) -> None:
        self._config = config
        self._processes = processes
        self._operators = operators
        self._metrics = metrics

    def add_to(self, guard: Guard) -> None:
        """Add the routes, but for those of `Changing` and of the live page."""
        guard.add("GET", "/health", self._health, "health")
        guard.add("GET", "/ready", self._ready, "ready")
        guard.add("GET", "/metrics", self._exposition, "metrics")
        guard.add("GET", "/gateway/index", self._index, "index")
        guard.add("POST", "/gateway/explain", self._explain, "explain")

    async def workers(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        """Every worker as each process sees it, and the processes."""
        page = merging.workers(await self._pages("/gateway/workers"))
        page["processes"] = [process.page() for process in self._processes]
        return answers.json(page, identity)

    async def of_late(self) -> dict[str, Any]:
        """What the live page shows."""
        return merging.recent(await self._pages("/gateway/recent"))

    async def _index(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        self._operators.check_admin(request)
        return answers.json(
            merging.index(await self._pages("/gateway/index")), identity
        )

    async def _explain(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        """By the process that is named (`?process=N`), or any."""
        self._operators.check_admin(request)
        body = await bodies.read(request, self._config.max_body)
        process = self._chosen(request.query.get("process"))
        try:
            reply = await process.ask("POST", "/gateway/explain", body)
        except LOST as error:
            raise _lost(process, error) from None
        if reply.status != 200:
            return answers.own(reply.body, identity, status=reply.status)
        page = {"process": process.number, **msgspec.json.decode(reply.body)}
        return answers.json(page, identity)

    def _chosen(self, number: str | None) -> Process:
        for process in self._processes:
            if process.answers and number in (None, str(process.number)):
                return process
        if number is not None:
            raise BadRequest("there is no such process now", param="process")
        raise Overloaded("no process is ready")

    async def _exposition(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        self._operators.check_metrics(request)
        replies = await self._ask_all("/metrics")
        pages = [(str(process.number), reply.body) for process, reply in replies]
        pages.append((PARENT, await self._metrics.exposition()))
        return answers.own(merging.metrics(pages), identity, CONTENT_TYPE)

    async def _health(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        return answers.json({"status": "ok"}, identity)

    async def _ready(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        """Whether one of them is ready: the others get no connections."""
        replies = [reply for _, reply in await self._ask_all("/ready", any_status=True)]
        for reply in replies:
            if reply.status == 200:
                return answers.own(reply.body, identity)
        if replies:
            return answers.own(replies[0].body, identity, status=replies[0].status)
        return answers.json({"status": "no process is ready"}, identity, status=503)

    async def _pages(self, target: str) -> list[tuple[int, dict[str, Any]]]:
        replies = await self._ask_all(target)
        if not replies:
            raise Overloaded("no process is ready")
        return [(p.number, msgspec.json.decode(reply.body)) for p, reply in replies]

    async def _ask_all(
        self, target: str, *, any_status: bool = False
    ) -> list[tuple[Process, Reply]]:
        """What the processes answer that are there; of those that fail, nothing."""
        asked = [process for process in self._processes if process.answers]
        replies = await asyncio.gather(
            *(process.ask("GET", target) for process in asked), return_exceptions=True
        )
        told = []
        for process, reply in zip(asked, replies, strict=True):
            if isinstance(reply, Reply):
                if any_status or reply.status == 200:
                    told.append((process, reply))
            elif isinstance(reply, LOST):
                log.debug("process %d: %s: %r", process.number, target, reply)
            else:
                raise reply
        return told


def _lost(process: Process, error: BaseException) -> Overloaded:
    why = type(error).__name__
    return Overloaded(f"process {process.number} did not answer: {why}")


async def _nothing(request: web.Request, identity: bytes) -> web.StreamResponse:
    raise NotFound("there is no such route here")
