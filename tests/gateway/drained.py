"""A TensorRT-LLM worker that hands out events as a test wants."""

import json
from typing import Any

from kvindex.wire.trtllm_hashes import v1_block_key
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer

LISTING = json_answer(b'{"data": [{"id": "m", "owned_by": "tensorrt_llm"}]}')
INFO = json_answer(b'{"tokens_per_block": 16, "disaggregated_params": {}}')


def created(event_id: int) -> dict[str, Any]:
    """The first event of a cache."""
    return {
        "event_id": event_id,
        "data": {"type": "created", "num_blocks_per_cache_level": [100, 0]},
        "window_size": 4096,
    }


def stored(event_id: int, *numbers: int, rank: int | None = None) -> dict[str, Any]:
    """A chain of blocks of 16 tokens, by this engine's own recipe."""
    blocks, name = [], 0
    for number in numbers:
        ids = range(16 * number, 16 * number + 16)
        name = v1_block_key(ids, name)
        block = {
            "type": "stored_block",
            "block_hash": name,
            "tokens": [{"type": "unique_token", "token_id": i} for i in ids],
            "cache_level": 0,
            "priority": 35,
        }
        blocks.append(block)
    data = {"type": "stored", "parent_hash": None, "blocks": blocks}
    event: dict[str, Any] = {"event_id": event_id, "data": data, "window_size": 4096}
    return event if rank is None else event | {"attention_dp_rank": rank}


class Scripted(RawWorker):
    """A TensorRT-LLM worker with answers to give out: events, or raw bytes."""

    def __init__(self, *answers: list[dict[str, Any]] | bytes) -> None:
        super().__init__(self._serve)
        self.answers = list(answers)
        self.fetches = 0
        self.over = False

    async def __aenter__(self) -> "Scripted":
        await super().__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.over = True  # a fetch may come just when its connection is cancelled
        await super().__aexit__(*error)

    async def _serve(self, connection: WorkerConnection) -> None:
        while not self.over and (request := await connection.request()):
            method, path, _ = request.split(b" ", 2)
            if path == b"/v1/models":
                await connection.send(LISTING)
            elif path == b"/server_info":
                await connection.send(INFO)
            elif (method, path) == (b"POST", b"/kv_cache_events"):
                self.fetches += 1
                answer = self.answers.pop(0) if self.answers else []
                if not answer and isinstance(answer, bytes):
                    return  # hang up
                if not isinstance(answer, bytes):
                    answer = json_answer(json.dumps(answer).encode())
                await connection.send(answer)
            else:
                await connection.send(json_answer(b"{}", status=b"404 Not Found"))
