"""A stream whose worker says itself that it failed, and then breaks off."""

import pytest

from gateway.errors import UpstreamReset
from tests.proxy.conftest import GatewayFor
from tests.proxy.raw import CHAT, SSE_HEAD, RawClient, RawWorker, chunk, event
from tests.proxy.test_worker_dies import ENDS, End, dying

SAID = b'data: {"error":{"message":"the engine died","code":500}}\n\n'
LONG_SAID = SAID.replace(b"the engine", b"the engine " * 900)


@ENDS
@pytest.mark.parametrize(
    "parts",
    [
        [SAID],
        [LONG_SAID],
        [SAID, b": ping\n\n"],
        [b'event: response.failed\ndata: {"type":"response.failed"}\n\n'],
    ],
)
async def test_after_an_error_of_its_own(
    gateway_for: GatewayFor, end: End, parts: list[bytes]
) -> None:
    """The worker's error event is the one error event, and the end is a clean one."""
    chunks = [chunk(part) for part in (event(1), *parts, b'data: {"half')]
    async with (
        RawWorker(dying(end, SSE_HEAD, *chunks)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        for turn in range(2):  # the client's connection is good for more
            await client.post(CHAT)
            _, body = await client.answer()
            assert body == event(1) + b"".join(parts)
            assert isinstance(gateway.watches[turn].error, UpstreamReset)
            assert gateway.watches[turn].kind == "reset"
