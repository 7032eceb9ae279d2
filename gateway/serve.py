"""A server of ours as a process: on one port, until a signal."""

import asyncio
import errno
import gc
import logging
import os
import signal
import sys
from typing import Protocol

import uvloop
from aiohttp import web

from gateway.errors import ConfigError
from gateway.server import make_runner
from gateway.shared_config import SharedConfig

log = logging.getLogger(__name__)

SWITCH_S = 0.001
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Server(Protocol):
    """The gateway, or the render server: loaded, and about to serve."""

    async def start(self) -> web.Application:
        """Begin; the application to serve."""
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
    shorten_pauses()
    uvloop.run(_serve(server, config, port))
    if server.busy:
        _leave()
    return 0


def _leave() -> None:
    """End the process at once: the interpreter would wait for its threads to end."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


def shorten_pauses() -> None:
    """Keep the interpreter itself from holding up the event loop.

    A rendering thread gives way to the loop after a fifth of the usual time, and the
    collector no longer walks what was loaded at start (tokenizers, templates).
    """
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()


async def _serve(server: Server, config: SharedConfig, port: int) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopped.set()
        for number in SIGNALS:  # a second signal ends at once what the first ends well
            loop.remove_signal_handler(number)

    for number in SIGNALS:
        loop.add_signal_handler(number, stop)
    app = await server.start()
    try:
        runner = make_runner(app, shutdown_s=config.shutdown_grace)
        await runner.setup()
        try:
            url = await _listen(runner, config.host, port)
            print(f"ready {url}", flush=True)  # noqa: T201 - what others wait for
            await stopped.wait()
        finally:
            await runner.cleanup()
    finally:
        await server.stop()


async def _listen(runner: web.AppRunner, host: str, port: int) -> str:
    """Open the port; the URL it is reached by."""
    site = web.TCPSite(runner, host, port, reuse_address=True)
    try:
        await site.start()
    except OSError as error:
        where = f"{host}:{port}"
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"--port: {where} is in use") from None
        raise ConfigError(f"cannot listen on {where}: {error.strerror}") from None
    address, bound = runner.addresses[0][:2]
    shown = f"[{address}]" if ":" in address else address
    return f"http://{shown}:{bound}"
