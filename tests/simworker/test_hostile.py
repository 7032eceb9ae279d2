"""Bodies no client should send: answered or refused, never an internal error."""

import asyncio
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
NATIVE: Mapping[str, tuple[str, str]] = {
    "sglang": ("/generate", "input_ids"),
    "vllm": ("/inference/v1/generate", "token_ids"),
}
"""By engine, its own call, and the field that has the ids."""
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


@pytest.mark.parametrize("engine", sorted(NATIVE))
async def test_odd_sampling(
    client: aiohttp.ClientSession, start_worker: StartWorker, engine: str
) -> None:
    """Any value in any sampling parameter of an engine's own call is answered."""
    worker = await start_worker(msgspec.structs.replace(FAST, engine=engine))
    path, ids = NATIVE[engine]
    found = []
    for name in ("n", "max_tokens", "max_new_tokens", "stop", "stop_token_ids"):
        for value in VALUES:
            sampling = {"max_tokens": 2, "max_new_tokens": 2} | {name: value}
            body = {ids: [1, 2], "sampling_params": sampling}
            async with asyncio.timeout(10):
                status, _ = await post(client, worker, path, body)
            found.append(status)
    assert set(found) == {200, 400}


@pytest.mark.parametrize(
    ("engine", "path", "body"),
    [
        ("sglang", "/generate", {"text": ["hello"] * 112_000}),
        ("sglang", "/generate", {"text": "hello", "sampling_params": {"n": 1 << 40}}),
        ("sglang", COMPLETIONS, {"prompt": [[1]] * 112_000}),
        ("vllm", COMPLETIONS, {"prompt": ["hello"] * 112_000}),
        ("vllm", COMPLETIONS, {"prompt": ["hello"] * 64, "n": 128}),
        ("trtllm", COMPLETIONS, {"prompt": ["hello"] * 112_000}),
        (
            "vllm",
            "/inference/v1/generate",
            {"token_ids": [1], "sampling_params": {"n": 1 << 40}},
        ),
    ],
)
async def test_far_too_many_answers(
    client: aiohttp.ClientSession,
    start_worker: StartWorker,
    engine: str,
    path: str,
    body: dict[str, Any],
) -> None:
    """One request does not keep the worker from all others."""
    worker = await start_worker(
        msgspec.structs.replace(FAST, engine=engine, served_model_name=("m",))
    )
    async with asyncio.timeout(30):
        status, _ = await post(client, worker, path, {"model": "m", **body})
        assert status == 400
        few = {"model": "m", "prompt": "hi", "max_tokens": 2}
        status, _ = await post(client, worker, COMPLETIONS, few)
        assert status == 200
