"""One gateway: its parts put together, its background, its aiohttp application."""

import asyncio
import contextlib
import random
import time
from functools import partial

import aiohttp
from aiohttp import web

from gateway import routes
from gateway.access.door import Access
from gateway.admin.explain_page import ExplainPage
from gateway.admin.pages import Admin
from gateway.background import Keeper, Work, running
from gateway.discovery.discovery import Discovery, declared
from gateway.doctor.remedies import for_cached_tokens
from gateway.endpoints.render_endpoints import endpoint_threads
from gateway.endpoints.render_services import RenderServices
from gateway.events.ingest import Ingest
from gateway.housekeeping import Housekeeping
from gateway.metrics.encoder_counters import encoder_counters
from gateway.metrics.gauges import Gauges
from gateway.metrics.registry import Metrics
from gateway.models import Renderers
from gateway.proof.fingerprints import Fingerprints
from gateway.proof.prover import Prover
from gateway.proof.proving import Proving
from gateway.request.account import Accounts
from gateway.request.admission import Admission
from gateway.request.relay import STALL_S
from gateway.request.rendering import RenderPool
from gateway.request.room import Room
from gateway.settings.config import Config
from gateway.threads import Threads
from gateway.tokens.asking import Aborts
from gateway.tracing.recorder import Recorder
from gateway.upstreams.exchange import Timeouts
from gateway.upstreams.upstream import Upstreams
from gateway.workers.fleet import Fleet
from gateway.workers.health import HealthChecks
from gateway.workers.load_watch import LoadWatch
from gateway.workers.monitor import Monitor
from kvindex.index import Indexes
from router.blockers import BlockerLog
from router.forwarding import Forwarding
from router.policies import POLICIES
from router.pool import WorkerPool
from router.router import Router
from router.worker import Worker, WorkerState

FIRST_ROUND_S = 5.0
"""How long the start waits for workers before it serves without them."""
PROBE_DEADLINE_S = 30.0
FORGET_S = 1.0
"""Between two looks whether a worker that was taken out still answers something."""


class Gateway:
    """Everything behind one front door. Made and run within one event loop."""

    def __init__(
        self, config: Config, *, serves: bool = True, consumes: bool = True
    ) -> None:
        """Load the models the configuration names; ConfigError where that fails.

        Unless it `serves` nobody is held up when a model is loaded late. Unless it
        `consumes`, feeds that allow one consumer only are another process's.
        """
        self.config = config
        self._serves = serves
        self._was_ready = self._first_round_over = False
        self.for_operators: web.Application | None = None
        self.metrics = Metrics()
        self.recorder = Recorder.of(config, self.metrics)
        self.access = Access(config, self.metrics, self.recorder)
        self._know_workers(config)
        self.renderers = Renderers(config)
        self.renderers.load_configured()
        self._prepare_routing(config)
        self.ingest = Ingest(config, self.pool, self.indexes, consumes=consumes)
        self.monitor = Monitor(
            config, self.pool, self.renderers, self.ingest, self._may_load
        )
        self._prepare_pages()
        self._prepare_rendering(config)
        self._look_after(config)

    def _know_workers(self, config: Config) -> None:
        """Which workers there are, and what they hold."""
        self.indexes = Indexes(limit_bytes=config.index_memory)
        self.pool = WorkerPool(
            clock=time.monotonic,
            prefill_rate=config.prefill_rate,
            on_change=self._worker_changed,
            checked=config.health_interval > 0,
        )
        self._namings = declared(config)
        for named in self._namings.all:
            self.pool.add(named.spec).api_key = named.api_key

    def _prepare_routing(self, config: Config) -> None:
        """Where requests go, and what comes of it."""
        when = config.forward_when if config.render != "never" else "never"
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

    def _prepare_pages(self) -> None:
        """What operators see."""
        self.admin = Admin(
            pool=self.pool,
            indexes=self.indexes,
            monitor=self.monitor,
            accounts=self.accounts,
            forwarding=self.forwarding,
            namings=self._namings,
        )
        self.explain_page = ExplainPage(self.router, self.pool, self.renderers)
        self.metrics.watch(Gauges(self.pool, self.indexes, self.forwarding).read)
        self.metrics.watch(encoder_counters(lambda: self.renderers.loaded))

    def _prepare_rendering(self, config: Config) -> None:
        """What renders, and what proves that workers render alike."""
        renderers = self.renderers
        self.render_pool = RenderPool.of(config, self.metrics)
        self.endpoint_threads = endpoint_threads(config)
        self._probe_threads = Threads(threads=1, queue=4096, deadline=PROBE_DEADLINE_S)
        self.render_services = RenderServices(
            config, self.pool, renderers, self.monitor.max_model_len
        )
        self.fingerprints = Fingerprints(
            config,
            loaded=lambda: renderers.loaded,
            find=lambda model: renderers.find(model, model),
        )
        prover = Prover(config, renderers, self._probe_threads, self.fingerprints)
        self.proving = Proving(config, prover, self.monitor.facts)

    def _look_after(self, config: Config) -> None:
        """What comes and goes with workers, and how much is taken on."""
        self._keeper = Keeper(self.metrics)
        self._health = HealthChecks(config, self.pool, self.metrics)
        self._load = LoadWatch(config, self.pool)
        self.fleet = Fleet(
            self.pool,
            work=self._work_for,
            came=self.ingest.came,
            went=self._worker_went,
            keeper=self._keeper,
            namings=self._namings,
        )
        self.discovery = Discovery(config, self.fleet)
        self.metrics.watch(self.discovery.metrics)
        self.admission = Admission(config, self.pool, self.metrics)
        self.room = Room(config.max_bodies)
        self.aborts = Aborts()
        self.leaving = False

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

    def leave(self) -> None:
        """It will stop: nothing more should be sent here, but all is still served."""
        self.leaving = True

    @property
    def busy(self) -> bool:
        """Whether a thread still renders."""
        return self.render_pool.outstanding + self.endpoint_threads.outstanding > 0

    async def _start(self) -> web.Application:
        config, stack = self.config, self._stack
        await stack.enter_async_context(self.recorder)
        for threads in (self.render_pool, self.endpoint_threads, self._probe_threads):
            stack.callback(threads.close)
        stack.callback(self.ingest.close)
        stack.callback(self.fingerprints.close)
        # A limit would starve a large fleet.
        connector = aiohttp.TCPConnector(limit=0, ssl=self.access.worker_tls)
        session = aiohttp.ClientSession(connector=connector)
        self._session = await stack.enter_async_context(session)
        self.upstreams = Upstreams(
            tls=self.access.worker_tls,
            timeouts=Timeouts(
                connect_s=config.connect_timeout,
                first_byte_s=config.first_byte_timeout,
                idle_s=config.idle_timeout,
            ),
        )
        stack.push_async_callback(self.upstreams.close)
        stack.push_async_callback(self.aborts.close)
        found = self.discovery.found(self._session, self._keeper, FIRST_ROUND_S)
        await stack.enter_async_context(found)
        async with self.fleet.settling:
            await self.monitor.first_round(self._session, FIRST_ROUND_S)
        self._first_round_over = True
        self.renderers.say_missing()
        for worker in self.pool.workers:
            self._settle(worker)
        await stack.enter_async_context(running(self._background()))
        return self.application(self.upstreams)

    async def _background(self) -> None:
        blockers = BlockerLog(self.pool, self.forwarding)
        housekeeping = Housekeeping(self.pool, self.indexes, self.metrics, blockers)
        work: dict[str, Work] = {
            "housekeeping": housekeeping.run,
            "memory": housekeeping.give_back,
            "lag": housekeeping.watch_loop,
            "ingest": self.ingest.run,
            "fingerprints": self.fingerprints.run,
            **self.access.work(),
        }
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.fleet.run())
            for name, run in work.items():
                tasks.create_task(self._keeper.keep(name, run))

    def _work_for(self, worker: Worker) -> dict[str, Work]:
        """What goes on for one worker, for as long as it is there."""
        session, url = self._session, worker.url
        return {
            f"contact with {url}": partial(self.monitor.watch, session, worker),
            f"proof of {url}": partial(self.proving.watch, session, worker),
            f"health of {url}": partial(self._health.watch, session, worker),
            f"load of {url}": partial(self._load.watch, session, worker),
        }

    def _worker_went(self, worker: Worker) -> None:
        self.ingest.went(worker)
        self.monitor.facts.pop(worker.url, None)
        self._forget(worker)

    def _forget(self, worker: Worker) -> None:
        """What it still answers is counted to its end; then its series go, too."""
        if self.pool.get(worker.url) is None:
            self.accounts.forget(worker.url)
            self.metrics.forget(worker.url)
        if worker.inflight_requests:
            asyncio.get_running_loop().call_later(FORGET_S, self._forget, worker)

    def application(
        self, upstreams: Upstreams, *, stall_s: float = STALL_S
    ) -> web.Application:
        """The routes of clients, with `upstreams` to send by; nothing is started.

        Those of operators are among them, or in `for_operators`.
        """
        app = routes.application()
        if self.config.admin_port is not None:
            self.for_operators = routes.application()
        operators = app if self.for_operators is None else self.for_operators
        routes.add_routes(
            self, upstreams, clients=app, operators=operators, stall_s=stall_s
        )
        return app

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
