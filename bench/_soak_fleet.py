"""The workers of the soak: all engines, each with an option that others do not have."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

import simworker.server
from bench._processes import free_port
from render import Renderer
from simworker.model import NAME, demo_model_dir
from simworker.options import SimOptions
from simworker.server import SimWorker

TOPIC = "soak-connects"
KEEP_ALIVE_S = 60.0
"""Workers that a busy machine holds up for seconds would close what is just used."""
BASE = SimOptions(
    port=0, speed=4.0, blocks=1500, block_size=16, served_model_name=(NAME,)
)
KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("vllm", {"replay_port": 0}),
    ("sglang", {"replay_port": 0, "block_size": 64, "blocks": 400}),
    ("trtllm", {"block_size": 32, "blocks": 800}),
    ("vllm", {"replay_port": 0, "data_parallel_size": 2, "blocks": 900}),
    ("sglang", {"replay_port": 0, "block_size": 1, "blocks": 24_000}),
    ("trtllm", {"block_size": 32, "blocks": 500, "host_blocks": 400}),
    ("vllm", {"replay_port": 0, "legacy_replay": True, "event_layout": "0.20"}),
    ("sglang", {"block_size": 32, "blocks": 800, "host_blocks": 500}),
    ("trtllm", {"block_size": 32, "blocks": 800, "event_hash_algo": "v2_sha256"}),
    ("vllm", {"kv_events_topic": TOPIC}),
    ("sglang", {"replay_port": 0, "block_size": 16, "bigrams": True}),
    ("trtllm", {"block_size": 32, "blocks": 800, "tails": True}),
    ("vllm", {"replay_port": 0, "bytes_hashes": True, "host_blocks": 800}),
    ("vllm", {"attention_windows": (64,)}),
    ("sglang", {"replay_port": 0, "block_size": 64, "blocks": 400, "tails": True}),
    ("vllm", {"kv_events": False}),
)


class Fleet:
    """The workers, in this process; `words` are what their gateway must be told."""

    def __init__(self, count: int, *, cache: float) -> None:
        """`cache` multiplies the size of each cache."""
        self._count = count
        self._cache = cache
        self.workers: list[SimWorker] = []
        self.words: list[str] = []

    async def start(self) -> None:
        """Start them, on free ports."""
        simworker.server.KEEP_ALIVE_S = KEEP_ALIVE_S
        renderer = Renderer.load(demo_model_dir())
        binding = f"tcp://127.0.0.1:{free_port()}"
        self.words = ["--kv-events-bind", binding]
        for number in range(self._count):
            engine, changes = KINDS[number % len(KINDS)]
            options = msgspec.structs.replace(BASE, engine=engine, **changes)
            options = msgspec.structs.replace(
                options, blocks=int(options.blocks * self._cache)
            )
            connects = options.kv_events_topic == TOPIC
            topic = f"{TOPIC}-{number}"
            if connects:
                options = msgspec.structs.replace(
                    options, kv_events_connect=binding, kv_events_topic=topic
                )
            worker = SimWorker(options, renderer)
            await worker.start()
            self.workers.append(worker)
            if connects:
                self.words += ["--kv-events-topic", f"{worker.url}={topic}"]
        urls = ",".join(worker.url for worker in self.workers)
        self.words += ["--workers", urls, "--model", str(demo_model_dir())]

    async def stop(self) -> None:
        """Stop all of them."""
        await asyncio.gather(*(worker.stop() for worker in self.workers))


def kind(worker: SimWorker) -> str:
    """A worker in a few words: its engine and what is special about it."""
    options, changed = worker.options, []
    for name in SimOptions.__struct_fields__:
        value = getattr(options, name)
        if name in _SPECIAL and value != getattr(BASE, name):
            changed.append(f"{name}={value}")
    return " ".join([options.engine, *changed])


_SPECIAL: Sequence[str] = (
    "data_parallel_size", "block_size", "host_blocks", "bigrams", "tails", "kv_events",
    "event_layout", "event_hash_algo", "bytes_hashes", "attention_windows",
    "kv_events_connect",
)  # fmt: skip
