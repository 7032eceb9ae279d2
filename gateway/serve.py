"""The front door as a process: one gateway on one port, until a signal."""

import asyncio
import errno
import gc
import signal
import sys

import uvloop
from aiohttp import web

from gateway.app import Gateway
from gateway.config import Config
from gateway.errors import ConfigError
from gateway.server import make_runner

SWITCH_S = 0.001
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; exit status 0. Raises ConfigError."""
    gateway = Gateway(config)
    shorten_pauses()
    uvloop.run(_serve(gateway))
    return 0


def shorten_pauses() -> None:
    """Keep the interpreter itself from holding up the event loop.

    A rendering thread gives way to the loop after a fifth of the usual time, and the
    collector no longer walks what was loaded at start (tokenizers, templates).
    """
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()


async def _serve(gateway: Gateway) -> None:
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
            print(f"ready {await _listen(runner, gateway.config)}", flush=True)  # noqa: T201 - for whoever started it
            await stopped.wait()
        finally:
            await runner.cleanup()
    finally:
        await gateway.stop()


async def _listen(runner: web.AppRunner, config: Config) -> str:
    """Open the port; the URL it is reached by."""
    site = web.TCPSite(runner, config.host, config.port, reuse_address=True)
    try:
        await site.start()
    except OSError as error:
        where = f"{config.host}:{config.port}"
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"--port: {where} is in use") from None
        raise ConfigError(f"cannot listen on {where}: {error.strerror}") from None
    host, port = runner.addresses[0][:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
