"""The door for clients: a key to be let in, limits to be kept, a header to be told.

Without a key file everybody may come in, as many as they are.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from aiohttp import web

from gateway.access.errors import (
    MissingApiKey,
    RateLimited,
    Unauthorized,
    WrongApiKey,
)
from gateway.access.keyring import Client, Keyring
from gateway.metrics.registry import Metrics
from gateway.request.headers import RawHeaders
from gateway.tracing.record import record_of

CLIENT: web.RequestKey[Client] = web.RequestKey("client", Client)
KEY_HEADERS = frozenset({b"authorization", b"x-api-key"})
"""The headers a client's key may come by, which are not for the workers then."""


class Clients:
    """Lets clients in."""

    def __init__(
        self,
        keyring: Keyring | None,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keyring = keyring
        self._metrics = metrics
        self._clock = clock

    def identify(self, request: web.Request) -> None:
        """Note whose request it is; Unauthorized where it is nobody's."""
        if self._keyring is None:
            return
        try:
            client = request[CLIENT] = _holder(self._keyring, request.headers)
        except Unauthorized as error:
            missing = isinstance(error, MissingApiKey)
            reason = "missing" if missing else "wrong"
            self._metrics.refused_keys.labels(reason).inc()
            raise
        record_of(request).key = client.name

    @contextmanager
    def inside(self, request: web.Request) -> Iterator[None]:
        """While a request of somebody known is answered; RateLimited."""
        client = request.get(CLIENT)
        if client is None:
            yield
            return
        requests = self._metrics.client_requests
        try:
            client.limits.take(self._clock())
        except RateLimited as error:
            requests.labels(client.label, error.reason).inc()
            raise
        requests.labels(client.label, "taken").inc()
        try:
            yield
        finally:
            client.limits.release()

    def told(self, request: web.Request) -> RawHeaders:
        """The headers that tell a client how much of its limit is left."""
        client = request.get(CLIENT)
        if client is None:
            return ()
        told = client.limits.told(self._clock())
        return [(name.encode(), value.encode()) for name, value in told]


def client_name(request: web.Request) -> str | None:
    """Whose request it is, where clients have keys."""
    client = request.get(CLIENT)
    return client.name if client is not None else None


def _holder(keyring: Keyring, headers: Mapping[str, str]) -> Client:
    """Whose request these headers make it; MissingApiKey, WrongApiKey."""
    key = sent_key(headers)
    if key is None:
        raise MissingApiKey
    client = keyring.holder(key)
    if client is None:
        raise WrongApiKey
    return client


def sent_key(headers: Mapping[str, str]) -> str | None:
    """The key in ``Authorization: Bearer``, else in ``x-api-key`` (Anthropic's)."""
    scheme, _, given = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and given.strip():
        return given.strip()
    return headers.get("x-api-key", "").strip() or None
