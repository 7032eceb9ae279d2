"""A server of ours as a process: on one port, until a signal.

After a SIGTERM it says that it is not ready, and serves on for a while, as others
need time to see that. Then it takes no more connections, and gives open requests time
to end.
"""

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
from typing import Protocol

import uvloop
from aiohttp import web

from gateway.listening import listen, take_port, url_of
from gateway.server import make_runner
from gateway.settings.shared_config import SharedConfig

log = logging.getLogger(__name__)

SWITCH_S = 0.001
YOUNG_OBJECTS = 20_000
FILES = 65_536
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Server(Protocol):
    """The gateway, or the render server: loaded, and about to serve."""

    async def start(self) -> web.Application:
        """Begin; the application to serve."""
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


def serve(server: Server, config: SharedConfig, port: int) -> int:
    """Serve until SIGTERM or SIGINT; exit status 0. Raises ConfigError."""
    allow_many_connections()
    sockets = take_port(config.host, port)
    shorten_pauses()
    uvloop.run(_serve(server, config, sockets))
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


async def _serve(
    server: Server, config: SharedConfig, sockets: list[socket.socket]
) -> None:
    told = _Signals()
    app = await server.start()
    try:
        runner = make_runner(app, shutdown_s=config.drain_timeout)
        await runner.setup()
        try:
            print(f"ready {await _listen(runner, sockets)}", flush=True)  # noqa: T201 - for whoever started it
            await told.once.wait()
            server.leave()
            if told.first is signal.SIGTERM:  # who sends others may stop sending now
                await asyncio.sleep(config.drain_delay)
            log.info("open requests have %g s to end", config.drain_timeout)
        finally:
            await runner.cleanup()
    finally:
        await server.stop()


class _Signals:
    """Notes the first signal; the second has its usual effect, which is the end."""

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        self.once = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._note, number)

    def _note(self, number: signal.Signals) -> None:
        log.info("%s: leaving", number.name)
        self.first = number
        self.once.set()
        for other in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(other)


async def _listen(runner: web.AppRunner, sockets: list[socket.socket]) -> str:
    """Open the port; the URL it is reached by."""
    url = url_of(sockets[0])
    for sock in sockets:
        listen(sock)
        await web.SockSite(runner, sock).start()
    return url
