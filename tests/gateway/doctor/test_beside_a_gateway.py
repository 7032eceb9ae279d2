"""A gateway that runs loses nothing by a doctor, and is not taken for a fault."""

from pathlib import Path

import pytest

from gateway.doctor.checkup import DoctorConfig, check, report
from gateway.doctor.hearing import FIRST, LEFT, TAKEN, UNHEARD, UNLISTENED
from gateway.settings.values import EventTopic
from tests.gateway.doctor.hurried import hurried
from tests.gateway.fed import TURN, feeds, held, options, states, turn
from tests.running import StartGateway, StartWorker, free_port, until


def config(url: str, model_dir: Path, **more: object) -> DoctorConfig:
    """The doctor's options for this worker."""
    model = ((None, str(model_dir)),)
    return DoctorConfig(workers=((url,),), wait=15.0, model=model, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("probe", [False, True])
async def test_events_that_are_handed_out_once(
    probe: bool,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    model_dir: Path,
) -> None:
    """They are left to the gateway that runs; where they are taken it is said."""
    worker = await start_worker(options("trtllm"))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) > 0)
    with hurried():
        (found,) = await check(config(worker.url, model_dir, probe=probe))
    for number in range(4):
        await gateway.chat(turn(number))
    if probe:  # which of the two fetched first is a race
        assert found.findings[-1] == (FIRST if "nothing" in found.events else TAKEN)
        return
    assert (found.events, found.findings) == ("?", (LEFT,))
    assert "nothing is wrong" in report([found])
    (feed,) = feeds(gateway, worker).values()
    assert (states(gateway, worker), feed.counters.gaps) == (["live"], 0)


@pytest.mark.parametrize("probe", [False, True])
async def test_a_port_that_a_gateway_listens_at(
    probe: bool,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    model_dir: Path,
) -> None:
    """Whether events come is not known: no fault of the worker, which has no remedy."""
    bind = f"tcp://127.0.0.1:{free_port()}"
    publisher = {"kv_events_connect": bind, "kv_events_topic": "mine"}
    worker = await start_worker(options(**publisher))
    listens = {
        "kv_events_bind": bind,
        "kv_events_topic": (EventTopic(worker.url, "mine"),),
    }
    gateway = await start_gateway(worker, **listens)
    asked = config(worker.url, model_dir, probe=probe, **listens)
    with hurried():
        found, *own = await check(asked)
    assert found.events == "?"
    assert found.findings == (UNHEARD if probe else UNLISTENED,)
    assert [checkup.url for checkup in own] == [bind] * probe
    text = report([found, *own])
    assert "nothing is wrong" in text
    assert ("Address already in use" in text) == probe
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) > 0)


async def test_a_port_where_nobody_listens(
    start_worker: StartWorker, model_dir: Path
) -> None:
    """The doctor does: events arrive, and nothing is wrong."""
    bind = f"tcp://127.0.0.1:{free_port()}"
    worker = await start_worker(options(kv_events_connect=bind, kv_events_topic="mine"))
    topics = (EventTopic(worker.url, "mine"),)
    listens = {"kv_events_bind": bind, "kv_events_topic": topics}
    found = await check(config(worker.url, model_dir, probe=True, **listens))
    assert [(checkup.events, checkup.findings) for checkup in found] == [
        ("live, heard", ())
    ]


async def test_an_address_of_another_machine(
    start_worker: StartWorker, model_dir: Path
) -> None:
    """Nobody can listen there: that is wrong, but not of the worker."""
    worker = await start_worker(options(kv_events=False))
    bind = "tcp://192.0.2.1:5557"
    found, own = await check(
        config(worker.url, model_dir, probe=True, kv_events_bind=bind)
    )
    assert found.findings == (UNHEARD,)
    (finding,) = own.findings
    assert (own.url, finding.wrong) == (bind, True)
    assert "--kv-events-bind" in finding.remedy
