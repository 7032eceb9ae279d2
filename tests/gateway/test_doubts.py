"""What may be another process in a worker's place ends what was proven, at once."""

import msgspec
import pytest

from gateway.workers import monitor
from gateway.workers.engines.facts import EventSource
from router.proof import NOT_ASKED
from tests.gateway.forwarding_rig import PROVEN, known, prove
from tests.running import SIM, WITH_EVENTS, StartGateway, StartWorker, until

pytestmark = pytest.mark.usefixtures("proofs_by_hand")

AT_ONCE_S = 3.0


async def test_a_poll_that_fails(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is silent now, and was silent till now: either may be a restart."""
    monkeypatch.setattr(monitor, "REFRESH_S", 0.2)
    worker = await start_worker(SIM)
    gateway = await start_gateway(worker)
    prove(gateway)
    port = int(worker.url.rpartition(":")[2])
    await worker.stop()
    await until(lambda: known(gateway, worker).proof == NOT_ASKED, AT_ONCE_S)
    prove(gateway)
    await start_worker(msgspec.structs.replace(SIM, port=port))
    await until(lambda: known(gateway, worker).proof == NOT_ASKED, AT_ONCE_S)
    prove(gateway)
    doubts = known(gateway, worker).doubts
    await gateway.chat([{"role": "user", "content": "Hello."}])
    assert (known(gateway, worker).proof, known(gateway, worker).doubts) == (
        PROVEN,
        doubts,
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
async def test_events_that_stop(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
) -> None:
    """A lost event connection, or a fetch that fails, with no poll meanwhile."""
    monkeypatch.setattr(monitor, "REFRESH_S", 600.0)
    worker = await start_worker(msgspec.structs.replace(WITH_EVENTS, engine=engine))
    gateway = await start_gateway(worker)
    await gateway.chat([{"role": "user", "content": "Hello. " * 60}])
    feed = known(gateway, worker).knowledge[0].feed
    await until(lambda: feed.owner is not None and feed.owner.blocks > 0)
    prove(gateway)
    await worker.stop()
    await until(lambda: known(gateway, worker).proof == NOT_ASKED, AT_ONCE_S)


async def test_events_that_come_from_elsewhere(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Another endpoint is another process's."""
    worker = await start_worker(SIM)
    gateway = await start_gateway(worker)
    watching = gateway.gateway.monitor
    facts = watching.facts[worker.url]
    there = {0: EventSource(endpoint="tcp://127.0.0.1:9")}
    prove(gateway)
    watching._write_down(known(gateway, worker), facts)
    assert known(gateway, worker).proof == PROVEN
    moved = msgspec.structs.replace(facts, sources=there)
    watching._write_down(known(gateway, worker), moved)
    assert known(gateway, worker).proof == NOT_ASKED
