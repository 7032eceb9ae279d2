"""A worker that takes requests and says nothing, whose server is well."""

from typing import Any

import pytest

from router.worker import WorkerState
from tests.gateway.scripted import CHAT, LISTING
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer
from tests.running import StartGateway

WORDS = ["some", "words"]


async def hung(connection: WorkerConnection) -> None:
    """Health, models and all are there; what is posted gets no answer."""
    while request := await connection.request():
        if request.startswith(b"POST"):
            await connection.closed_by_peer()
            return
        await connection.send(answer(request))


async def well(connection: WorkerConnection) -> None:
    """Answers whatever it is asked."""
    while request := await connection.request():
        await connection.send(answer(request))


def answer(request: bytes) -> bytes:
    """What both say."""
    listed = request.startswith(b"GET /v1/models")
    return LISTING if listed else json_answer(b"{}")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", {"model": "m", "prompt": "hi"}),
        ("/v1/embeddings", {"model": "m", "input": WORDS}),
        ("/v1/rerank", {"model": "m", "query": "hi", "documents": WORDS}),
    ],
)
async def test_answers_that_are_not_streamed(
    start_gateway: StartGateway, path: str, body: dict[str, Any]
) -> None:
    """The first that times out takes it out; its health checks may pass for ever."""
    async with RawWorker(hung) as worker, RawWorker(well) as other:
        gateway = await start_gateway(
            worker.url,
            other.url,
            policy="round_robin",
            forward_when="never",
            first_byte_timeout=0.3,
            health_interval=0.2,
        )
        statuses = []
        for _ in range(30):
            async with gateway.client.post(gateway.url + path, json=body) as response:
                statuses.append(response.status)
        known = gateway.gateway.pool.get(worker.url)
        assert known is not None
        assert (known.failures > 0, known.error_share) == (True, 0.0)
        assert statuses.count(504) <= 5  # a second later, two, four and eight
        assert statuses.count(200) == 30 - statuses.count(504)
        assert gateway.gateway.pool.workers[1].state is WorkerState.ready
