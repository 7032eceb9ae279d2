"""Whole gateways that send ids along: to whom, in which field, and when not."""

import logging
from typing import Any

import pytest

from gateway import housekeeping
from kvindex.blocks import unpack_ids
from render import Renderer
from router.forwarding import Blocker, Proof
from router.worker import WorkerState
from tests.gateway.forwarding_rig import (
    PROVEN,
    TICK_S,
    USER,
    Bodies,
    chat,
    ids_in,
    known,
    lines,
    prove,
    rendered,
    sim,
    skipped,
)
from tests.running import StartGateway, StartWorker

pytestmark = pytest.mark.usefixtures("never_blocks", "proofs_by_hand")
CHAT = "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": {}}}]


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> Bodies:
    """What the simulated workers of this test are sent."""
    return Bodies(monkeypatch)


@pytest.fixture(autouse=True)
def looked_at_often(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines about blockers come at once."""
    monkeypatch.setattr(housekeeping, "TICK_S", TICK_S)
    caplog.set_level(logging.INFO, "router.blockers")


async def test_all_proven(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Every chat goes with its ids, and no worker renders."""
    workers = [await start_worker() for _ in range(2)]
    gateway = await start_gateway(*workers, policy="round_robin")
    prove(gateway)
    for stream in (False, True) * 3:
        async with gateway.client.post(
            gateway.url + CHAT, json=chat(stream=stream)
        ) as response:
            assert response.status == 200, await response.text()
            await response.read()
    assert skipped(*workers) == [3, 3]
    assert await gateway.metric("forwarded_total", outcome="forwarded") == 6
    assert await gateway.metric("forwarded_total", outcome="withheld") == 0


async def test_each_engine_gets_its_own_field_and_ids(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    bodies: Bodies,
    renderer: Renderer,
) -> None:
    """In a mixed fleet each gets the ids of its own rules where its engine looks."""
    engines = ("vllm", "sglang", "trtllm")
    workers = {engine: await start_worker(sim(engine)) for engine in engines}
    gateway = await start_gateway(*workers.values(), policy="round_robin")
    prove(gateway)
    parts = [{"type": "text", "text": "Lighthouses"}, {"type": "text", "text": "of"}]
    asked = chat({"role": "user", "content": parts})
    for _ in engines:
        await gateway.ask(CHAT, asked)
    ids = {}
    for engine, worker in workers.items():
        (body,) = bodies.of(worker)
        ids[engine] = ids_in(body, engine)
        assert ids[engine] == rendered(renderer, asked, engine)
        assert skipped(worker) == [1]
    # SGLang joins parts by a space, the others by a new line.
    assert ids["sglang"] != ids["vllm"] == ids["trtllm"]


async def test_one_blocker_keeps_all_ids_back(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One warning names it, none is repeated, one line says that it cleared."""
    workers = [await start_worker() for _ in range(2)]
    gateway = await start_gateway(*workers, policy="round_robin")
    prove(gateway)
    known(gateway, workers[0]).proof = Blocker(reason="template_differs", detail="why")
    for _ in range(4):
        await gateway.chat([USER])
    assert skipped(*workers) == [0, 0]
    (line,) = await lines(caplog)
    assert f"{workers[0].url} template_differs (why)" in line
    assert workers[1].url not in line
    labels = {"worker": workers[0].url, "reason": "template_differs"}
    assert await gateway.metric("forwarding_blocked", **labels) == 1
    assert await gateway.metric("forwarding_blocked") == 1
    counted = {"outcome": "withheld", "reason": "worker_blocked"}
    assert await gateway.metric("forwarded_total", **counted) == 4

    known(gateway, workers[0]).proof = PROVEN
    for _ in range(2):
        await gateway.chat([USER])
    assert skipped(*workers) == [1, 1]
    assert len(await lines(caplog)) == 2
    assert await gateway.metric("forwarding_blocked") == 0


async def test_chosen(start_worker: StartWorker, start_gateway: StartGateway) -> None:
    """Those that are proven get ids, whatever the others are."""
    workers = [await start_worker() for _ in range(2)]
    gateway = await start_gateway(*workers, policy="round_robin", forward_when="chosen")
    known(gateway, workers[0]).proof = PROVEN
    for _ in range(4):
        await gateway.chat([USER])
    assert skipped(*workers) == [2, 0]


async def test_never(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody gets ids, nobody blocks them, and nothing is said of it."""
    workers = [await start_worker() for _ in range(2)]
    gateway = await start_gateway(*workers, forward_when="never")
    prove(gateway)
    known(gateway, workers[1]).proof = Blocker(reason="probe_differs")
    for _ in range(2):
        await gateway.chat([USER])
    assert skipped(*workers) == [0, 0]
    counted = {"outcome": "withheld", "reason": "switched_off"}
    assert await gateway.metric("forwarded_total", **counted) == 2
    assert await gateway.metric("forwarding_blocked") == 0
    assert await lines(caplog) == []
    page = await gateway.get("/gateway/workers")
    off = {"allowed": False, "reason": "switched_off"}
    assert [worker["forwarding"] for worker in page["workers"]] == [off, off]


async def test_a_worker_that_is_down_blocks_nobody(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Only ready and suspect workers count."""
    good, gone = [await start_worker() for _ in range(2)]
    gateway = await start_gateway(good, gone)
    prove(gateway)
    known(gateway, gone).proof = Blocker(reason="unreachable")
    for state, expected in ((WorkerState.suspect, 0), (WorkerState.down, 1)):
        known(gateway, gone).state = state
        known(gateway, gone).retry_at = known(gateway, good).since + 1000
        await gateway.chat([USER])
        assert skipped(good) == [expected]


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


async def test_the_workers_page(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Each worker's own part in it, with the particulars."""
    workers = [await start_worker() for _ in range(3)]
    gateway = await start_gateway(*workers)
    prove(gateway, Blocker(reason="probe_differs", detail="tools: token 17"))
    known(gateway, workers[1]).proof = PROVEN
    probed = Proof(by="probes", shapes=frozenset({"tools", "system"}))
    known(gateway, workers[2]).proof = probed
    page = await gateway.get("/gateway/workers")
    assert [worker["forwarding"] for worker in page["workers"]] == [
        {"allowed": False, "reason": "probe_differs", "detail": "tools: token 17"},
        {
            "allowed": True,
            "reason": None,
            "proven_by": "digest",
            "proven_shapes": None,
        },
        {
            "allowed": True,
            "reason": None,
            "proven_by": "probes",
            "proven_shapes": ["system", "tools"],
        },
    ]


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
