"""What goes to a worker byte for byte; and what happens where it refuses the ids."""

import json
import logging
from typing import Any

import msgspec
import pytest

from gateway import housekeeping
from gateway.request.splice import encoded
from render import Renderer
from router.forwarding import Blocker, Proof
from tests.gateway.forwarding_rig import (
    PROVEN,
    TICK_S,
    chat,
    known,
    lines,
    prove,
)
from tests.gateway.scripted import ANSWER, idle, posts, refusal, worker
from tests.proxy.raw import SSE_HEAD, RawWorker, WorkerConnection, chunk, event
from tests.proxy.raw import json_answer as answer
from tests.running import Running, StartGateway

pytestmark = pytest.mark.usefixtures("never_blocks", "proofs_by_hand")

BAD = b"400 Bad Request"
REFUSED = answer(b'{"error": "Extra inputs are not permitted"}', status=BAD)
MISSING = answer(b"{}", status=b"404 Not Found")
STREAM = SSE_HEAD + chunk(event(1)) + b"0\r\n\r\n"
BODY = (
    b' {"model":"m" ,\n"messages": [{"role":"user","content":"h\\u0069 }{\\"]"}],'
    b'"seed":1.50, "stop":null,"max_tokens" :4}\n'
)


def engine(name: str, *, takes_ids: bool, ok: bytes = ANSWER) -> RawWorker:
    """A worker of that engine that takes ids, or answers them 400."""
    listing = answer(b'{"data": [{"id": "m", "owned_by": "%s"}]}' % name.encode())

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            if request.startswith(b"POST /v1/chat/completions"):
                refuses = b"_ids" in request and not takes_ids
                await connection.send(REFUSED if refuses else ok)
            else:
                models = request.startswith(b"GET /v1/models")
                await connection.send(listing if models else MISSING)

    return RawWorker(script)


def bodies(worker: RawWorker) -> list[bytes]:
    """The chats that a worker was sent, byte for byte."""
    parts = [request.split(b"\r\n\r\n", 1) for request in worker.requests]
    return [body for head, body in parts if head.startswith(b"POST /v1/chat")]


async def ask(gateway: Running, body: bytes = BODY) -> tuple[int, bytes]:
    """Status and body of the answer to a chat."""
    url = gateway.url + "/v1/chat/completions"
    headers = {"Content-Type": "application/json"}
    async with gateway.client.post(url, data=body, headers=headers) as response:
        return response.status, await response.read()


def with_ids(renderer: Renderer, engine: str, body: bytes = BODY) -> bytes:
    """The body as a proven worker of an engine is to get it."""
    ids = encoded(renderer.with_profile(engine).render_chat(body).token_ids)
    member = {
        "vllm": b'"kv_transfer_params":{"prompt_token_ids":%b}',
        "sglang": b'"input_ids":%b',
        "trtllm": b'"prompt_token_ids":%b',
    }[engine] % ids
    end = body.rindex(b"}")
    return body[:end] + b"," + member + body[end:]


ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt_llm"}


@pytest.mark.parametrize("profile", ENGINES)
async def test_all_but_the_ids_is_the_clients(
    start_gateway: StartGateway, renderer: Renderer, profile: str
) -> None:
    """White space, escapes, numbers, nulls: byte for byte, with its length."""
    async with engine(ENGINES[profile], takes_ids=True) as taker:
        gateway = await start_gateway(taker.url)
        prove(gateway)
        known(gateway, taker.url).profile = profile
        assert (await ask(gateway))[0] == 200
        assert bodies(taker) == [with_ids(renderer, profile)]


@pytest.mark.parametrize(
    "body",
    [
        # Fields of one engine that a typed gateway would drop, and odd values.
        b'{"model":"m","messages":[{"role":"user","content":"x"}],'
        b'"separate_reasoning":true,"nobody":{"a":[null,1E400,-0.0]},"a":1,"a":2}',
        b'{"model":"m","messages":[{"role":"user","content":"x"}],'
        b'"seed":1e400,"seed":2}',
        b'{"model":"m","messages":[{"role":"user","content":"x","k":{"k":null}}]}',
        b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}',
        b'\xef\xbb\xbf{"model":"m","messages":[{"role":"user","content":"x"}]}',
        b'{"model":"m","messages":[{"role":"user","content":"x"}]} trailing',
        b'{"model":"m","messages":[{"role":"user","content":"x"}],'
        b'"kv_transfer_params":{},"kv_transfer_params":{"a":1}}',
    ],
)
async def test_what_gets_no_ids_is_not_touched(
    start_gateway: StartGateway, body: bytes
) -> None:
    """Unknown keys, numbers out of range, bad text: all as it came."""
    async with worker(ANSWER) as plain:
        gateway = await start_gateway(plain.url)
        prove(gateway)
        assert (await ask(gateway, body))[0] == 200
        assert bodies(plain) == [body]
        assert await gateway.metric("forwarded_total", outcome="forwarded") == 0


async def test_duplicates_that_have_nothing_to_do_with_it(
    start_gateway: StartGateway, renderer: Renderer
) -> None:
    """The last of them is rendered, as engines read it; both are sent."""
    body = b'{"messages":[],"a":{},"messages":[{"role":"user","content":"x"}],"n":1}'
    body = body.replace(b'"a":{},', b"")
    async with worker(ANSWER) as taker:
        gateway = await start_gateway(taker.url)
        prove(gateway)
        assert (await ask(gateway, body))[0] == 200
        assert bodies(taker) == [with_ids(renderer, "vllm", body)]


@pytest.mark.parametrize("streams", [False, True])
async def test_a_worker_that_refuses_the_ids(
    start_gateway: StartGateway, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch, streams: bool, renderer: Renderer,
) -> None:  # fmt: skip
    """It gets the request as the client wrote it, its answer is the client's.

    From then on it gets no ids: one warning names it, and it is counted.
    """
    monkeypatch.setattr(housekeeping, "TICK_S", TICK_S)
    ok = STREAM if streams else ANSWER
    async with engine("tensorrt_llm", takes_ids=False, ok=ok) as strict:
        gateway = await start_gateway(strict.url)
        known(gateway, strict.url).profile = "trtllm"
        prove(gateway)
        caplog.set_level(logging.INFO)
        for _ in range(3):
            status, text = await ask(gateway)
            assert status == 200
            assert text == (event(1) if streams else ok.split(b"\r\n\r\n")[1])
        assert bodies(strict) == [with_ids(renderer, "trtllm"), BODY, BODY, BODY]
        proof = known(gateway, strict.url).proof
        assert isinstance(proof, Blocker)
        assert proof.reason == "ids_rejected"
        (line,) = await lines(caplog)
        assert f"{strict.url} ids_rejected" in line
        counted = {"outcome": "resent", "reason": "ids_rejected"}
        assert await gateway.metric("forwarded_total", **counted) == 1
        assert await gateway.metric("retries_total") == 0
        await idle(gateway)


@pytest.mark.parametrize(
    ("status", "blocked"),
    [
        (b"400 Bad Request", True),
        (b"413 Content Too Large", False),
        (b"422 Unprocessable Content", True),
    ],
)
async def test_refusals(
    start_gateway: StartGateway, status: bytes, blocked: bool
) -> None:
    """Each is asked again as written; a body that ids made too long tells of itself."""
    refused = answer(b'{"error": "no"}', status=status)
    async with worker(refused, ANSWER) as only:
        gateway = await start_gateway(only.url)
        prove(gateway)
        assert (await ask(gateway))[0] == 200
        assert bodies(only)[1] == BODY
        proof = known(gateway, only.url).proof
        if blocked:
            detail = f"{int(status[:3])} with token ids, 200 without"
            assert proof == Blocker(reason="ids_rejected", detail=detail)
        else:
            assert proof == PROVEN
        reason = "ids_rejected" if blocked else "too_large"
        counted = {"outcome": "resent", "reason": reason}
        assert await gateway.metric("forwarded_total", **counted) == 1
        await idle(gateway)


async def test_a_bad_request_is_not_the_ids_fault(start_gateway: StartGateway) -> None:
    """The answer to the client's own words is the client's, and nobody is blocked."""
    first = answer(b'{"error": "ids"}', status=BAD)
    second = answer(b'{"error": "max_tokens"}', status=BAD)
    async with worker(first, second) as only:
        gateway = await start_gateway(only.url)
        prove(gateway)
        assert await ask(gateway) == (400, b'{"error": "max_tokens"}')
        assert bodies(only)[1] == BODY
        assert known(gateway, only.url).proof == PROVEN
        counted = {"outcome": "resent", "reason": "refused"}
        assert await gateway.metric("forwarded_total", **counted) == 1
        await idle(gateway)


async def test_a_worker_that_then_has_no_time(start_gateway: StartGateway) -> None:
    """Whether it was the ids is not known; another worker answers, once."""
    busy = refusal(b"503 Service Unavailable", b"Retry-After: 9")
    async with worker(REFUSED, busy) as first, worker(ANSWER) as second:
        gateway = await start_gateway(first.url, second.url, policy="round_robin")
        prove(gateway)
        assert (await ask(gateway))[0] == 200
        assert (posts(first), posts(second)) == (2, 1)
        assert known(gateway, first.url).proof == PROVEN
        await idle(gateway)


async def test_a_worker_that_then_breaks(start_gateway: StartGateway) -> None:
    """What was sent and broke is never sent to another."""
    last = answer(b"{}", b"Connection: close", status=BAD)
    async with (
        worker(last, WorkerConnection.reset) as first,
        worker(ANSWER) as second,
    ):
        gateway = await start_gateway(first.url, second.url, policy="round_robin")
        prove(gateway)
        assert (await ask(gateway))[0] == 502
        assert (posts(first), posts(second)) == (2, 0)
        await idle(gateway)


async def test_other_errors_are_not_asked_again(start_gateway: StartGateway) -> None:
    """They are no refusal of ids: the client's, as they are."""
    for status in (b"401 No", b"404 Not Found", b"500 Oh", b"501 Not Implemented"):
        async with worker(refusal(status)) as only:
            gateway = await start_gateway(only.url)
            prove(gateway)
            assert (await ask(gateway))[0] == int(status[:3])
            assert posts(only) == 1


async def test_a_second_worker_gets_its_own_ids(
    start_gateway: StartGateway, renderer: Renderer
) -> None:
    """A busy worker's request goes on in the other's field, by the other's rules."""
    busy = refusal(b"503 Service Unavailable", b"Retry-After: 9")
    async with (
        engine("vllm", takes_ids=True, ok=busy) as first,
        engine("sglang", takes_ids=True) as second,
    ):
        gateway = await start_gateway(first.url, second.url, policy="round_robin")
        known(gateway, second.url).profile = "sglang"
        prove(gateway)
        assert (await ask(gateway))[0] == 200
        assert bodies(first) == [with_ids(renderer, "vllm")]
        assert bodies(second) == [with_ids(renderer, "sglang")]


async def test_a_second_worker_that_is_not_proven(
    start_gateway: StartGateway, renderer: Renderer
) -> None:
    """It gets the client's bytes."""
    busy = refusal(b"503 Service Unavailable", b"Retry-After: 9")
    async with worker(busy) as first, worker(ANSWER) as second:
        gateway = await start_gateway(
            first.url, second.url, policy="round_robin", forward_when="chosen"
        )
        known(gateway, first.url).proof = PROVEN
        assert (await ask(gateway))[0] == 200
        assert bodies(first) == [with_ids(renderer, "vllm")]
        assert bodies(second) == [BODY]


async def test_our_own_field_reaches_no_engine_that_does_not_take_it(
    start_gateway: StartGateway,
) -> None:
    """A worker that is blocked, for whatever reason, is sent no field of ours."""
    async with engine("tensorrt_llm", takes_ids=False) as strict:
        gateway = await start_gateway(strict.url)
        for proof in (Blocker(reason="no_ids"), Blocker(reason="pending")):
            prove(gateway, proof)
            assert (await ask(gateway))[0] == 200
        assert bodies(strict) == [BODY, BODY]


async def test_reading_the_shape_costs_nothing_where_no_ids_can_go(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet that is not proven has no shapes looked at, nor ids written."""

    def unexpected(*_: Any) -> None:
        raise AssertionError

    for name in ("shape_of", "encoded", "read_object"):
        monkeypatch.setattr(f"gateway.request.prompt.{name}", unexpected)
    async with worker(ANSWER) as plain:
        gateway = await start_gateway(plain.url)
        assert (await ask(gateway))[0] == 200
        assert await gateway.metric("not_rendered_total") == 0
        prove(gateway, Proof(by="digest"))
        assert (await ask(gateway))[0] == 200
        assert await gateway.metric("not_rendered_total") == 1
        assert await gateway.metric("internal_errors_total", where="render") == 1


def test_the_bodies_of_these_tests() -> None:
    """They are what engines take for a chat."""
    assert json.loads(BODY)["messages"] == [{"role": "user", "content": 'hi }{"]'}]
    assert msgspec.json.decode(BODY)["seed"] == 1.5
    assert chat()["messages"]
