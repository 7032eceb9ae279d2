"""What the doctor finds wrong with feeds, and which flag it names for each cause."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gateway.doctor.checkup import DoctorConfig, check, diagnose
from gateway.doctor.diagnosis import Checkup
from gateway.doctor.feed_findings import LEFT_OUT
from gateway.settings.values import EventEndpoint
from kvindex.events import BlockStored
from tests.gateway.doctor.hurried import hurried
from tests.gateway.fed import options
from tests.gateway.test_broken_events import Publisher, publishing, stored
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer
from tests.running import SIM, StartWorker, free_port


def config(url: str, model_dir: Path, **more: object) -> DoctorConfig:
    """The doctor's options for this worker."""
    model = ((None, str(model_dir)),)
    given = {"wait": 15.0, "probe": True, "model": model, **more}
    return DoctorConfig(workers=((url,),), **given)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def saying(publisher: Publisher, event: BlockStored) -> AsyncIterator[None]:
    """The publisher says this again and again, in batches that follow on."""

    async def say() -> None:
        for sequence in range(1000):
            publisher.events(sequence, event)
            await asyncio.sleep(0.05)

    task = asyncio.create_task(say())
    try:
        yield
    finally:
        task.cancel()


@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
async def test_ends_of_prompts_are_no_fault(
    engine: str, start_worker: StartWorker, model_dir: Path
) -> None:
    """Engines cache a last block that is not full; nothing is missed without it."""
    worker = await start_worker(options(engine, tails=True))
    (found,) = await check(config(worker.url, model_dir))
    assert found.events == "live, heard"
    assert not [finding for finding in found.findings if finding.wrong]


@pytest.mark.parametrize(
    ("odd", "remedy"),
    [
        ({"group": 1, "group_kind": "sliding_window"}, "full attention"),
        ({"group_kind": "unknown"}, "newer gateway"),
        ({"block_size": 15}, "newer gateway"),
    ],
)
async def test_events_of_which_none_is_indexed(
    odd: dict[str, object], remedy: str, start_worker: StartWorker, model_dir: Path
) -> None:
    """What is left out on purpose is a fault where nothing else comes."""
    worker = await start_worker(SIM)
    event = msgspec.structs.replace(stored(1), **odd)
    async with publishing() as publisher, saying(publisher, event):
        events = (EventEndpoint(worker.url, 0, publisher.endpoint),)
        with hurried():
            (found,) = await check(config(worker.url, model_dir, kv_events=events))
    assert found.source == publisher.endpoint
    (finding,) = [f for f in found.findings if "none can be indexed" in f.problem]
    assert finding.wrong
    assert remedy in finding.remedy


async def test_hashes_of_an_unknown_recipe(
    start_worker: StartWorker, model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No block of TensorRT-LLM is known to be of the base model then."""
    told = "gateway.workers.engines.trtllm.string"
    monkeypatch.setattr(told, lambda info, name: "v9_new" if "algo" in name else None)
    worker = await start_worker(options("trtllm"))
    with hurried():
        (found,) = await check(config(worker.url, model_dir))
    (finding,) = [f for f in found.findings if "none can be indexed" in f.problem]
    assert finding.problem.endswith("namespace")
    assert "kv_cache_event_hash_algo" in finding.remedy
    assert found.source == "POST /kv_cache_events"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_a_publisher_that_connects(
    engine: str, start_worker: StartWorker, model_dir: Path
) -> None:
    """To where nobody listens: the flag that listens there is named."""
    port = free_port()
    connects = {"kv_events_connect": f"tcp://127.0.0.1:{port}"}
    worker = await start_worker(options(engine, **connects))
    with hurried():
        (found,) = await check(config(worker.url, model_dir))
    finding = found.findings[0]
    assert "nothing publishes at" in finding.problem
    assert finding.remedy.startswith(f"--kv-events-bind tcp://*:{port} here")
    assert "start it with" not in finding.remedy
    assert found.source == f"tcp://127.0.0.1:{port}"
    bound = config(worker.url, model_dir, kv_events_bind=f"tcp://127.0.0.1:{port}")
    (mended,) = await check(bound)
    assert (mended.events, mended.findings) == ("live, heard", ())
    assert mended.source == "--kv-events-bind"


async def test_a_page_that_wants_a_key(model_dir: Path) -> None:
    """Said once, with its flag; a block size that nobody told is only assumed.

    sgl-project/sglang#30046
    """
    listing = {"data": [{"id": "m", "owned_by": "sglang"}]}

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            known = request.startswith(b"GET /v1/models")
            refusal = json_answer(b"{}", status=b"401 Unauthorized")
            answer = json_answer(json.dumps(listing).encode()) if known else refusal
            await connection.send(answer)

    async with RawWorker(script) as worker:
        asked = config(worker.url, model_dir, wait=2.0, probe=False)
        (found,) = await check(asked)
    about = [f for f in found.findings if "/server_info answers 401" in f.problem]
    assert [finding.remedy for finding in about] == ["--worker-api-key KEY"]
    assert not any("event source" in f.problem for f in found.findings)
    assert not any("--kv-events-config" in f.remedy for f in found.findings)
    assert (found.source, found.block_size) == ("nowhere", "16 (assumed)")


def test_where_events_come_from_is_a_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside whether any come."""

    async def one(config: DoctorConfig) -> list[Checkup]:
        return [Checkup(url="http://w1:8000", state="ready", source="tcp://w1:5557")]

    monkeypatch.setattr("gateway.doctor.checkup.check", one)
    diagnose(DoctorConfig(workers=(("http://w1:8000",),)))
    head, row, *_ = capsys.readouterr().out.splitlines()
    assert head.index("events from") == row.index("tcp://w1:5557")
    assert head.index("events from") < head.index("KV events")


def test_what_is_left_out_on_purpose() -> None:
    """Sizes that fit nowhere are none of it."""
    assert "tail" in LEFT_OUT
    assert "block_size" not in LEFT_OUT
