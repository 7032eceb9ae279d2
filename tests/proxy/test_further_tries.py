"""What nobody has begun is tried again: where nobody was reached, and at busy ones."""

import contextlib
import socket
from collections.abc import Iterator

import pytest

from gateway.upstreams.exchange import Timeouts
from tests.proxy.conftest import GatewayFor
from tests.proxy.raw import CHAT, RawClient, RawWorker, answering, json_answer

BUSY = answering(json_answer(b"{}", status=b"503 Service Unavailable"))
FINE = answering(json_answer(b'{"a": 1}'))


def dead() -> RawWorker:
    """A worker that is not there."""
    worker = RawWorker(FINE)
    worker.port = 1
    return worker


@pytest.mark.parametrize("order", ["dead busy", "busy dead"])
async def test_one_is_gone_and_one_is_busy(gateway_for: GatewayFor, order: str) -> None:
    """In either order: a third answers, and neither has acted on the request."""
    gone = dead()
    async with RawWorker(BUSY) as busy, RawWorker(FINE) as fine:
        first, second = (gone, busy) if order == "dead busy" else (busy, gone)
        async with (
            gateway_for(first, second, fine) as gateway,
            RawClient(gateway.port) as client,
        ):
            await client.post(CHAT)
            head, body = await client.answer()
            assert head.startswith(b"HTTP/1.1 200 ")
            assert body == b'{"a": 1}'
            assert (len(busy.requests), len(fine.requests)) == (1, 1)


async def test_many_are_gone(gateway_for: GatewayFor) -> None:
    """A host with most of them: whoever is left answers each request."""
    gone = [dead() for _ in range(6)]
    for number, worker in enumerate(gone):
        worker.port = 1 + number
    async with (
        RawWorker(FINE) as fine,
        gateway_for(*gone, fine) as gateway,
        RawClient(gateway.port) as client,
    ):
        for count in range(1, 4):
            await client.post(CHAT)
            head, _ = await client.answer()
            assert head.startswith(b"HTTP/1.1 200 ")
            assert len(fine.requests) == count


async def test_two_that_take_their_time(gateway_for: GatewayFor) -> None:
    """Each costs a whole `--connect-timeout`: a third is not tried."""
    with contextlib.ExitStack() as stack:
        deaf = [stack.enter_context(_deaf()) for _ in range(2)]
        limits = Timeouts(connect_s=0.2)
        async with (
            RawWorker(FINE) as fine,
            gateway_for(*deaf, fine, timeouts=limits) as gateway,
            RawClient(gateway.port) as client,
        ):
            await client.post(CHAT)
            head, body = await client.answer()
            assert head.startswith(b"HTTP/1.1 502 ")
            assert b"no connection to the worker in 0.2 s" in body
            assert not fine.requests


@contextlib.contextmanager
def _deaf() -> Iterator[RawWorker]:
    """A worker whose machine takes no further connection, and does not say so."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(2):  # those wait to be accepted: there is no room for more
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        worker = RawWorker(FINE)
        worker.port = listening.getsockname()[1]
        yield worker


async def test_nobody_is_left(gateway_for: GatewayFor) -> None:
    """What the busy one said is the client's."""
    gone, other = dead(), dead()
    other.port = 2
    async with (
        RawWorker(BUSY) as busy,
        gateway_for(gone, busy, other) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 503 ")
        assert len(busy.requests) == 1
