"""A server of ours as a process: on its ports, until a signal.

After a SIGTERM it says that it is not ready, and serves on for a while, as others
need time to see that. Then it takes no more connections, and gives open requests time
to end. Where operators have a port of their own, it is open before and after the other.
"""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec
import uvloop
from aiohttp import web

from gateway import memory
from gateway.background import running
from gateway.listening import listen, url_of
from gateway.server import Runner, make_runner
from gateway.settings.shared_config import SharedConfig
from gateway.streams import say
from gateway.tls import Tls

log = logging.getLogger(__name__)

SWITCH_S = 0.001
YOUNG_OBJECTS = 20_000
FILES = 65_536
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
OPERATORS_S = 1.0
"""So long what operators asked for last may take, once all clients have gone."""


async def _at_once(leaving: "Leaving") -> None:
    """Clients may be let in as soon as all is ready."""


def _print_ready(url: str) -> None:
    say(f"ready {url}")


class Server(Protocol):
    """The gateway, or the render server: loaded, and about to serve."""

    async def start(self) -> web.Application:
        """Begin; the application to serve."""
        ...

    @property
    def for_operators(self) -> web.Application | None:
        """What is served on a port of its own, once it was started."""
        ...

    def leave(self) -> None:
        """Say that it will stop, to whoever asks whether it is ready."""
        ...

    async def stop(self) -> None:
        """End what `start` began."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a thread still renders, for somebody who is gone."""
        ...


class Doors(msgspec.Struct, frozen=True, kw_only=True):
    """The sockets of one server, bound and not open, and what is said of them."""

    clients: Sequence[socket.socket]
    operators: Sequence[socket.socket] = ()
    admitted: Callable[["Leaving"], Awaitable[None]] = _at_once
    """Waits until clients may be let in; may have it leave at any time from then on."""
    tell: Callable[[str], None] = _print_ready
    """Is called with the URL once all is open."""


def serve(server: Server, config: SharedConfig, doors: Doors) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; exit status 0. Raises ConfigError."""
    allow_many_connections()
    memory.keep_large_apart()
    tls = Tls.of(config)
    shorten_pauses()
    uvloop.run(_serve(server, config, doors, tls))
    if server.busy:
        _leave()
    return 0


def allow_many_connections() -> None:
    """As many open files as this process may have: a stream takes two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _leave() -> None:
    """End the process at once: the interpreter would wait for its threads to end."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


def shorten_pauses() -> None:
    """Keep the interpreter itself from holding up the event loop.

    A rendering thread gives way to the loop after a fifth of the usual time, and the
    collector no longer walks what was loaded at start (tokenizers, templates), nor
    stops every few hundred objects while a large body is decoded.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)


async def _serve(server: Server, config: SharedConfig, doors: Doors, tls: Tls) -> None:
    leaving = Leaving()
    app = await server.start()
    try:
        async with contextlib.AsyncExitStack() as stack, running(tls.watch()):
            if server.for_operators is not None:
                own = await _runner(stack, server.for_operators, OPERATORS_S)
                url = await open_sockets(own, doors.operators, tls.operators)
                if doors.operators[0].family is not socket.AF_UNIX:
                    log.info("operators are answered at %s", url)
            await doors.admitted(leaving)
            runner = await _runner(stack, app, config.drain_timeout)
            doors.tell(await open_sockets(runner, doors.clients, tls.clients))
            await leaving.once.wait()
            server.leave()
            runner.leave()
            if leaving.first is signal.SIGTERM:  # who sends others may stop now
                await asyncio.sleep(config.drain_delay)
            log.info("open requests have %g s to end", config.drain_timeout)
    finally:
        await server.stop()


class Leaving:
    """Notes the first signal; the second has its usual effect, which is the end."""

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        self.once = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._noted = [n for n in SIGNALS if not _is_ignored(n)]
        for number in self._noted:
            loop.add_signal_handler(number, self.note, number)

    def note(self, number: signal.Signals) -> None:
        """This signal came."""
        log.info("%s: leaving", number.name)
        self.first = number
        self.once.set()
        for other in self._noted:
            asyncio.get_running_loop().remove_signal_handler(other)


def _is_ignored(number: signal.Signals) -> bool:
    """Whether whoever started this wants it to outlive SIGHUP, as `nohup` does."""
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


async def _runner(
    stack: contextlib.AsyncExitStack, app: web.Application, shutdown_s: float
) -> Runner:
    runner = make_runner(app, shutdown_s=shutdown_s)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    return runner


async def open_sockets(
    runner: web.AppRunner,
    sockets: Sequence[socket.socket],
    tls: ssl.SSLContext | None = None,
) -> str:
    """Open the sockets; the URL they are reached by. Those of the machine are plain."""
    url = url_of(sockets[0], tls=tls is not None)
    for sock in sockets:
        listen(sock)
        context = None if sock.family is socket.AF_UNIX else tls
        await web.SockSite(runner, sock, ssl_context=context).start()
    return url
