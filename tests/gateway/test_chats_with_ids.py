"""Which chats carry ids, and what of them is in the ids."""

from typing import Any

import pytest

from kvindex.blocks import unpack_ids
from render import Renderer
from router.forwarding import Proof
from tests.gateway.forwarding_rig import (
    USER,
    Bodies,
    chat,
    ids_in,
    prove,
    rendered,
    skipped,
)
from tests.running import StartGateway, StartWorker

pytestmark = pytest.mark.usefixtures("never_blocks", "proofs_by_hand")
CHAT = "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": {}}}]

CASES: list[tuple[dict[str, Any], str | None]] = [
    (chat(), None),
    (chat(tools=TOOLS), None),
    (chat(chat_template_kwargs={"enable_thinking": False}), None),
    (chat({"role": "developer", "content": "x"}, USER), "shape_not_proven"),
    (chat(documents=[{"text": "t"}]), "shape_not_proven"),
    (chat(mood="gay"), "unknown_field"),
    (chat(echo=True), "echo"),
    (chat(kv_transfer_params={"prompt_token_ids": [1, 2]}), "own_ids"),
    (chat(prompt_token_ids=[1, 2]), "own_ids"),
    (chat(kv_transfer_params={"do_remote_decode": True}), None),
    (
        chat({"role": "user", "content": [{"type": "image_url", "image_url": "u"}]}),
        "not_rendered",
    ),
    (chat(chat_template="{{ messages }}"), "not_rendered"),
]


@pytest.mark.parametrize(("body", "reason"), CASES)
async def test_which_chats_carry_ids(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    bodies: Bodies,
    renderer: Renderer,
    body: dict[str, Any],
    reason: str | None,
) -> None:
    """What was not compared, or may never go, goes as the client wrote it.

    `explain` says so before, with the same word.
    """
    worker = await start_worker()
    gateway = await start_gateway(worker)
    prove(gateway, Proof(by="probes", shapes=frozenset({"tools", "template_kwargs"})))
    explained = await gateway.post("/gateway/explain", body)
    assert explained["would_forward_ids"] == (reason is None)
    assert explained["ids_reason"] == reason
    async with gateway.client.post(gateway.url + CHAT, json=body) as response:
        await response.read()
    if reason is not None:
        assert bodies.of(worker) == [body]
        counted = {"outcome": "withheld", "reason": reason}
        assert await gateway.metric("forwarded_total", **counted) == 1
        return
    assert response.status == 200
    (sent,) = bodies.of(worker)
    # All that reaches the template is in the ids: tools, and variables, too.
    assert ids_in(sent, "vllm") == rendered(renderer, body, "vllm")
    assert sent | {"kv_transfer_params": None} == body | {"kv_transfer_params": None}
    given = body.get("kv_transfer_params") or {}
    assert sent["kv_transfer_params"].items() >= given.items()


async def test_tools_are_in_the_ids(renderer: Renderer) -> None:
    """Routers that left them out had models that never saw the tools."""
    plain = rendered(renderer, chat(), "vllm")
    assert rendered(renderer, chat(tools=TOOLS), "vllm") != plain


async def test_a_mode_in_the_prompt(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """A prompt that closes its thinking goes as text to a parser that reads it."""
    worker = await start_worker()
    gateway = await start_gateway(worker)
    prove(gateway, Proof(by="digest", reads_mode=True))
    await gateway.chat([USER])
    assert skipped(worker) == [1]
    await gateway.chat([USER], chat_template_kwargs={"enable_thinking": False})
    assert skipped(worker) == [1]
    counted = {"outcome": "withheld", "reason": "mode_in_prompt"}
    assert await gateway.metric("forwarded_total", **counted) == 1


async def test_other_endpoints_carry_none(
    start_worker: StartWorker, start_gateway: StartGateway, bodies: Bodies
) -> None:
    """Completions and responses are never added to."""
    worker = await start_worker()
    gateway = await start_gateway(worker)
    prove(gateway)
    asked = {"model": chat()["model"], "prompt": "The harbour", "max_tokens": 4}
    await gateway.ask("/v1/completions", asked)
    assert bodies.of(worker) == [asked]
    responses = {"model": chat()["model"], "input": "hi"}
    async with gateway.client.post(gateway.url + "/v1/responses", json=responses) as r:
        await r.read()
    counted = {"outcome": "withheld", "reason": "endpoint"}
    assert await gateway.metric("forwarded_total", **counted) == 2
    for body in (asked, responses):
        explained = await gateway.post("/gateway/explain", body)
        assert explained["ids_reason"] == "endpoint"


async def test_signed_bodies_are_left_alone(
    start_worker: StartWorker, start_gateway: StartGateway, bodies: Bodies
) -> None:
    """A digest of the client's bytes would no longer hold."""
    worker = await start_worker()
    gateway = await start_gateway(worker)
    prove(gateway)
    for header in ("content-md5", "DIGEST", "Signature"):
        async with gateway.client.post(
            gateway.url + CHAT, json=chat(), headers={header: "x"}
        ) as response:
            assert response.status == 200
            await response.read()
    assert bodies.of(worker) == [chat()] * 3


async def test_a_long_prompt(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    bodies: Bodies,
    renderer: Renderer,
) -> None:
    """Tens of thousands of ids arrive whole, without holding up the loop."""
    worker = await start_worker()
    gateway = await start_gateway(worker)
    prove(gateway)
    asked = chat({"role": "user", "content": "harbour lights, " * 10_000})
    await gateway.ask(CHAT, asked)
    (sent,) = bodies.of(worker)
    ids = ids_in(sent, "vllm")
    assert ids is not None
    assert len(ids) > 30_000
    assert ids == unpack_ids(renderer.render_chat(asked).token_ids)
