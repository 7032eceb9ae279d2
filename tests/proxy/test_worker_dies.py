"""A worker that dies: before its answer, in a stream, in a JSON body."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from gateway.errors import UpstreamReset
from tests.proxy.conftest import GatewayFor, Watch
from tests.proxy.raw import (
    CHAT,
    SSE_HEAD,
    RawClient,
    RawWorker,
    Script,
    WorkerConnection,
    chunk,
    event,
)

End = Callable[[WorkerConnection], None]
ENDS = pytest.mark.parametrize("end", [WorkerConnection.close, WorkerConnection.reset])


def dying(end: End, *parts: bytes) -> Script:
    """Read a request, write `parts`, and die."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        for part in parts:
            await connection.send(part)
            await asyncio.sleep(0.02)
        end(connection)

    return script


@ENDS
async def test_in_a_stream(gateway_for: GatewayFor, end: End) -> None:
    """Whole events, then exactly one error event, then a clean end; no [DONE].

    And no second try, which would begin anew: aden-hive/hive#6541
    """
    whole = [event(number) for number in range(5)]
    script = dying(end, SSE_HEAD, *map(chunk, whole), chunk(b'data: {"half'))
    async with (
        RawWorker(script) as one,
        RawWorker(script) as other,
        gateway_for(one, other) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        _, body = await client.answer()
        assert isinstance(gateway.watches[0].error, UpstreamReset)
        assert "during its answer" in str(gateway.watches[0].error)
        assert len(one.connections) + len(other.connections) == 1
    assert body.startswith(b"".join(whole) + b'data: {"error":{')
    assert body.endswith(b"}}\n\n")
    last = body.removeprefix(b"".join(whole)).removeprefix(b"data: ")
    error = msgspec.json.decode(last)["error"]
    assert error["code"] == "upstream_reset"
    assert set(error) == {"message", "type", "param", "code"}


async def test_the_client_may_go_on_with_its_connection(
    gateway_for: GatewayFor,
) -> None:
    """The stream has ended whole: closing now would meet the client's next request."""
    script = dying(WorkerConnection.reset, SSE_HEAD, chunk(event(1)))
    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        for _ in range(3):
            await client.post(CHAT)
            head, body = await client.answer()
            assert head.startswith(b"HTTP/1.1 200")
            assert body.startswith(event(1) + b'data: {"error":{')


async def test_in_a_stream_to_an_http_1_0_client(gateway_for: GatewayFor) -> None:
    """The error event is the last thing before the connection ends."""
    script = dying(WorkerConnection.reset, SSE_HEAD, chunk(event(1)))
    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(b"POST /v1/x HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
        _, body = await client.answer()
    assert body.startswith(event(1) + b'data: {"error":{')
    assert body.endswith(b"}}\n\n")


async def test_within_an_event_too_long_to_hold(gateway_for: GatewayFor) -> None:
    """What has been passed of it is ended, so that the error is an event."""
    half = b"data: " + b"x" * 1_500_000
    script = dying(WorkerConnection.close, SSE_HEAD, chunk(half))
    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        _, body = await client.answer()
    assert body.startswith(half + b"\n\ndata: {")


async def test_after_done_nothing_is_missing(gateway_for: GatewayFor) -> None:
    """A missing last chunk after [DONE] is no error."""
    done = event(1) + b"data: [DONE]\n\n"
    script = dying(WorkerConnection.close, SSE_HEAD, chunk(done))
    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        _, body = await client.answer()
        assert gateway.watches[0].error is None
    assert body == done


UNFRAMED_HEAD = SSE_HEAD.replace(b"Transfer-Encoding: chunked\r\n", b"")
"""Of a stream whose only end is that of its connection."""


async def unframed(
    gateway_for: GatewayFor, *parts: bytes, end: End = WorkerConnection.close
) -> tuple[bytes, Watch, str]:
    """What a client gets of such a stream; its account; the counted failures."""
    async with (
        RawWorker(dying(end, UNFRAMED_HEAD, *parts)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        _, body = await client.answer()
        counted = (await gateway.real.metrics.exposition()).decode()
    name = "kv_gateway_upstream_failures_total{"
    failures = [line for line in counted.splitlines() if line.startswith(name)]
    return body, gateway.watches[0], "".join(failures)


@ENDS
@pytest.mark.parametrize("half", [b'data: {"half', b"data: {}\n", b"id: 1\r\n"])
async def test_within_an_event_of_an_unframed_stream(
    gateway_for: GatewayFor, end: End, half: bytes
) -> None:
    """The end of its connection is no end of an event: it is cut, as others are."""
    body, watch, failures = await unframed(gateway_for, event(1), half, end=end)
    last = body.removeprefix(event(1)).removeprefix(b"data: ")
    assert msgspec.json.decode(last)["error"]["code"] == "upstream_reset"
    assert isinstance(watch.error, UpstreamReset)
    assert watch.kind == "reset"
    assert 'kind="reset"' in failures


async def test_within_a_long_event_of_an_unframed_stream(
    gateway_for: GatewayFor,
) -> None:
    """What has been passed of it is ended first."""
    half = b"data: " + b"x" * 1_500_000
    body, watch, _ = await unframed(gateway_for, half)
    assert body.startswith(half + b'\n\ndata: {"error":{')
    assert watch.kind == "reset"


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\n",
        b": ping\r\n\r\n",
        b"data: [DONE]",
        b"data: [DONE]\n",
        b"data: [DONE]\n\n",
        b"data: [DONE]\n\n: b",
    ],
)
async def test_between_events_of_an_unframed_stream(
    gateway_for: GatewayFor, rest: bytes
) -> None:
    """It ends there, with [DONE] or without: every byte of it is relayed."""
    body, watch, failures = await unframed(gateway_for, event(1), rest)
    assert body == event(1) + rest
    assert watch.error is None
    assert watch.kind is None
    assert not failures


async def test_unframed_stream_to_an_http_1_0_client(gateway_for: GatewayFor) -> None:
    """All of it in one read: its error event is the first thing that is relayed."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(UNFRAMED_HEAD + b"data: {")

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(b"POST /v1/x HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
        _, body = await client.answer()
    assert body.startswith(b'data: {"error":{')
    assert body.endswith(b"}}\n\n")


JSON_HEADS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\n",
]


@ENDS
@pytest.mark.parametrize("head", JSON_HEADS)
async def test_in_a_body_with_another_end(
    gateway_for: GatewayFor, end: End, head: bytes
) -> None:
    """The client's connection is cut: it must not take the body for whole."""
    part = chunk(b'{"a":') if b"chunked" in head else b'{"a":'
    async with (
        RawWorker(dying(end, head, part)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        await client.head()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.reader.readexactly(len(part) + 5)
        assert isinstance(gateway.watches[0].error, UpstreamReset)


async def test_in_a_body_an_http_1_0_client_reads_to_the_end(
    gateway_for: GatewayFor,
) -> None:
    """Where the end of the connection is the end of the body, it is a reset."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    script = dying(WorkerConnection.reset, head, chunk(b'{"a":'))
    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(b"POST /v1/x HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
        with pytest.raises(ConnectionError):
            await client.answer()


@ENDS
async def test_before_its_answer(gateway_for: GatewayFor, end: End) -> None:
    """502 with a request on a fresh connection: not retried, as it may have acted."""
    async with (
        RawWorker(dying(end)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        head, body = await client.answer()
        assert head.startswith(b"HTTP/1.1 502 ")
        assert b'"code":"upstream_reset"' in body
        assert len(worker.connections) == 1


@ENDS
async def test_within_its_head(gateway_for: GatewayFor, end: End) -> None:
    """The same: nothing of it can be used."""
    async with (
        RawWorker(dying(end, b"HTTP/1.1 200 OK\r\nContent-")) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 502 ")
        await client.post(CHAT)  # the client's connection is still good
        head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 502 ")


async def test_nobody_listens(gateway_for: GatewayFor) -> None:
    """Connection refused: 502, and the error says that another try is safe."""
    async with RawWorker(dying(WorkerConnection.close)) as gone:
        pass
    async with gateway_for(gone) as gateway, RawClient(gateway.port) as client:
        await client.post(CHAT)
        head, body = await client.answer()
        assert head.startswith(b"HTTP/1.1 502 ")
        assert b'"code":"upstream_connect_failed"' in body
        assert getattr(gateway.watches[0].error, "retryable", None) is True
