"""Whole gateways that send ids along: to whom, in which field, and when not."""

import pytest

from render import Renderer
from tests.gateway.forwarding_rig import (
    Bodies,
    chat,
    ids_in,
    prove,
    rendered,
    sim,
    skipped,
)
from tests.running import StartGateway, StartWorker

pytestmark = pytest.mark.usefixtures("never_blocks", "proofs_by_hand")
CHAT = "/v1/chat/completions"


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> Bodies:
    """What the simulated workers of this test are sent."""
    return Bodies(monkeypatch)


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
