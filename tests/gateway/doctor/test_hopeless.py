"""What the doctor does not wait for: what would not come however long it waited."""

import asyncio
from pathlib import Path

from gateway.doctor.checkup import check
from gateway.settings.values import EventEndpoint
from tests.gateway.doctor.hurried import hurried
from tests.gateway.doctor.test_feeds import config
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer
from tests.running import free_port

LISTING = b'{"data": [{"id": "m", "owned_by": "vllm"}]}'


async def test_a_worker_that_refuses_is_not_waited_for(model_dir: Path) -> None:
    """It wants a key, and says so at once."""

    async def script(connection: WorkerConnection) -> None:
        while await connection.request():
            await connection.send(json_answer(b"{}", status=b"401 Unauthorized"))

    async with RawWorker(script) as worker, asyncio.timeout(30):
        (found,) = await check(config(worker.url, model_dir, wait=60.0, render="never"))
    (finding,) = found.findings
    assert finding.problem == "/v1/models answers 401"
    assert finding.remedy == "--worker-api-key KEY"


async def test_a_chat_that_failed_is_not_sent_again(model_dir: Path) -> None:
    """Its events are missing because of that, not because it came too early."""
    chats: list[bytes] = []

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            listed = request.startswith(b"GET /v1/models")
            if request.startswith(b"POST /v1/chat/completions"):
                chats.append(request)
            failed = json_answer(b"{}", status=b"500 Internal Server Error")
            await connection.send(json_answer(LISTING) if listed else failed)

    async with RawWorker(script) as worker:
        endpoint = f"tcp://127.0.0.1:{free_port()}"
        events = (EventEndpoint(worker.url, 0, endpoint),)
        asked = config(worker.url, model_dir, kv_events=events, render="never")
        with hurried():
            (found,) = await check(asked)
    assert "a small chat is answered 500" in {f.problem for f in found.findings}
    assert len(chats) == 1
