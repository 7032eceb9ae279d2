"""A render server that serves, for the tests of it."""

import io
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from gateway.endpoints.render_server import RenderServer
from tests.running import Served

StartRenderServer = Callable[..., Awaitable["RunningRenderServer"]]


class RunningRenderServer(Served):
    """A render server over a real socket."""

    def __init__(
        self, server: RenderServer, port: int, client: aiohttp.ClientSession
    ) -> None:
        super().__init__(port, client)
        self.server = server

    async def send(
        self, path: str, body: Any, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON and headers of the answer to a body: bytes as they are."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        kinds = {"Content-Type": "application/json"} | headers
        async with self.client.post(
            self.url + path, data=io.BytesIO(raw), headers=kinds
        ) as response:
            return response.status, await response.json(), dict(response.headers)
