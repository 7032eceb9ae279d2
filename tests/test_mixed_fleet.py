"""Workers of all engines behind one gateway, each matched by its own rendering."""

from typing import Any

import msgspec
import pytest

from tests.running import MODEL, SIM, StartGateway, StartWorker

PARTS = [
    {"type": "text", "text": "Tell me of harbours. " * 30},
    {"type": "text", "text": "And of the ships in them. " * 30},
]
"""Content in parts: the engines join it differently, so the ids differ."""


@pytest.mark.parametrize("engine", ["vllm", "trtllm", "sglang"])
async def test_each_engine_finds_its_own_second_turn(
    engine: str, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Prompt tokens rendered equal those the worker counts; the next turn hits."""
    options = msgspec.structs.replace(
        SIM, engine=engine, block_size=16, kv_events=False
    )
    workers = [await start_worker(options) for _ in range(2)]
    gateway = await start_gateway(*workers)
    messages: list[dict[str, Any]] = [{"role": "user", "content": PARTS}]
    asked = {"model": MODEL, "messages": messages}
    explained = await gateway.post("/gateway/explain", asked)
    first = await gateway.chat(messages)
    prompt_tokens = first.body["usage"]["prompt_tokens"]
    assert explained["prompt_tokens"] == prompt_tokens
    messages += [
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "Go on."},
    ]
    second = await gateway.chat(messages)
    assert second.worker == first.worker
    assert second.cached >= (prompt_tokens - 1) // 16 * 16


async def test_one_gateway_before_all_three(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """A chat stays on its worker whatever engine that is; nobody answers an error."""
    workers = [
        await start_worker(
            msgspec.structs.replace(SIM, engine=engine, block_size=16, kv_events=False)
        )
        for engine in ("vllm", "trtllm", "sglang")
    ]
    gateway = await start_gateway(*workers)
    homes = set()
    for number in range(6):
        opening = [{"type": "text", "text": f"Chat {number}."}, *PARTS]
        messages: list[dict[str, Any]] = [{"role": "user", "content": opening}]
        first = await gateway.chat(messages)
        messages += [
            {"role": "assistant", "content": first.text},
            {"role": "user", "content": "Go on."},
        ]
        assert (await gateway.chat(messages)).worker == first.worker
        homes.add(first.worker)
    assert homes == {worker.url for worker in workers}
