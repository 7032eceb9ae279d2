"""Gateways and simulated workers with events: what the tests of feeds ask them."""

from typing import Any

import msgspec

from kvindex.feed import Feed
from simworker.server import SimWorker
from tests.running import MODEL, WITH_EVENTS, Running

TEXT = "Which harbour is the oldest that is still in use, and who says so? " * 12
TURN = [{"role": "user", "content": TEXT}]
ENGINES = ["vllm", "sglang", "trtllm"]
SIZE = 16


def options(engine: str = "vllm", **changes: Any) -> Any:
    """Of a fast worker with events."""
    return msgspec.structs.replace(
        WITH_EVENTS, **{"engine": engine, "block_size": SIZE} | changes
    )


def turn(number: int) -> list[dict[str, Any]]:
    """A prompt that has no block in common with another number's."""
    return [{"role": "user", "content": f"{number}: {TEXT}"}]


def feeds(gateway: Running, worker: SimWorker | str) -> dict[int, Feed]:
    """A worker's feeds by rank."""
    url = worker if isinstance(worker, str) else worker.url
    known = gateway.gateway.pool.get(url)
    assert known is not None
    return {rank: knowledge.feed for rank, knowledge in known.knowledge.items()}


def held(gateway: Running, worker: SimWorker | str) -> int:
    """The blocks that the index has for a worker, at all its ranks."""
    owners = [feed.owner for feed in feeds(gateway, worker).values()]
    return sum(owner.blocks for owner in owners if owner)


def states(gateway: Running, worker: SimWorker | str) -> list[str]:
    """The states of a worker's feeds."""
    return [feed.state.value for feed in feeds(gateway, worker).values()]


async def told(gateway: Running, messages: list[dict[str, Any]]) -> int:
    """The tokens of a chat that the index has for the first worker."""
    asked = {"model": MODEL, "messages": messages}
    explained = await gateway.post("/gateway/explain", asked)
    return int(explained["workers"][0]["held_tokens"])


async def sim(gateway: Running, worker: SimWorker, path: str, **body: Any) -> Any:
    """Have a simulated worker play something."""
    async with gateway.client.post(worker.url + path, json=body) as response:
        assert response.status == 200, await response.text()
        return await response.json()
