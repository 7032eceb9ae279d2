"""Every way a worker may frame an answer, and every way a client may need it."""

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
    json_answer,
)

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def closing(*parts: bytes) -> Script:
    """Answer once, then close."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        for part in parts:
            await connection.send(part)

    return script


async def ask(
    gateway_for: GatewayFor, script: Script, request: bytes | None = None
) -> tuple[bytes, bytes]:
    """One request through the gateway; the answer's head and body."""
    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        if request is None:
            await client.post(CHAT)
        else:
            await client.send(request)
        return await client.answer()


async def test_length_is_kept(gateway_for: GatewayFor) -> None:
    """No re-framing of what has a length."""
    head, body = await ask(gateway_for, answering(json_answer(b'{"a":1}')))
    assert b"Content-Length: 7\r\n" in head
    assert b"hunked" not in head
    assert body == b'{"a":1}'


async def test_chunk_extensions_and_trailers_are_dropped(
    gateway_for: GatewayFor,
) -> None:
    """The body is what counts."""
    raw = CHUNKED + b"3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n"
    head, body = await ask(gateway_for, answering(raw))
    assert body == b"abcde"
    assert head.count(b"Transfer-Encoding: chunked\r\n") == 1


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_body_that_ends_with_the_connection(
    gateway_for: GatewayFor, version: bytes
) -> None:
    """Chunked for the client, who can see its end."""
    raw = b"HTTP/%b 200 OK\r\nContent-Type: text/plain\r\n\r\n" % version
    head, body = await ask(gateway_for, closing(raw, b"abc", b"def"))
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body == b"abcdef"


async def test_interim_answers_are_skipped(gateway_for: GatewayFor) -> None:
    """100 and 103 are the worker's and ours."""
    raw = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        + json_answer(b"{}", b"X-A: 1")
    )
    head, body = await ask(gateway_for, answering(raw))
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Link" not in head
    assert body == b"{}"


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_answers_without_body(gateway_for: GatewayFor, status: bytes) -> None:
    """Both connections can be used again."""
    async with (
        RawWorker(answering(b"HTTP/1.1 %b\r\nETag: x\r\n\r\n" % status)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        for _ in range(2):
            await client.post(CHAT)
            head = await client.head()
            assert head.startswith(b"HTTP/1.1 %b\r\nETag: x\r\n" % status)
            assert b"hunked" not in head
        assert len(worker.connections) == 1


async def test_no_length_of_no_content(gateway_for: GatewayFor) -> None:
    """A 204 must not have one (RFC 9110, 8.6); a 304 may, as it tells of another."""
    length = b"content-length: 5\r\nETag: x\r\n\r\n"
    for status, kept in [(b"204 No Content", False), (b"304 Not Modified", True)]:
        raw = b"HTTP/1.1 %b\r\n%b" % (status, length)
        async with (
            RawWorker(answering(raw)) as worker,
            gateway_for(worker) as gateway,
            RawClient(gateway.port) as client,
        ):
            for _ in range(2):  # the client reads no body, and goes on
                await client.post(CHAT)
                head = await client.head()
                assert head.startswith(b"HTTP/1.1 %b\r\n" % status)
                assert (b"content-length" in head) is kept
                assert b"\r\nETag: x\r\n" in head


async def test_a_head_in_two_reads(gateway_for: GatewayFor) -> None:
    """It may be as long as one in a single read."""
    lines = b"".join(b"X-%d: %b\r\n" % (n, b"a" * 1000) for n in range(60))
    rest = b"Content-Length: 2\r\n\r\n{}"
    script = answering(b"HTTP/1.1 200 OK\r\n" + lines, rest, gap_s=0.05)
    head, body = await ask(gateway_for, script)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n" + lines)
    assert body == b"{}"


async def test_head_request(gateway_for: GatewayFor) -> None:
    """The length is that of a body that does not come."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    async with (
        RawWorker(answering(answer)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        for _ in range(2):
            await client.send(b"HEAD /v1/files/f HTTP/1.1\r\nHost: g\r\n\r\n")
            assert b"Content-Length: 1000\r\n" in await client.head()
    assert len(worker.requests) == 2


async def test_http_1_0_client_gets_an_unframed_stream(
    gateway_for: GatewayFor,
) -> None:
    """Chunks are unknown to it: the stream ends with the connection."""
    request = b"POST /v1/x HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}"
    script = answering(SSE_HEAD + chunk(event(1)), chunk(event(2)), LAST_CHUNK)
    head, body = await ask(gateway_for, script, request)
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"hunked" not in head
    assert body == event(1) + event(2)


async def test_http_1_0_client_may_keep_its_connection(
    gateway_for: GatewayFor,
) -> None:
    """Where it asks for that, and the answer has a length."""
    request = (
        b"POST /v1/x HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}"
    )
    async with (
        RawWorker(answering(json_answer(b"{}"))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        for _ in range(2):
            await client.send(request)
            head, body = await client.answer()
            assert b"Connection: keep-alive\r\n" in head
            assert body == b"{}"


async def test_client_that_wants_to_close(gateway_for: GatewayFor) -> None:
    """Connection: close is honoured, and said."""
    async with (
        RawWorker(answering(json_answer(b"{}"))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT, b"Connection: close")
        head, body = await client.answer()
        assert b"Connection: close\r\n" in head
        assert body == b"{}"
        assert await client.rest() == b""


async def test_pipelined_requests_are_answered_in_order(
    gateway_for: GatewayFor,
) -> None:
    """Two requests in one write."""

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            await connection.send(json_answer(request.split(b" ")[1]))

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(
            b"GET /v1/a HTTP/1.1\r\nHost: g\r\n\r\n"
            b"GET /v1/b HTTP/1.1\r\nHost: g\r\n\r\n"
        )
        assert [(await client.answer())[1] for _ in range(2)] == [b"/v1/a", b"/v1/b"]


async def test_error_of_a_streaming_request_stays_json(
    gateway_for: GatewayFor,
) -> None:
    """Status, content type and body of a worker's 400 are the client's.

    smg-project/smg#2403
    """
    answer = json_answer(b'{"error":{"message":"too long"}}', status=b"400 Bad Request")
    head, body = await ask(gateway_for, answering(answer))
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"Content-Type: application/json\r\n" in head
    assert body == b'{"error":{"message":"too long"}}'
