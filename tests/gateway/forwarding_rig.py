"""Fleets whose proofs are set by hand, and what their workers were sent."""

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web

from kvindex.blocks import unpack_ids
from render import Renderer
from router.forwarding import Blocker, Proof
from router.worker import Worker
from simworker.options import SimOptions
from simworker.request import read_body
from simworker.server import SimWorker
from tests.running import MODEL, SIM, Running

TICK_S = 0.02
"""How often the gateways of these tests look at blockers."""
PROVEN = Proof(by="digest")
IDS_FIELDS = {
    "vllm": ("kv_transfer_params", "prompt_token_ids"),
    "sglang": ("input_ids",),
    "trtllm": ("prompt_token_ids",),
}
USER = {"role": "user", "content": "What do lighthouses have in common?"}


def chat(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A chat body; of one user's message if none are given."""
    body = {"model": MODEL, "messages": list(messages) or [USER], "max_tokens": 4}
    return body | fields


def sim(engine: str = "vllm") -> SimOptions:
    """The options of a simulated worker of that engine."""
    return msgspec.structs.replace(SIM, engine=engine)


def known(gateway: Running, worker: SimWorker | str) -> Worker:
    """The gateway's record of a worker."""
    url = worker if isinstance(worker, str) else worker.url
    found = gateway.gateway.pool.get(url)
    assert found is not None
    return found


def prove(gateway: Running, proof: Proof | Blocker = PROVEN) -> None:
    """Set the proof of all workers."""
    for worker in gateway.gateway.pool.workers:
        worker.proof = proof


def skipped(*workers: SimWorker) -> list[int]:
    """How many chats each worker did not have to render."""
    return [worker.api.totals.skipped_rendering for worker in workers]


class Bodies:
    """The generation bodies that simulated workers were sent, by port."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._seen: dict[int, list[Any]] = {}

        async def recorded(request: web.Request) -> Any:
            body = await read_body(request)
            self._seen.setdefault(request.url.port or 0, []).append(body)
            return body

        monkeypatch.setattr("simworker.api.read_body", recorded)

    def of(self, worker: SimWorker) -> list[Any]:
        """Those of one worker, in order."""
        return self._seen.get(int(worker.url.rpartition(":")[2]), [])


def ids_in(body: Any, engine: str) -> list[int] | None:
    """The ids a body brings, in that engine's field; in no other engine's."""
    found = {}
    for of, field in IDS_FIELDS.items():
        value = body
        for name in field:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            found[of] = value
    assert set(found) <= {engine}
    return found.get(engine)


def rendered(renderer: Renderer, body: dict[str, Any], profile: str) -> list[int]:
    """The ids of a chat body as that profile renders it."""
    return unpack_ids(renderer.with_profile(profile).render_chat(body).token_ids)


async def lines(
    caplog: pytest.LogCaptureFixture, logger: str = "router.blockers"
) -> list[str]:
    """What was said about blockers up to now, once that has been looked at."""
    await asyncio.sleep(3 * TICK_S)
    return [r.getMessage() for r in caplog.records if r.name == logger]
