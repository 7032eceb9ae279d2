"""Listening: the line that says where, and what stands in the way."""

import resource
import socket
from contextlib import closing

import pytest
from aiohttp import web

from gateway.errors import ConfigError
from gateway.listening import take_port
from gateway.serve import allow_many_connections, open_sockets


async def listen(host: str, port: int = 0) -> str:
    """The URL that is told."""
    runner = web.AppRunner(web.Application())
    await runner.setup()
    try:
        return await open_sockets(runner, take_port(host, port))
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


async def test_an_address_taken_meanwhile() -> None:
    """Bound by two, it is whose who listens first."""
    first, second = take_port("127.0.0.1", 0), socket.socket()
    with closing(second):
        second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        second.bind(first[0].getsockname())
        second.listen()
        runner = web.AppRunner(web.Application())
        await runner.setup()
        with pytest.raises(ConfigError, match="is in use"):
            await open_sockets(runner, first)
        await runner.cleanup()


@pytest.mark.parametrize("host", ["a" * 64, "a..b", "no such host"])
def test_no_host(host: str) -> None:
    """Not even a name that cannot be asked for is a traceback."""
    with pytest.raises(ConfigError, match=r"^(--host:|cannot listen on) "):
        take_port(host, 0)


def test_one_port_on_all_addresses() -> None:
    """A name may stand for several."""
    sockets = take_port("localhost", 0)
    assert len({sock.getsockname()[1] for sock in sockets}) == 1
    for sock in sockets:
        sock.close()


def test_as_many_files_as_there_may_be() -> None:
    """The usual limit of 1024 would be 500 streams."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        allow_many_connections()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert hard == before[1]
        assert soft == (65_536 if hard == resource.RLIM_INFINITY else hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
