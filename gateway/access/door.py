"""The access of the front door: guards for its routes, keys kept up to date."""

from functools import partial

import msgspec
from aiohttp import web

from gateway.access.api_keys import read_keys
from gateway.access.clients import Clients
from gateway.access.credentials import Credentials
from gateway.access.cross_origin import CrossOrigin
from gateway.access.keyring import Keyring
from gateway.access.operators import Operators
from gateway.access.own_cache import in_own_cache
from gateway.background import Work
from gateway.files import state
from gateway.guard import Guard
from gateway.metrics.registry import Metrics
from gateway.settings.checking import check_access
from gateway.settings.config import Config
from gateway.tls import for_workers
from gateway.tracing.recorder import Recorder


class Guards(msgspec.Struct, frozen=True, kw_only=True):
    """One guard for each kind of route."""

    anyone: Guard
    """Routes that say themselves whom they answer."""
    clients: Guard
    """Routes for clients with a key."""
    limited: Guard
    """Routes that use up what a client's key may."""


class Access:
    """Who gets in, and what the workers are shown."""

    def __init__(
        self, config: Config, metrics: Metrics, recorder: Recorder | None = None
    ) -> None:
        """Read the keys; ConfigError where that fails."""
        check_access(config)
        path = self._path = config.api_keys_file
        self._guard = partial(Guard, metrics=metrics, recorder=recorder)
        self._since = state((path,) if path is not None else ())
        self._keyring = Keyring(read_keys(path)) if path is not None else None
        self.clients = Clients(self._keyring, metrics)
        self._own_caches = config.cache_per_client
        self.cross_origin = CrossOrigin(config)
        self.operators = Operators(config.admin_key, config.metrics_key)
        self.credentials = Credentials.of(config)
        self.worker_tls = for_workers(config)

    def guards(self, app: web.Application, *, flat: bool = False) -> Guards:
        """Guards that add routes to `app`; those of `flat` answer errors flat."""
        early = self.cross_origin.answer if self.cross_origin.on else None
        known = partial(
            self._guard, app, flat=flat, early=early, check=self.clients.identify
        )
        return Guards(
            anyone=self._guard(app, flat=flat),
            clients=known(),
            limited=known(inside=self.clients.inside),
        )

    async def in_own_cache(self, request: web.Request, body: bytes) -> bytes:
        """The body of a client's request as it is to be rendered, and sent."""
        return await in_own_cache(request, body) if self._own_caches else body

    def work(self) -> dict[str, Work]:
        """What goes on in the background."""
        work: dict[str, Work] = {}
        path, keyring = self._path, self._keyring
        if path is not None and keyring is not None:
            work["API keys"] = lambda: keyring.watch(path, self._since)
        if self.worker_tls.paths:
            work["certificates for workers"] = self.worker_tls.watch
        return work
