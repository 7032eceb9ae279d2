"""What nobody has begun is tried again: where nobody was reached, and at busy ones."""

import pytest

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
