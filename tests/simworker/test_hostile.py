"""Bodies no client should send: answered or refused, never an internal error."""

from collections.abc import Mapping
from random import Random
from typing import Any

import aiohttp
import msgspec
import pytest

from simworker.server import SimWorker
from simworker.sglang import fields as sglang
from simworker.trtllm import fields as trtllm
from tests.running import StartWorker
from tests.simworker.conftest import FAST
from tests.simworker.talk import CHAT, get, post

COMPLETIONS = "/v1/completions"
HELLO = [{"role": "user", "content": "hi"}]
BASES: Mapping[str, dict[str, Any]] = {
    CHAT: {"model": "m", "messages": HELLO, "max_tokens": 2},
    COMPLETIONS: {"model": "m", "prompt": "hi", "max_tokens": 2},
}
TABLES: Mapping[str, tuple[Any, Any]] = {
    "trtllm": (trtllm.CHAT, trtllm.COMPLETION),
    "sglang": (sglang.CHAT, sglang.COMPLETION),
}
VALUES: list[Any] = [
    None, True, 0, -1, 1, 2**31, 2**40, 1e308, "", "x", "1", [], [1], ["x"], [[1]],
    [None], {}, {"a": 1}, {"function": {"name": "f"}}, [{"function": {"name": "f"}}],
    [{"type": "function", "function": None}], "\ud83d", "\x00", HELLO,
    [{"role": "user", "content": [{"type": "image_url"}]}], [{"role": "tool"}],
    [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}],
]  # fmt: skip


@pytest.fixture(params=sorted(TABLES))
async def worker(
    request: pytest.FixtureRequest, start_worker: StartWorker
) -> SimWorker:
    """A worker of each engine whose fields are tables."""
    return await start_worker(
        msgspec.structs.replace(FAST, engine=request.param, max_model_len=64)
    )


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_odd_fields(
    client: aiohttp.ClientSession, worker: SimWorker, path: str
) -> None:
    """Any value in any field is a 200 or a 400."""
    table = TABLES[worker.options.engine][path == COMPLETIONS]
    rng, found = Random(path), []
    for _ in range(150):
        changes = {rng.choice(list(table)): rng.choice(VALUES) for _ in range(2)}
        status, _ = await post(client, worker, path, BASES[path] | changes)
        found.append(status)
    assert set(found) == {200, 400}
    stats = await get(client, worker, "/sim/stats")
    assert (stats["requests"], stats["running"]) == (150, 0)


@pytest.mark.parametrize("raw", [b"\xff\xfe{", b"[" * 100_000, b"", b"null", b"{"])
async def test_no_object(
    client: aiohttp.ClientSession, worker: SimWorker, raw: bytes
) -> None:
    """What is no JSON object is a 400, and so is another content type."""
    for kind in ("application/json", "text/plain"):
        headers = {"Content-Type": kind}
        url = worker.url + CHAT
        async with client.post(url, data=raw, headers=headers) as response:
            assert response.status == 400
            assert await response.json()
