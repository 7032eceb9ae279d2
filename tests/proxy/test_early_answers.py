"""Workers that answer and close with the body unread: their connection ends in a reset.

They are threads with blocking sockets: a loop would read some, and close later.
"""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

from gateway.upstreams.exchange import Timeouts
from gateway.upstreams.origin import Origin
from gateway.upstreams.upstream import UpstreamRequest, Upstreams
from gateway.upstreams.upstream_connection import UpstreamConnection
from tests.proxy.certificates import Authority
from tests.proxy.conftest import GatewayFor
from tests.proxy.raw import RawClient, json_answer

REFUSAL = json_answer(b"{}", b"Connection: close", status=b"413 Too Large")
HEAD = b"POST / HTTP/1.1\r\nHost: w\r\nContent-Length: 300000\r\n\r\n"
MEANWHILE_S = 0.1
"""The loop is busy for so long: answer and reset are there."""


class Listening(msgspec.Struct):
    """Where a worker is."""

    port: int
    url: str


@contextlib.contextmanager
def closing_unread(tls: ssl.SSLContext | None = None) -> Iterator[Listening]:
    """A worker that refuses a request on its head, and closes at once."""

    def run() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                # What waits for an acknowledgement would be lost by its own reset.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if tls is not None:
                    connection = tls.wrap_socket(connection, server_side=True)
                with connection:
                    head = b""
                    while b"\r\n\r\n" not in head and (some := connection.recv(512)):
                        head += some
                    connection.sendall(REFUSAL)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        port = listener.getsockname()[1]
        try:
            scheme = "http" if tls is None else "https"
            yield Listening(port, f"{scheme}://127.0.0.1:{port}")
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


async def test_an_answer_is_read_behind_a_reset() -> None:
    """A write that meets the reset closes the transport, with the answer unread."""

    def ignore(connection: UpstreamConnection) -> None: ...

    def made() -> UpstreamConnection:
        return UpstreamConnection(
            timeouts=Timeouts(), clock=time.monotonic, freed=ignore, gone=ignore
        )

    with closing_unread() as worker:
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(
            made, "127.0.0.1", worker.port
        )
        exchange = connection.begin(answers_head=False)
        exchange.send(HEAD, b"x" * 100_000)
        time.sleep(MEANWHILE_S)  # noqa: ASYNC251 - as a busy loop
        transport.write(b"x" * 100_000)
        async with asyncio.timeout(5):
            response = await exchange.answered()
    assert response.status == 413
    assert response.error is None


async def test_an_answer_is_read_before_more_is_written(tmp_path: Path) -> None:
    """With TLS nothing can be read afterwards."""

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 100_000
        time.sleep(MEANWHILE_S)  # noqa: ASYNC251 - as a busy loop
        yield b"x" * 200_000

    ours = Authority(tmp_path, "ours")
    upstreams = Upstreams(tls=ours.client())
    with closing_unread(ours.server("127.0.0.1")) as worker:
        request = UpstreamRequest(
            method="POST", target=b"/", headers=[], body=body(), length=300_000
        )
        response = await upstreams.send(Origin.parse(worker.url), request)
    assert response.status == 413
    assert response.error is None
    await upstreams.close()


async def test_an_early_answer_is_no_failure(gateway_for: GatewayFor) -> None:
    """It is the client's, and nothing is counted against the worker."""
    with closing_unread() as worker:
        async with gateway_for(worker) as gateway:
            for size in [1_000_000, 8_000_000] * 8:
                async with RawClient(gateway.port) as client:
                    await client.post(b"x" * size)
                    head, body = await client.answer()
                    assert head.startswith(b"HTTP/1.1 413 Too Large\r\n")
                    assert body == b"{}"
    assert {watch.kind for watch in gateway.watches} == {"status"}
