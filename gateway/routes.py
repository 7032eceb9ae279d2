"""The routes of one gateway: those of clients, and those of operators.

Both are on one port, or operators have their own. What a handler does is elsewhere.
"""

from typing import TYPE_CHECKING, Any

from aiohttp import web

from gateway.access.cross_origin import tell
from gateway.admin.own_routes import OwnRoutes
from gateway.admin.page.routes import PageRoutes
from gateway.endpoints.render_endpoints import RenderEndpoints
from gateway.endpoints.server_info import of_gateway
from gateway.errors import NotFound
from gateway.guard import Guard
from gateway.handlers import Handlers
from gateway.request.describe import Describer
from gateway.request.proxy import Proxy
from gateway.request.response_makers import ResponseMakers
from gateway.tokens.direct import DirectCalls
from gateway.tokens.front import TokensFront
from gateway.tokens.sending import TokensSender
from gateway.upstreams.upstream import Upstreams
from gateway.workers.worker_routes import WorkerRoutes

if TYPE_CHECKING:
    from gateway.app import Gateway


def application() -> web.Application:
    """An empty one. Bodies have their own limit (request/body.py), not aiohttp's."""
    return web.Application(client_max_size=0)


def add_routes(
    gateway: "Gateway",
    upstreams: Upstreams,
    *,
    clients: web.Application,
    operators: web.Application,
    stall_s: float,
) -> None:
    """Add every route to the application that it belongs to; they may be one."""
    own, handlers = _own_routes(gateway), _handlers(gateway, upstreams, stall_s)
    _add_render_routes(gateway, clients)
    guard = gateway.access.guards(operators).anyone
    _add_operators_routes(gateway, guard)
    own.add_operators_routes_to(guard)
    handlers.add_operators_routes_to(guard)
    if operators is not clients:
        own.add_probes_to(guard)
        guard.or_else(_nothing, "other")
    if gateway.access.cross_origin.on:
        clients.on_response_prepare.append(tell)
    guards = gateway.access.guards(clients)
    own.add_to(guards)
    handlers.add_to(guards)  # the last: its own last route takes what is no other's


def _handlers(gateway: "Gateway", upstreams: Upstreams, stall_s: float) -> Handlers:
    config = gateway.config
    describer = _describer(gateway)
    proxy = Proxy(
        router=gateway.router,
        upstreams=upstreams,
        accounts=gateway.accounts,
        metrics=gateway.metrics,
        client_rank=config.client_rank,
        tokens=TokensSender(
            upstreams, gateway.endpoint_threads, gateway.aborts, gateway.metrics
        ),
        credentials=gateway.access.credentials,
        tells_decision=config.decision_header,
        stall_s=stall_s,
    )
    return Handlers(
        config=config,
        access=gateway.access,
        describer=describer,
        direct=DirectCalls(gateway.pool, describer, gateway.render_pool),
        tokens=TokensFront(
            config,
            pool=gateway.pool,
            renderers=gateway.renderers,
            max_model_len=gateway.monitor.max_model_len,
            describer=describer,
            threads=gateway.endpoint_threads,
        ),
        proxy=proxy,
        explain_page=gateway.explain_page,
        metrics=gateway.metrics,
        makers=ResponseMakers(
            gateway.accounts.responses,
            gateway.pool,
            upstreams,
            credentials=gateway.access.credentials,
        ),
        admission=gateway.admission,
        room=gateway.room,
    )


def _own_routes(gateway: "Gateway") -> OwnRoutes:
    return OwnRoutes(
        operators=gateway.access.operators,
        pages=gateway.admin,
        metrics=gateway.metrics,
        server_info=lambda: of_gateway(gateway.render_services, gateway.fingerprints),
        leaving=lambda: gateway.leaving,
    )


def _describer(gateway: "Gateway") -> Describer:
    return Describer(
        pool=gateway.pool,
        renderers=gateway.renderers,
        render_pool=gateway.render_pool,
        metrics=gateway.metrics,
        render=gateway.config.render != "never",
        forwarding=gateway.forwarding,
    )


def _add_render_routes(gateway: "Gateway", clients: web.Application) -> None:
    config = gateway.config
    if config.render_endpoints and config.render != "never":
        endpoints = RenderEndpoints.of_gateway(
            config, gateway.render_services, gateway.endpoint_threads, gateway.metrics
        )
        flat = config.render_dialect == "trtllm"
        endpoints.add_render_routes(gateway.access.guards(clients, flat=flat).limited)


def _add_operators_routes(gateway: "Gateway", guard: Guard) -> None:
    check = gateway.access.operators.check_admin
    page = lambda: gateway.admin.workers()  # noqa: E731 - asked for each time
    WorkerRoutes(gateway.fleet, gateway.pool, check=check, page=page).add_to(guard)

    async def of_late() -> dict[str, Any]:
        return {
            **gateway.accounts.recent.page(),
            "decisions": gateway.accounts.decisions.page(),
        }

    PageRoutes(of_late, check=check).add_to(guard)


async def _nothing(request: web.Request, identity: bytes) -> web.StreamResponse:
    raise NotFound("there is no such route here")
