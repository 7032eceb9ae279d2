"""The front door as a process: one gateway on one port, until a signal."""

import asyncio
import gc
import resource
import signal
import socket
import sys

import uvloop
from aiohttp import web

from gateway.app import Gateway
from gateway.config import Config
from gateway.listening import listen, take_port, url_of
from gateway.server import make_runner

SWITCH_S = 0.001
YOUNG_OBJECTS = 20_000
FILES = 65_536
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; exit status 0. Raises ConfigError."""
    allow_many_connections()
    gateway = Gateway(config)
    sockets = take_port(config.host, config.port)
    shorten_pauses()
    uvloop.run(_serve(gateway, sockets))
    return 0


def allow_many_connections() -> None:
    """As many open files as this process may have: a stream takes two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


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


async def _serve(gateway: Gateway, sockets: list[socket.socket]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopped.set()
        for number in SIGNALS:  # a second signal ends at once what the first ends well
            loop.remove_signal_handler(number)

    for number in SIGNALS:
        loop.add_signal_handler(number, stop)
    app = await gateway.start()
    try:
        runner = make_runner(app, shutdown_s=gateway.config.shutdown_grace)
        await runner.setup()
        try:
            print(f"ready {await _listen(runner, sockets)}", flush=True)  # noqa: T201 - for whoever started it
            await stopped.wait()
        finally:
            await runner.cleanup()
    finally:
        await gateway.stop()


async def _listen(runner: web.AppRunner, sockets: list[socket.socket]) -> str:
    """Open the port; the URL it is reached by."""
    url = url_of(sockets[0])
    for sock in sockets:
        listen(sock)
        await web.SockSite(runner, sock).start()
    return url
