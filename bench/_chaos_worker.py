"""Simulated workers that can be made faulty, and tell each request they take.

`COUNT OPTIONS` are the arguments. Prints `ready URL ...`, then `took ID` for each
inference request that one begins to work on, by its X-Request-ID. `POST /chaos` with
`{"fault": NAME}` makes it faulty: `reset` (each connection, as soon as it asks for
anything), `close` (in the middle of each stream), `busy` (503 with Retry-After).
"""

import asyncio
import json
import logging
import random
import socket
import struct
import sys

import uvloop
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from render import Renderer
from simworker.model import demo_model_dir
from simworker.options import SimOptions
from simworker.server import SimWorker

RESET = struct.pack("ii", 1, 0)
RETRY_AFTER_S = "2"


class Faults:
    """What is wrong with the worker now."""

    def __init__(self) -> None:
        self._fault = ""

    async def begin(self, request: web.Request) -> web.Response:
        """POST /chaos."""
        self._fault = (await request.json())["fault"]
        return web.json_response({"fault": self._fault})

    def middleware(self) -> Middleware:
        """Plays the fault, and tells what is taken."""

        @web.middleware
        async def play(request: web.Request, handler: Handler) -> web.StreamResponse:
            inference = request.path.startswith("/v1/") and request.method == "POST"
            if inference and self._fault == "busy":
                error = {"error": {"message": "overloaded", "code": 503}}
                headers = {"Retry-After": RETRY_AFTER_S}
                return web.json_response(error, status=503, headers=headers)
            name = request.headers.get("X-Request-ID")
            if inference and name is not None:  # else it is the gateway's own
                print("took", name, flush=True)
            if self._fault == "reset" and request.path != "/chaos":
                _reset(request)
            elif self._fault == "close" and inference:
                loop = asyncio.get_running_loop()
                loop.call_later(random.uniform(0.05, 0.4), _close, request)
            return await handler(request)

        return play


def _close(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _reset(request: web.Request) -> None:
    transport = request.transport
    if transport is not None:
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        transport.abort()


async def _serve(count: int, options: SimOptions) -> None:
    renderer = Renderer.load(demo_model_dir())
    urls = [await _start(options, renderer) for _ in range(count)]
    print("ready", *urls, flush=True)
    await asyncio.get_running_loop().create_future()


async def _start(options: SimOptions, renderer: Renderer) -> str:
    """One worker; its URL."""
    worker, faults = SimWorker(options, renderer), Faults()
    application = worker.api.application()
    application.middlewares.insert(0, faults.middleware())
    application.router.add_post("/chaos", faults.begin)
    worker.api.application = lambda: application  # type: ignore[method-assign]
    await worker.start()
    return worker.url


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)  # of what its faults break, nothing
    try:
        options = SimOptions(port=0, **json.loads(sys.argv[2]))
        uvloop.run(_serve(int(sys.argv[1]), options))
    except KeyboardInterrupt:
        sys.exit(0)
