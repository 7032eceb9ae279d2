"""Routes that the gateway answers of itself: is it ready, what it serves and counts.

`/gateway/explain` is in `handlers.py`; the live page and the changing of workers have
routes of their own.
"""

from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from gateway import answers
from gateway.access.door import Guards
from gateway.access.operators import Operators
from gateway.admin.pages import Admin
from gateway.guard import Guard
from gateway.metrics.registry import CONTENT_TYPE, Metrics


class OwnRoutes:
    """A handler for each of these routes."""

    def __init__(
        self,
        *,
        operators: Operators,
        pages: Admin,
        metrics: Metrics,
        server_info: Callable[[], Mapping[str, Any]],
        leaving: Callable[[], bool],
    ) -> None:
        self._operators = operators
        self._pages = pages
        self._metrics = metrics
        self._server_info = server_info
        self._leaving = leaving

    def add_to(self, guards: Guards) -> None:
        """Add those of clients."""
        self.add_probes_to(guards.anyone)
        guards.clients.add("GET", "/v1/models", self._models, "models")
        named = r"/v1/models/{name:[\s\S]+}"
        guards.clients.add("GET", named, self._model, "models", alone=False)
        guards.clients.add("GET", "/server_info", self._info, "server_info")

    def add_probes_to(self, guard: Guard) -> None:
        """Add what says that it lives, and whether it should be sent requests."""
        guard.add("GET", "/health", self._health, "health")
        guard.add("GET", "/ready", self._ready, "ready")

    def add_operators_routes_to(self, guard: Guard) -> None:
        """Add those of operators."""
        guard.add("GET", "/metrics", self._exposition, "metrics")
        guard.add("GET", "/gateway/index", self._index, "index")

    async def _models(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        return answers.json(self._pages.models(), identity)

    async def _model(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        """One of them; not all engines have the route, nor all workers the model."""
        name = request.match_info["name"]
        return answers.one_model(self._pages.models(), name, identity)

    async def _info(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        return answers.json(self._server_info(), identity)

    async def _health(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        return answers.json({"status": "ok"}, identity)

    async def _ready(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        problem = self._unready()
        if problem is None:
            return answers.json({"status": "ready"}, identity)
        return answers.json({"status": problem}, identity, status=503)

    def _unready(self) -> str | None:
        """Why nothing more should be sent here, if so."""
        if self._leaving():
            return "leaving"
        return None if self._pages.ready() else "no worker has answered yet"

    async def _exposition(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        self._operators.check_metrics(request)
        return answers.own(await self._metrics.exposition(), identity, CONTENT_TYPE)

    async def _index(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        self._operators.check_admin(request)
        return answers.json(self._pages.index(), identity)
