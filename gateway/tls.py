"""TLS of both sides: contexts made of files, and made anew when the files change.

Connections that are open go on as they are; what comes later is by the new files.
"""

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from gateway.errors import ConfigError
from gateway.files import State, follow, state
from gateway.settings.access_config import AccessConfig
from gateway.settings.checking import check_tls, check_worker_tls
from gateway.settings.tls_config import TlsConfig

log = logging.getLogger(__name__)

ALPN = ["http/1.1"]
Make = Callable[[], ssl.SSLContext]


class RenewedContext(ssl.SSLContext):
    """A context for whoever keeps one: each connection gets the newest there is.

    What asyncio and uvloop ask of a context is `wrap_bio`. Its own settings are those
    of any context of its protocol, and stand for nothing.
    """

    paths: tuple[Path, ...]
    since: State
    """That of the files from before they were read."""
    _make: Make
    _newest: ssl.SSLContext | None

    def __new__(
        cls, protocol: int, make: Make, paths: tuple[Path, ...]
    ) -> "RenewedContext":
        """What `make` makes of the files of `paths`; ConfigError where it does not.

        Without files it is made when it is needed first: mostly never.
        """
        context = super().__new__(cls, protocol)
        context.paths, context.since = paths, state(paths)
        context._make = make
        context._newest = make() if paths else None
        return context

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """The TLS of one connection."""
        if self._newest is None:
            self._newest = self._make()
        return self._newest.wrap_bio(*arguments, **named)

    async def watch(self) -> None:
        """Follow the files, until cancelled; a mistake in them changes nothing."""
        await renew(self)

    def make(self) -> ssl.SSLContext:
        """What the files make now; ConfigError."""
        return self._make()

    def take(self, newest: ssl.SSLContext) -> None:
        """Use this from now on."""
        self._newest = newest


async def renew(*contexts: RenewedContext) -> None:
    """Follow the files of contexts together, until cancelled."""
    since = {
        path: then
        for one in reversed(contexts)  # the first has read them first
        for path, then in zip(one.paths, one.since, strict=True)
    }
    paths = tuple(since)

    def take(newest: list[ssl.SSLContext]) -> None:
        for context, new in zip(contexts, newest, strict=True):
            context.take(new)
        log.info("new connections are by the new %s", ", ".join(map(str, paths)))

    await follow(
        paths,
        lambda: [one.make() for one in contexts],
        take,
        since=tuple(since.values()),
    )


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """What a server of ours speaks; None: plain HTTP."""

    clients: RenewedContext | None = None
    operators: RenewedContext | None = None
    """On their own port they need no certificate, as probes and scrapers have none."""

    @classmethod
    def of(cls, config: TlsConfig) -> "Tls":
        """As configured; ConfigError."""
        check_tls(config)
        if config.tls_cert is None:
            return cls()
        return cls(
            clients=_serving(config.tls_cert, config.tls_key, config.tls_client_ca),
            operators=_serving(config.tls_cert, config.tls_key, None),
        )

    async def watch(self) -> None:
        """Follow the files of all, until cancelled."""
        contexts = [c for c in (self.clients, self.operators) if c is not None]
        if contexts:
            await renew(*contexts)


def _serving(cert: Path, key: Path | None, ca: Path | None) -> RenewedContext:
    """A server's context: with `ca`, for clients that show a certificate of it."""

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(ALPN)
        _load_chain(context, "--tls-cert", cert, key)
        if ca is not None:
            _load_authorities(context, "--tls-client-ca", ca)
            context.verify_mode = ssl.CERT_REQUIRED
            # A resumed session would outlive the certificate it was begun with.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        return context

    return RenewedContext(ssl.PROTOCOL_TLS_SERVER, make, _given(cert, key, ca))


def for_workers(config: AccessConfig) -> RenewedContext:
    """What is spoken with workers whose URL begins with https://; ConfigError.

    They are known by the authorities of `--worker-ca`, else by the system's, and by
    the host name, or address, that the URL has.
    """
    check_worker_tls(config)
    ca, cert, key = config.worker_ca, config.worker_cert, config.worker_key

    def make() -> ssl.SSLContext:
        if ca is None:
            context = ssl.create_default_context()
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            _load_authorities(context, "--worker-ca", ca)
        context.set_alpn_protocols(ALPN)
        if cert is not None:
            _load_chain(context, "--worker-cert", cert, key)
        return context

    return RenewedContext(ssl.PROTOCOL_TLS_CLIENT, make, _given(ca, cert, key))


def _given(*paths: Path | None) -> tuple[Path, ...]:
    return tuple(path for path in paths if path is not None)


def _load_chain(
    context: ssl.SSLContext, flag: str, cert: Path, key: Path | None
) -> None:
    _check_readable(flag, cert)
    if key is not None:
        _check_readable(flag.replace("cert", "key"), key)
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        reason = error.reason if isinstance(error, ssl.SSLError) else str(error)
        where = f"{cert}, and its key in {key}" if key is not None else cert
        detail = f" ({reason})" if reason else ", or one of them is not there"
        raise ConfigError(
            f"{flag} {where}: no certificate and private key of it{detail}"
        ) from None


def _load_authorities(context: ssl.SSLContext, flag: str, path: Path) -> None:
    _check_readable(flag, path)
    try:
        context.load_verify_locations(path)
    except OSError as error:  # SSLError is one
        detail = error.reason if isinstance(error, ssl.SSLError) else error
        raise ConfigError(f"{flag} {path}: no certificates ({detail})") from None


def _check_readable(flag: str, path: Path) -> None:
    if path.is_fifo():  # who reads one waits for a writer
        raise ConfigError(f"{flag} {path}: is a pipe")
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigError(f"{flag} {path}: {error.strerror}") from None


def _no_password() -> NoReturn:
    """Nobody is there to type one."""
    raise ValueError("the key is encrypted")
