"""How streams of the other APIs end: `/v1/messages` and `/v1/responses`."""

import msgspec
import openai
import pytest

from tests.proxy.conftest import GatewayFor
from tests.proxy.raw import (
    CHAT,
    SSE_HEAD,
    RawClient,
    RawWorker,
    WorkerConnection,
    answering,
    chunk,
    event,
)
from tests.proxy.test_worker_dies import ENDS, End, dying

MESSAGES = b"/v1/messages"
RESPONSES = b"/v1/responses"
DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta"}\n\n'
TEXT = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta",'
    b'"delta":"hi","sequence_number":4}\n\n'
)


@ENDS
async def test_broken_messages(gateway_for: GatewayFor, end: End) -> None:
    """Anthropic's clients raise at an event that is called an error, and only there."""
    script = dying(end, SSE_HEAD, chunk(DELTA + b"event: content_bl"))
    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT, path=MESSAGES + b"?beta=true")
        _, body = await client.answer()
        assert gateway.watches[0].kind == "reset"
    last = body.removeprefix(DELTA)
    assert last.startswith(b"event: error\ndata: ")
    assert last.endswith(b"}}\n\n")
    error = msgspec.json.decode(last.removeprefix(b"event: error\ndata: "))
    assert error["type"] == "error"
    assert error["error"]["type"] == "api_error"
    assert "during its answer" in error["error"]["message"]


async def test_broken_responses(gateway_for: GatewayFor) -> None:
    """OpenAI's client raises, with the code."""
    script = dying(WorkerConnection.close, SSE_HEAD, chunk(TEXT + b"event: resp"))
    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="k"
        ) as client,
    ):
        stream = await client.responses.create(model="m", input="hi", stream=True)
        assert (await anext(stream)).type == "response.output_text.delta"
        with pytest.raises(openai.APIError) as raised:
            await anext(stream)
        assert raised.value.code == "upstream_reset"


async def test_event_of_broken_responses(gateway_for: GatewayFor) -> None:
    """It is the API's own event of an error, and has the next number."""
    script = dying(WorkerConnection.close, SSE_HEAD, chunk(TEXT))
    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT, path=RESPONSES)
        _, body = await client.answer()
    last = body.removeprefix(TEXT)
    assert last.startswith(b"event: error\ndata: ")
    error = msgspec.json.decode(last.removeprefix(b"event: error\ndata: "))
    assert (error["type"], error["sequence_number"]) == ("error", 5)


LAST = [
    b"data: [DONE]\n\n: bye\n\n",
    b"data: [DONE]",
    b"event: done\ndata: [DONE]\nid: 7\n\n",
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    b'event: message_stop\ndata: {"type":"message_stop"}\n\ndata: [DONE]\n\n',
    b'event: response.completed\ndata: {"type":"response.completed"}\n\n',
    b'event: response.incomplete\ndata: {"type":"response.incomplete"}\n\n',
    b'event: response.completed\ndata: {"x":"' + b"x" * 1_500_000 + b'"}\n\n',
]


@ENDS
@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("size", [5, 10_000_000])
async def test_after_its_last_event(
    gateway_for: GatewayFor, end: End, last: bytes, size: int
) -> None:
    """The end of the body is missing, and nothing else: that is no failure."""
    size = max(size, len(last) // 10)
    parts = [chunk(last[at : at + size]) for at in range(0, len(last), size)]
    async with (
        RawWorker(dying(end, SSE_HEAD, chunk(event(1)), *parts)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT, path=MESSAGES)
        _, body = await client.answer()
        assert body == event(1) + last
        assert gateway.watches[0].kind is None


@pytest.mark.parametrize("path", [MESSAGES, MESSAGES + b"/count_tokens"])
async def test_no_answer_to_messages(gateway_for: GatewayFor, path: bytes) -> None:
    """An error of the gateway's own is one that Anthropic's clients can read."""
    async with (
        RawWorker(dying(WorkerConnection.close)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT, path=path)
        head, body = await client.answer()
    assert head.startswith(b"HTTP/1.1 502 ")
    error = msgspec.json.decode(body)
    assert error["type"] == "error"
    assert error["error"]["type"] == "api_error"
    assert error["error"]["code"] == "upstream_reset"


@pytest.mark.parametrize("nonsense", [b"zz\r\n", b"1\r\nabc"])
@pytest.mark.parametrize("head", [(SSE_HEAD, b""), (b"", SSE_HEAD)])
async def test_events_before_nonsense(
    gateway_for: GatewayFor, head: tuple[bytes, bytes], nonsense: bytes
) -> None:
    """What was whole is relayed, though all came in one read, even with the head."""
    parts = (head[0], head[1] + chunk(event(1)) + nonsense)
    async with (
        RawWorker(answering(*parts, gap_s=0.05)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        _, body = await client.answer()
        assert body.startswith(event(1) + b'data: {"error":{')
        assert b"upstream_malformed" in body
        assert gateway.watches[0].kind == "reset"


@pytest.mark.parametrize("head", [(SSE_HEAD, b""), (b"", SSE_HEAD)])
async def test_last_event_before_nonsense(
    gateway_for: GatewayFor, head: tuple[bytes, bytes]
) -> None:
    """Nothing is missing then."""
    done = event(1) + b"data: [DONE]\n\n"
    parts = (head[0], head[1] + chunk(done) + b"zz\r\n")
    async with (
        RawWorker(answering(*parts, gap_s=0.05)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        _, body = await client.answer()
        assert body == done
        assert gateway.watches[0].kind is None


async def test_json_before_nonsense(gateway_for: GatewayFor) -> None:
    """Part of a value is nothing: where no head is written yet, the error is told."""
    head = SSE_HEAD.replace(b"text/event-stream", b"application/json")
    async with (
        RawWorker(answering(head + chunk(b"{") + b"zz\r\n")) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        answered, body = await client.answer()
        assert answered.startswith(b"HTTP/1.1 502 ")
        assert b"upstream_malformed" in body
