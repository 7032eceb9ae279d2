"""One gateway: its parts put together, its background, its aiohttp application."""

import asyncio
import contextlib
import functools
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import aiohttp
from aiohttp import web

from gateway import server_info
from gateway.account import Accounts
from gateway.admin import Admin
from gateway.config import Config, worker_specs
from gateway.describe import Describer
from gateway.encoder_counters import encoder_counters
from gateway.exchange import Timeouts
from gateway.explain_page import ExplainPage
from gateway.fingerprints import Fingerprints
from gateway.gauges import Gauges
from gateway.guard import Guard
from gateway.handlers import Handlers
from gateway.housekeeping import Housekeeping
from gateway.ingest import Ingest
from gateway.metrics import Metrics
from gateway.models import Renderers
from gateway.monitor import Monitor
from gateway.prover import Prover
from gateway.proving import Proving
from gateway.proxy import Proxy
from gateway.relay import STALL_S
from gateway.remedies import for_cached_tokens
from gateway.render_endpoints import DEADLINE_S, RenderEndpoints
from gateway.render_services import RenderServices
from gateway.rendering import RenderPool
from gateway.threads import Threads
from gateway.upstream import Upstreams
from kvindex.index import Indexes
from router.blockers import BlockerLog
from router.forwarding import Forwarding
from router.policies import POLICIES
from router.pool import WorkerPool
from router.router import Router
from router.worker import Worker, WorkerState

log = logging.getLogger(__name__)

FIRST_ROUND_S = 5.0
"""How long the start waits for workers before it serves without them."""
AFTER_FAULT_S = 1.0
PROBE_DEADLINE_S = 30.0


class Gateway:
    """Everything behind one front door. Made and run within one event loop."""

    def __init__(self, config: Config, *, serves: bool = True) -> None:
        """Load the models the configuration names; ConfigError where that fails.

        Unless it `serves` nobody is held up when a model is loaded late.
        """
        self.config = config
        self._serves = serves
        self._was_ready = False
        self._first_round_over = False
        self.metrics = Metrics()
        self.indexes = Indexes(limit_bytes=config.index_memory)
        self.pool = WorkerPool(
            clock=time.monotonic,
            prefill_rate=config.prefill_rate,
            on_change=self._worker_changed,
        )
        for spec in worker_specs(config):
            self.pool.add(spec)
        self.renderers = Renderers(config)
        self.renderers.load_configured()
        renders = config.render != "never"
        when = config.forward_when if renders else "never"
        self.forwarding = Forwarding(self.pool, when)
        self.router = Router(
            self.pool,
            POLICIES[config.policy](random.Random(), time.monotonic),
            forwarding=self.forwarding,
            offload_weight=config.offload_weight,
            on_match=self.metrics.match_seconds.observe,
        )
        self.accounts = Accounts(
            self.metrics,
            remedy=lambda url: for_cached_tokens(self.pool.get(url)),
        )
        self.ingest = Ingest(config, self.pool, self.indexes)
        self.monitor = Monitor(
            config, self.pool, self.renderers, self.ingest, self._may_load
        )
        self.render_services = RenderServices(
            config, self.pool, self.renderers, self.monitor.max_model_len
        )
        self.fingerprints = Fingerprints(
            config,
            loaded=lambda: self.renderers.loaded,
            find=lambda model: self.renderers.find(model, model),
        )
        self.admin = Admin(
            pool=self.pool,
            indexes=self.indexes,
            monitor=self.monitor,
            accounts=self.accounts,
            forwarding=self.forwarding,
        )
        self.explain_page = ExplainPage(self.router, self.pool, self.renderers)
        self._render_pool, self._threads = _render_threads(config, self.metrics)
        self._probe_threads = Threads(threads=1, queue=4096, deadline=PROBE_DEADLINE_S)
        prover = Prover(config, self.renderers, self._probe_threads, self.fingerprints)
        self.proving = Proving(config, prover, self.monitor.facts)
        self.metrics.watch(Gauges(self.pool, self.indexes, self.forwarding).read)
        self.metrics.watch(encoder_counters(lambda: self.renderers.loaded))

    async def start(self) -> web.Application:
        """Contact the workers once, start the background; the application to serve."""
        self._stack = contextlib.AsyncExitStack()
        await self._stack.__aenter__()
        try:
            return await self._start()
        except BaseException:
            await self._stack.aclose()
            raise

    async def stop(self) -> None:
        """End the background, close every socket."""
        await self._stack.aclose()

    @property
    def busy(self) -> bool:
        """Whether a thread still renders."""
        return self._render_pool.outstanding + self._threads.outstanding > 0

    async def _start(self) -> web.Application:
        config, stack = self.config, self._stack
        stack.callback(self._render_pool.close)
        stack.callback(self._threads.close)
        stack.callback(self._probe_threads.close)
        stack.callback(self.ingest.close)
        stack.callback(self.fingerprints.close)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        self.upstreams = Upstreams(
            timeouts=Timeouts(
                connect_s=config.connect_timeout,
                first_byte_s=config.first_byte_timeout,
                idle_s=config.idle_timeout,
            )
        )
        stack.push_async_callback(self.upstreams.close)
        await self.monitor.first_round(session, FIRST_ROUND_S)
        self._first_round_over = True
        for worker in self.pool.workers:
            self._settle(worker)
        await stack.enter_async_context(_running(self._background(session)))
        return self.application(self.upstreams)

    async def _background(self, session: aiohttp.ClientSession) -> None:
        blockers = BlockerLog(self.pool, self.forwarding)
        housekeeping = Housekeeping(self.pool, self.indexes, self.metrics, blockers)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._kept("housekeeping", housekeeping.run))
            tasks.create_task(self._kept("lag", housekeeping.watch_loop))
            tasks.create_task(self._kept("ingest", self.ingest.run))
            tasks.create_task(self._kept("fingerprints", self.fingerprints.run))
            for worker in self.pool.workers:
                watch = functools.partial(self.monitor.watch, session, worker)
                tasks.create_task(self._kept(f"contact with {worker.url}", watch))
                prove = functools.partial(self.proving.watch, session, worker)
                tasks.create_task(self._kept(f"proof of {worker.url}", prove))

    async def _kept(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Keep `work` going: a fault of ours in it is logged, and it starts anew."""
        while True:
            try:
                await work()
            except Exception:
                log.exception("%s failed and starts anew", name)
                self.metrics.errors.labels("background").inc()
            await asyncio.sleep(AFTER_FAULT_S)

    def application(
        self, upstreams: Upstreams, *, stall_s: float = STALL_S
    ) -> web.Application:
        """The routes, with `upstreams` to send by; nothing is started."""
        describer = Describer(
            pool=self.pool,
            renderers=self.renderers,
            render_pool=self._render_pool,
            metrics=self.metrics,
            render=self.config.render != "never",
            forwarding=self.forwarding,
        )
        proxy = Proxy(
            router=self.router,
            upstreams=upstreams,
            accounts=self.accounts,
            metrics=self.metrics,
            client_rank=self.config.client_rank,
            stall_s=stall_s,
        )
        handlers = Handlers(
            config=self.config,
            describer=describer,
            proxy=proxy,
            admin=self.admin,
            explain_page=self.explain_page,
            server_info=self._server_info,
            metrics=self.metrics,
            responses=self.accounts.responses,
        )
        # Bodies have their own limit (gateway.body); aiohttp's would cut them first.
        app = web.Application(client_max_size=0)
        if self.config.render_endpoints and self.config.render != "never":
            self._add_render_routes(app)
        handlers.add_to(Guard(app, self.metrics))
        return app

    def _server_info(self) -> dict[str, Any]:
        return server_info.of_gateway(self.render_services, self.fingerprints)

    def _add_render_routes(self, app: web.Application) -> None:
        dialect = self.config.render_dialect
        endpoints = RenderEndpoints(
            self.render_services,
            dialect=dialect,
            threads=self._threads,
            # A larger body would hold up the event loop when it is decoded.
            max_body=min(self.config.max_render_bytes, self.config.max_body),
            metrics=self.metrics,
        )
        guard = Guard(app, self.metrics, flat=dialect == "trtllm")
        endpoints.add_render_routes(guard)

    def _worker_changed(self, worker: Worker, before: WorkerState) -> None:
        if self._first_round_over:
            self._settle(worker)

    def _settle(self, worker: Worker) -> None:
        if worker.state is WorkerState.ready:
            self.render_services.settle(worker)

    def _may_load(self) -> bool:
        """Loading a tokenizer stalls the loop: only until there is traffic to stall."""
        if not (self._first_round_over and self._serves):
            return True
        states = {worker.state for worker in self.pool.workers}
        self._was_ready = self._was_ready or WorkerState.ready in states
        return not self._was_ready


@contextlib.asynccontextmanager
async def _running(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """`work` as a task, cancelled at the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def _render_threads(config: Config, metrics: Metrics) -> tuple[RenderPool, Threads]:
    """The threads that render for routing, and those of the render endpoints."""
    for_routing = RenderPool(
        threads=config.render_threads,
        queue=config.render_queue,
        deadline=config.render_deadline,
        max_bytes=config.max_render_bytes,
        metrics=metrics,
    )
    for_endpoints = Threads(
        threads=config.render_threads,
        queue=config.render_queue,
        deadline=DEADLINE_S,
    )
    return for_routing, for_endpoints
