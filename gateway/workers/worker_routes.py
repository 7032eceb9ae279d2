"""`/gateway/workers`: look at the workers, add one, drain it, take it out.

POST takes an entry of the workers file; PATCH `{"url", "state": "draining"|"ready"}`;
DELETE the URL, in the body or as `?url=`. Behind the guard of all of `/gateway`.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from gateway import answers
from gateway.errors import BadRequest, Conflict, NotFound
from gateway.guard import Guard, Handler
from gateway.request import body as bodies
from gateway.settings.values import worker_url
from gateway.workers.fleet import Fleet
from gateway.workers.workers_file import spec_of
from router.pool import WorkerPool
from router.worker import Worker

PATH = "/gateway/workers"
MOST_BYTES = 64 * 1024
STATES = ("draining", "ready")


class WorkerRoutes:
    """The handlers of one path."""

    def __init__(
        self,
        fleet: Fleet,
        pool: WorkerPool,
        *,
        check: Callable[[web.Request], None],
        page: Callable[[], Awaitable[dict[str, Any]]],
    ) -> None:
        """`check` raises where a request may not pass; `page` has all workers."""
        self._fleet = fleet
        self._pool = pool
        self._check = check
        self._page = page

    def add_to(self, guard: Guard) -> None:
        """Add the routes."""
        handlers: dict[str, Handler] = {
            "GET": self._get,
            "POST": self._post,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }
        guard.add_methods(PATH, handlers, "workers")

    async def _get(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        self._check(request)
        return answers.json(await self._page(), identity)

    async def _post(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        self._check(request)
        try:
            spec = spec_of(await _json(request))
        except ValueError as error:
            raise BadRequest(str(error)) from None
        if spec.api_key_file is not None:  # it would be sent to wherever url is
            raise BadRequest("api_key_file has its place in the workers file")
        if self._pool.get(spec.url) is not None:
            raise Conflict(f"worker {spec.url} is there already")
        worker = self._fleet.add(spec)
        return answers.json(await self._shown(worker), identity, status=201)

    async def _patch(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        self._check(request)
        told = await _json(request)
        worker = self._worker(request, told)
        state = told.get("state") if isinstance(told, dict) else None
        if state not in STATES:
            raise BadRequest(f"state is none of {', '.join(STATES)}", param="state")
        if state == "draining":
            self._pool.drain(worker)
        else:
            self._pool.undrain(worker)
        return answers.json(await self._shown(worker), identity)

    async def _delete(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        self._check(request)
        told = await _json(request) if request.can_read_body else None
        worker = self._worker(request, told)
        inflight = worker.inflight_requests
        await self._fleet.remove(worker.url)
        gone = {"removed": worker.url, "inflight_requests": inflight}
        return answers.json(gone, identity)

    def _worker(self, request: web.Request, told: object) -> Worker:
        """The worker that is named in the query, or else in the body."""
        url = request.query.get("url")
        if url is None and isinstance(told, dict):
            url = told.get("url")
        if not isinstance(url, str):
            raise BadRequest("no worker is named: url is missing", param="url")
        try:
            worker = self._pool.get(worker_url(url))
        except ValueError as error:
            raise BadRequest(f"url {error}", param="url") from None
        if worker is None:
            raise NotFound("there is no worker at that url")
        return worker

    async def _shown(self, worker: Worker) -> object:
        every = (await self._page())["workers"]
        return next((one for one in every if one["url"] == worker.url), None)


async def _json(request: web.Request) -> object:
    body = await bodies.read(request, MOST_BYTES)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadRequest("the body is no JSON") from None
