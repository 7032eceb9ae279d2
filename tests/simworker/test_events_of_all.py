"""Who follows the events of a worker knows its cache: every engine, every option."""

import random
from collections import Counter
from collections.abc import Callable

import aiohttp
import msgspec
import pytest

from kvindex.events import BlockRemoved, BlockStored, BlockUpdated, EventBatch
from kvindex.wire import sglang, trtllm, vllm
from kvindex.wire.trtllm_drain import split_drain
from simworker.options import SimOptions
from simworker.server import SimWorker
from tests.running import StartWorker
from tests.simworker.conftest import FAST
from tests.simworker.follow import Believed, truth
from tests.simworker.talk import chat, post, subscribed

DECODERS: dict[str, Callable[[bytes], EventBatch]] = {
    "vllm": vllm.decode_batch,
    "sglang": sglang.decode_batch,
}
SMALL = msgspec.structs.replace(
    FAST, blocks=40, block_size=16, served_model_name=("m",)
)
CASES: dict[str, dict[str, object]] = {
    "vllm": {},
    "vllm tier": {"host_blocks": 20},
    "vllm bare tier": {"host_blocks": 20, "bare_offload": True},
    "vllm bytes": {"bytes_hashes": True},
    "vllm 0.9": {"event_layout": "0.9"},
    "vllm 0.22": {"event_layout": "0.22", "host_blocks": 10},
    "vllm windows": {"attention_windows": (32, 64)},
    "sglang": {},
    "sglang tier": {"host_blocks": 20},
    "sglang arrays": {"event_layout": "sglang-arrays"},
    "sglang page 1": {"block_size": 1, "blocks": 400},
    "sglang pairs": {"bigrams": True},
    "sglang tails": {"tails": True},
    "trtllm": {},
    "trtllm tier": {"host_blocks": 20},
    "trtllm tails": {"tails": True},
    "trtllm v2": {"event_hash_algo": "v2_sha256", "host_blocks": 9},
    "trtllm v2 short": {"event_hash_algo": "v2_sha256_64"},
    "trtllm windows": {"attention_windows": (32,), "host_blocks": 20},
}


def options(case: str) -> SimOptions:
    """A small worker's options."""
    engine, _, _ = case.partition(" ")
    return msgspec.structs.replace(SMALL, engine=engine, **CASES[case])


async def traffic(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """Chats that share prefixes, and more of them than the cache holds."""
    rng = random.Random(7)
    for number in range(24):
        words = f"topic {number % 3} " * 20 + f"question {rng.randrange(6)} " * 12
        messages = [{"role": "user", "content": words}]
        await chat(client, worker, model="m", messages=messages, max_tokens=20)


@pytest.mark.parametrize("case", list(CASES))
async def test_events_tell_the_truth(
    client: aiohttp.ClientSession, start_worker: StartWorker, case: str
) -> None:
    """Each block in each medium, evictions and moves included."""
    worker = await start_worker(options(case))
    windows = [Believed() for _ in worker.options.attention_windows]
    believed, kinds = Believed(), Counter[type]()
    if worker.publisher is None:
        await traffic(client, worker)
        batches = await drained(client, worker)
    else:
        async with subscribed(worker) as subscriber:
            subscriber.decode = DECODERS[worker.options.engine]
            await traffic(client, worker)
            batches = await subscriber.batches(worker.publisher.next_sequence)
    for batch in batches:
        assert batch.undecodable == ()
        for event in batch.events:
            group = getattr(event, "group", None) or 0
            (windows[group - 1] if group else believed).take([event])
        kinds.update(type(event) for event in batch.events)
    assert believed.places == truth(worker.cache)
    for windowed in windows:
        assert windowed.places < believed.places
    assert kinds[BlockStored] > 5
    moves = worker.options.engine == "trtllm" and worker.options.host_blocks
    assert (kinds[BlockUpdated] > 0) == bool(moves)
    assert kinds[BlockRemoved] + kinds[BlockUpdated] > 5
    orphans = {each for each in believed.parents.values() if each is not None}
    assert orphans <= set(believed.parents)


async def drained(client: aiohttp.ClientSession, worker: SimWorker) -> list[EventBatch]:
    """All that waits in the buffer; the ids have no hole."""
    async with client.post(worker.url + "/kv_cache_events") as response:
        drain = split_drain(await response.read())
    assert drain.undecodable == ()
    assert [event.event_id for event in drain.events] == list(range(len(drain.events)))
    assert (await post(client, worker, "/kv_cache_events", {}))[1] == []
    return [trtllm.decode_event(bytes(event.payload)) for event in drain.events]
