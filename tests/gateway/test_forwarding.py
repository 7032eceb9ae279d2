"""Whole gateways that send ids along: to whom, in which field, and when not."""

import logging

import pytest

from gateway import housekeeping
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
