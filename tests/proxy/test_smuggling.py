"""Requests that two readers may read differently: none of them reaches a worker twice,
and those that no client sends in good faith are refused.

All on raw sockets. A refusal is an answer and the end of the connection: what follows
on it is no request.
"""

import asyncio
from collections.abc import Mapping

import pytest

from tests.proxy.conftest import Gateway, GatewayFor
from tests.proxy.raw import RawClient, RawWorker, answering, json_answer

FINE = json_answer(b'{"fine": true}')
LINE = b"POST /v1/chat/completions HTTP/1.1\r\n"
HEAD = LINE + b"Host: g\r\nContent-Type: application/json\r\n"
SIZED = b"Content-Length: 2\r\n\r\n{}"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
INNER = b"GET /v1/inner HTTP/1.1\r\nHost: g\r\n\r\n"
WHOLE_CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"

FRAMING = {
    "a length and chunks": HEAD + b"Content-Length: 4\r\n" + CHUNKED[len(HEAD) :]
    + b"0\r\n\r\n" + INNER,
    "chunks and a length": HEAD + b"Transfer-Encoding: chunked\r\n"
    b"Content-Length: 4\r\n\r\n0\r\n\r\n" + INNER,
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    "one length twice": HEAD + b"Content-Length: 2\r\n" + SIZED,
    "a list of lengths": HEAD + b"Content-Length: 2, 2\r\n\r\n{}",
    "a length with a sign": HEAD + b"Content-Length: +2\r\n\r\n{}",
    "a negative length": HEAD + b"Content-Length: -2\r\n\r\n{}",
    "a length in hex": HEAD + b"Content-Length: 0x2\r\n\r\n{}",
    "a length in two words": HEAD + b"Content-Length: 2 2\r\n\r\n{}",
    "an empty length": HEAD + b"Content-Length: \r\n\r\n{}",
    "a length beyond counting": HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n{}",
    "two codings": HEAD + b"Transfer-Encoding: chunked\r\n"
    b"Transfer-Encoding: identity\r\n\r\n" + WHOLE_CHUNKS,
    "an unknown coding": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n" + WHOLE_CHUNKS,
    "a coding before chunks": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n"
    + WHOLE_CHUNKS,
    "a coding after chunks": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n"
    + WHOLE_CHUNKS,
    "a coding after a vertical tab": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n"
    + WHOLE_CHUNKS,
    "a size ended by a line feed": CHUNKED + b"2\n{}\n0\n\n",
    "an extension ended by a line feed": CHUNKED + b"2;a\n{}\r\n0\r\n\r\n",
    "a size in hex notation": CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n",
    "a negative size": CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n",
    "a size beyond counting": CHUNKED + b"f" * 17 + b"\r\n{}\r\n0\r\n\r\n",
    "a size and a blank": CHUNKED + b"2 \r\n{}\r\n0\r\n\r\n",
    "a chunk without its end": CHUNKED + b"2\r\n{}0\r\n\r\n",
    "a length in the trailer": CHUNKED + b"2\r\n{}\r\n0\r\nContent-Length: 5\r\n\r\n",
}  # fmt: skip
LINES = {
    "nonsense behind a request": HEAD + SIZED + b"nonsense\r\n\r\n",
    "a folded line": HEAD + b"X-A: b\r\n c\r\n" + SIZED,
    "a folded coding": HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + WHOLE_CHUNKS,
    "a blank before the first header": LINE + b" X: y\r\nHost: g\r\n" + SIZED,
    "a blank before a colon": HEAD + b"Content-Length : 2\r\n\r\n{}",
    "a coding and a blank before its colon": HEAD + b"Transfer-Encoding : chunked\r\n"
    b"\r\n" + WHOLE_CHUNKS,
    "a line feed alone": LINE + b"Host: g\n" + SIZED,
    "line feeds at the end of the head": HEAD + b"Content-Length: 2\n\n{}",
    "a carriage return in a value": HEAD + b"X-A: b\rContent-Length: 9\r\n" + SIZED,
    "a carriage return as the end": HEAD + b"X-A: b\r\r" + SIZED,
    "NUL in a value": HEAD + b"X-A: b\0c\r\n" + SIZED,
    "NUL in a name": HEAD + b"X\0A: b\r\n" + SIZED,
    "a control character in a value": HEAD + b"X-A: b\x01c\r\n" + SIZED,
    "no colon": HEAD + b"X-A\r\n" + SIZED,
    "no name": HEAD + b": b\r\n" + SIZED,
    "a name beyond ASCII": HEAD + b"X-\xc3\xa9: b\r\n" + SIZED,
    "two hosts": HEAD + b"Host: h\r\n" + SIZED,
    "no host": LINE + SIZED,
    "a line over its limit": HEAD + b"X-A: " + b"a" * 70_000 + b"\r\n" + SIZED,
    "a name over its limit": HEAD + b"a" * 70_000 + b": b\r\n" + SIZED,
    "a blank in the target": LINE.replace(b"/chat", b"/ chat") + b"Host: g\r\n" + SIZED,
    "a blank in the method": LINE.replace(b"POST", b"PO ST") + b"Host: g\r\n" + SIZED,
    "a fragment": LINE.replace(b" HTTP", b"#/../../../sleep HTTP") + b"Host: g\r\n"
    + SIZED,
    "a fragment after a query": LINE.replace(b" HTTP", b"?a=b#c HTTP") + b"Host: g\r\n"
    + SIZED,
    "a version that is none": LINE.replace(b"1.1", b"1.2") + b"Host: g\r\n" + SIZED,
    "no version": LINE.replace(b" HTTP/1.1", b"") + b"Host: g\r\n" + SIZED,
    "HTTP/2 unasked": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}  # fmt: skip
TOO_LONG = b" 431 Request Header Fields Too Large\r\n"
TARGETS = (
    b"/v1/../sleep", b"/v1/./../sleep", b"/v1//../sleep", b"//sleep", b"//v1/models",
    b"/v1/%2e%2e/sleep", b"/v1/%2E%2E%2Fsleep", b"/v1%2f..%2fsleep", b"/v1/..%2fsleep",
    b"/v1/%252e%252e/sleep", b"/v1/..%5csleep", b"/v1/..;/sleep", b"/v1/..%00/sleep",
    b"/v1/%0d%0a/x", b"/v1/load_lora_adapter", b"/v1/load%5Flora_adapter",
    b"/%76%31/load_lora_adapter", b"/v1/LOAD_LORA_ADAPTER/", b"/v1;/../sleep",
    b"/v1/x%0a", b"/sleep", b"/%73leep", b"/update_weights", b"/collective_rpc",
    b"/gateway%2fworkers", b"//gateway/workers", b"/gateway/../v1/../sleep",
    b"/reset_prefix_cache?/v1/", b"/sleep#/v1/", b"http://worker/sleep",
    b"http://g/v1/../sleep", b"*", b"g:80", b"/v1/a%3f/../../sleep",
    b"/v1/a%3F/../../sleep", b"/v1/a%23/../../sleep", b"/v1/a%23/../load_lora_adapter",
    b"/v1/a%253f/../../sleep", b"/v1/a%2523/..%252f../sleep",
    b"/v1/a#/../../sleep", b"/v1/a#", b"/generate%3f/../sleep", b"/v1/a%3b/../../sleep",
    b"/v1/%25252e%25252e/sleep", b"/v1/%252525252525252e%252e/sleep",
)  # fmt: skip


async def answers(port: int, request: bytes) -> bytes:
    """All that is answered on a connection of this request's own."""
    async with RawClient(port) as client:
        client.writer.write(request)
        return await client.rest()


async def not_refused(gateway: Gateway, cases: Mapping[str, bytes]) -> dict[str, bytes]:
    """The cases whose one answer is no refusal in OpenAI's shape, with a closed end."""
    whole = await asyncio.gather(*(answers(gateway.port, r) for r in cases.values()))
    return {
        name: answer
        for name, answer in zip(cases, whole, strict=True)
        if answer.count(b"\r\nContent-Length: ") != 1
        or not answer[8:].startswith((b" 400 Bad Request\r\n", TOO_LONG))
        or b'"type":"invalid_request_error"' not in answer
        or len(answer) > 4096
        or b"aiohttp" in answer
    }


@pytest.mark.parametrize("cases", [FRAMING, LINES], ids=["framing", "lines"])
async def test_what_is_refused(
    gateway_for: GatewayFor, cases: Mapping[str, bytes]
) -> None:
    """With 400 or 431 and the end of the connection; no worker hears of it."""
    async with RawWorker(answering(FINE)) as worker, gateway_for(worker) as gateway:
        assert await not_refused(gateway, cases) == {}
        assert worker.requests == []


async def test_what_is_read_one_way_only(gateway_for: GatewayFor) -> None:
    """Odd, but clear: passed on in a framing of our own, and nothing else with it."""
    clear = {
        "an extension of a chunk": CHUNKED + b"2;a=b\r\n{}\r\n0\r\n\r\n",
        "a tab before the coding": HEAD + b"Transfer-Encoding:\tchunked\r\n\r\n"
        + WHOLE_CHUNKS,
        "a blank line before the request": b"\r\n" + HEAD + SIZED,
        "chunks in HTTP/1.0": CHUNKED.replace(b"1.1", b"1.0", 1) + WHOLE_CHUNKS,
        "a length that Connection names": HEAD + b"Connection: content-length\r\n"
        + SIZED,
    }  # fmt: skip
    async with RawWorker(answering(FINE)) as worker, gateway_for(worker) as gateway:
        for name, request in clear.items():
            async with RawClient(gateway.port) as client:
                await client.send(request)
                head, _ = await client.answer()
                assert head[9:12] == b"200", name
            head, _, body = worker.requests[-1].partition(b"\r\n\r\n")
            assert head.count(b"\r\nContent-Length: 2") == 1, name
            assert b"ransfer-" not in head, name
            assert body == b"{}", name


async def test_a_request_in_a_body_is_none(gateway_for: GatewayFor) -> None:
    """The body of a GET is a body, and goes along as one."""
    length = b"Content-Length: %d\r\n\r\n" % len(INNER)
    request = b"GET /v1/x HTTP/1.1\r\nHost: g\r\n" + length
    async with RawWorker(answering(FINE)) as worker, gateway_for(worker) as gateway:
        async with RawClient(gateway.port) as client:
            await client.send(request + INNER)
            await client.answer()
        (reached,) = worker.requests
        assert reached.startswith(b"GET /v1/x ")
        assert reached.endswith(b"\r\n\r\n" + INNER)


async def test_nothing_after_an_upgrade_is_a_request(gateway_for: GatewayFor) -> None:
    """No protocol is switched to, and no worker is asked to."""
    request = (
        b"GET /v1/x HTTP/1.1\r\nHost: g\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        b"Upgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n"
    )
    async with RawWorker(answering(FINE)) as worker, gateway_for(worker) as gateway:
        async with RawClient(gateway.port) as client:
            await client.send(request + INNER)
            await client.answer()
            await asyncio.sleep(0.1)
        assert all(b"inner" not in reached for reached in worker.requests)
        assert b"pgrade" not in worker.requests[0]


async def test_closed_routes_however_they_are_written(gateway_for: GatewayFor) -> None:
    """No target reaches a route that controls a worker, or /gateway by another name."""
    async with RawWorker(answering(FINE)) as worker, gateway_for(worker) as gateway:
        for target in TARGETS:
            for method in (b"GET", b"POST"):
                line = b"%b %b HTTP/1.1\r\n" % (method, target)
                request = line + b"Host: g\r\nConnection: close\r\n\r\n"
                answer = await answers(gateway.port, request)
                assert answer[9:12] in (b"404", b"400"), request
        assert worker.requests == []


@pytest.mark.parametrize("line", [b"TRACE /v1/x", b"CONNECT /v1/x", b"CONNECT h:80"])
async def test_methods_that_are_not_passed_on(
    gateway_for: GatewayFor, line: bytes
) -> None:
    """One tells the client the headers that were added for it, one begins a tunnel."""
    request = line + b" HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n"
    async with RawWorker(answering(FINE)) as worker, gateway_for(worker) as gateway:
        assert (await answers(gateway.port, request))[9:12] == b"405"
        assert worker.requests == []
