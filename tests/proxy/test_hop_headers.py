"""Headers: end-to-end ones pass as they came, those of one hop do not."""

from tests.proxy.conftest import GatewayFor
from tests.proxy.raw import CHAT, RawClient, RawWorker, answering, json_answer


def lines(message: bytes) -> list[bytes]:
    """The header lines of a message, without its first."""
    return message.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]


async def test_end_to_end_request_headers_keep_bytes_order_and_repeats(
    gateway_for: GatewayFor,
) -> None:
    """Odd case, repeats, non-ASCII values and unknown names reach the worker.

    BerriAI/litellm#4419
    """
    sent = [
        b"x-LoWeR: 1",
        b"Accept: text/event-stream",
        b"Accept: application/json",
        b"X-Name: M\xc3\xbcller \xe4",
        b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        b"tracestate: a=1",
        b"baggage: k=v",
        b"Authorization: Bearer sk-1",
        b"Accept-Encoding: gzip, br",
        b"X-Empty: ",
    ]
    async with (
        RawWorker(answering(json_answer(b"{}"))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT, *sent)
        await client.answer()
    got = [line for line in lines(worker.requests[0]) if line in sent]
    assert got == sent


async def test_hop_by_hop_request_headers_stay_behind(gateway_for: GatewayFor) -> None:
    """Also those that Connection names; Host and Expect are our own."""
    async with (
        RawWorker(answering(json_answer(b"{}"))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(
            CHAT,
            b"Connection: keep-alive, X-Mine",
            b"X-Mine: secret",
            b"X-Other: stays",
            b"Keep-Alive: timeout=5",
            b"TE: trailers",
            b"Trailer: X-T",
            b"Proxy-Authorization: Basic Zm9v",
            b"Proxy-Connection: keep-alive",
            b"Expect: 100-continue",
        )
        assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.answer()
    names = [line.split(b":")[0].lower() for line in lines(worker.requests[0])]
    assert names == [
        b"host",
        b"content-type",
        b"x-other",
        b"x-request-id",
        b"content-length",
    ]
    assert lines(worker.requests[0])[0] == b"Host: 127.0.0.1:%d" % worker.port


async def test_response_headers_are_verbatim(gateway_for: GatewayFor) -> None:
    """Two cookies stay two; nothing is added but the request id."""
    answer = json_answer(
        b"{}",
        b"Set-Cookie: a=1; Path=/",
        b"set-cookie: b=2",
        b"Retry-After: 7",
        b"X-Odd: \xe4\xff",
        b"Keep-Alive: timeout=5",
        b"Connection: X-Private, keep-alive",
        b"X-Private: 1",
        status=b"429 Slow Down Please",
    )
    async with (
        RawWorker(answering(answer)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT, b"X-Request-ID: mine-1")
        head, body = await client.answer()
    assert body == b"{}"
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 429 Slow Down Please",
        b"Content-Type: application/json",
        b"Set-Cookie: a=1; Path=/",
        b"set-cookie: b=2",
        b"Retry-After: 7",
        b"X-Odd: \xe4\xff",
        b"Content-Length: 2",
        b"X-Request-ID: mine-1",
        b"",
        b"",
    ]


async def test_request_id_is_made_where_none_is_sent(gateway_for: GatewayFor) -> None:
    """The same id goes to the worker and back."""
    async with (
        RawWorker(answering(json_answer(b"{}", b"X-Request-ID: theirs"))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        head, _ = await client.answer()
    returned = [x for x in lines(head) if x.lower().startswith(b"x-request-id")]
    sent = [x for x in lines(worker.requests[0]) if x.startswith(b"X-Request-ID")]
    assert len(returned) == 1
    assert returned == sent
    assert len(returned[0]) == len(b"X-Request-ID: ") + 32


async def test_request_id_is_returned_with_errors(gateway_for: GatewayFor) -> None:
    """A 502 of the gateway's own carries it too."""
    async with RawWorker(answering()) as gone:
        pass
    async with gateway_for(gone) as gateway, RawClient(gateway.port) as client:
        await client.post(CHAT, b"X-Request-ID: mine-2")
        head, body = await client.answer()
    assert head.startswith(b"HTTP/1.1 502 ")
    assert b"X-Request-ID: mine-2\r\n" in head
    assert b'"code":"upstream_connect_failed"' in body


async def test_target_passes_as_it_came(gateway_for: GatewayFor) -> None:
    """Escapes and the query are not normalised; absolute form loses its host."""
    targets = [
        b"/v1/things/a%2Fb%20c?x=%41&x=&y=a+b%2B&%C3%BC",
        b"/v1/a;b=c/~d/?",
        b"http://elsewhere/v1/x?y=1",
    ]
    async with (
        RawWorker(answering(json_answer(b"{}"))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        for target in targets:
            await client.send(b"GET %b HTTP/1.1\r\nHost: g\r\n\r\n" % target)
            await client.answer()
    assert [request.split(b" ")[1] for request in worker.requests] == [
        *targets[:2],
        b"/v1/x?y=1",
    ]
    assert all(b"Content-Length" not in request for request in worker.requests)
