"""What goes to a worker byte for byte: the client's body, and ids where they can go."""

import json
from typing import Any

import msgspec
import pytest

from render import Renderer
from router.forwarding import Blocker, Proof
from tests.gateway.forwarding_rig import (
    PROVEN,
    chat,
    known,
    prove,
)
from tests.gateway.ids_rig import (
    BODY,
    ask,
    bodies,
    engine,
    with_ids,
)
from tests.gateway.scripted import ANSWER, refusal, worker
from tests.running import StartGateway

pytestmark = pytest.mark.usefixtures("never_blocks", "proofs_by_hand")
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
