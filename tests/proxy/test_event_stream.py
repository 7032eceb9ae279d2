"""Server-sent events are relayed whole, at once, and byte for byte."""

import asyncio
import gzip

import pytest

from tests.proxy.conftest import GatewayFor
from tests.proxy.raw import (
    CHAT,
    LAST_CHUNK,
    SSE_HEAD,
    RawClient,
    RawWorker,
    Script,
    WorkerConnection,
    answering,
    chunk,
    event,
)

DONE = b"data: [DONE]\n\n"


def writing(data: bytes, size: int) -> Script:
    """Answer with `data` in writes of `size` bytes, each on its way alone."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(SSE_HEAD)
        for start in range(0, len(data), size):
            await connection.send(chunk(data[start : start + size]))
            await asyncio.sleep(0.001)
        await connection.send(LAST_CHUNK)

    return script


async def chunks(gateway_for: GatewayFor, script: Script) -> list[bytes]:
    """The chunks a client gets, as the gateway wrote them."""
    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        await client.head()
        got = []
        while piece := await client.chunk():
            got.append(piece)
    return got


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_events_cut_anywhere_come_whole(
    gateway_for: GatewayFor, end: bytes
) -> None:
    """One byte per write, with a character of several bytes in it.

    api7/aisix#111
    """
    events = [
        b'data: {"t":"\xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x8c\x8d"}' + end + end,
        b": ping" + end + end,
        b"event: x" + end + b"data:1" + end + b"data: 2" + end + end,
        b"data: [DONE]" + end + end,
    ]
    got = await chunks(gateway_for, writing(b"".join(events), 1))
    assert b"".join(got) == b"".join(events)
    if end != b"\r\n":  # a CRLF may be split after its CR
        assert got == events


async def test_every_read_is_passed_on_at_once(gateway_for: GatewayFor) -> None:
    """An event arrives before the worker has written the next one."""
    go_on = asyncio.Event()

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(SSE_HEAD)
        for number in range(3):
            await connection.send(chunk(event(number)))
            await go_on.wait()
            go_on.clear()
        await connection.send(chunk(DONE) + LAST_CHUNK)

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        await client.head()
        for number in range(3):
            assert await client.chunk() == event(number)
            go_on.set()
        assert await client.chunk() == DONE
        assert await client.chunk() == b""
        assert gateway.watches[0].first_bytes == 1


async def test_head_does_not_wait_for_the_first_event(gateway_for: GatewayFor) -> None:
    """The client knows the status while the worker still prefills."""
    go_on = asyncio.Event()

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(SSE_HEAD)
        await go_on.wait()
        await connection.send(chunk(b": still there\n\n"))
        await connection.send(chunk(event(1)) + LAST_CHUNK)

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        assert (await client.head()).startswith(b"HTTP/1.1 200 OK\r\n")
        assert gateway.watches[0].first_bytes == 0
        go_on.set()


async def test_unfinished_last_event_is_relayed(gateway_for: GatewayFor) -> None:
    """A stream that ends well without its last blank line loses nothing."""
    got = await chunks(gateway_for, writing(event(1) + b"data: [DONE]\n", 8))
    assert b"".join(got) == event(1) + b"data: [DONE]\n"


async def test_an_event_of_megabytes_passes(gateway_for: GatewayFor) -> None:
    """What is held is bounded; the rest comes as it comes."""
    data = b"data: " + b"x" * 3_000_000 + b"\n\n" + DONE
    got = await chunks(gateway_for, writing(data, 250_000))
    assert b"".join(got) == data
    assert len(got) > 2


async def test_compressed_stream_passes_as_it_comes(gateway_for: GatewayFor) -> None:
    """What cannot be read is not cut."""
    packed = gzip.compress(event(1) * 10)
    head = SSE_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    script = answering(head, chunk(packed[:9]), chunk(packed[9:]), LAST_CHUNK)
    assert b"".join(await chunks(gateway_for, script)) == packed


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
async def test_usage_is_found_in_any_cut(gateway_for: GatewayFor, size: int) -> None:
    """The usage event and [DONE] together, apart, or in pieces."""
    usage = (
        b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,'
        b'"prompt_tokens_details":{"cached_tokens":8}}}\n\n'
    )
    async with (
        RawWorker(writing(event(1) + usage + DONE, size)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        _, body = await client.answer()
        assert body == event(1) + usage + DONE
        found = gateway.watches[0].scanner.usage
        assert found is not None
        assert (found.prompt_tokens, found.completion_tokens) == (9, 2)
        assert found.cached_tokens == 8
