"""Listening: the line that says where, and what stands in the way."""

import socket
from contextlib import closing

import pytest
from aiohttp import web

from gateway.errors import ConfigError
from gateway.serve import _listen


async def listen(host: str, port: int = 0) -> str:
    """The URL that is told."""
    runner = web.AppRunner(web.Application())
    await runner.setup()
    try:
        return await _listen(runner, host, port)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("host", "told"),
    [("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", "http://0.0.0.0:"),
     ("::1", "http://[::1]:"), ("localhost", "http://")],
)  # fmt: skip
async def test_the_address_that_is_told(host: str, told: str) -> None:
    """The port that was chosen, in a URL that can be used."""
    url = await listen(host)
    assert url.startswith(told)
    assert int(url.rpartition(":")[2]) > 0


async def test_a_port_in_use() -> None:
    """Named, as an error of the configuration."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} is in use"):
            await listen("127.0.0.1", port)


async def test_an_address_of_nobody() -> None:
    """So is an address that is not this machine's."""
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.77:0"):
        await listen("192.0.2.77")
