"""Events of TensorRT-LLM that empty a cache, or create it."""

import json

from tests.kvindex.test_trtllm_feed import CREATED, Worker, stored


def test_created_for_each_window_under_one_number() -> None:
    """One start, too; the same number again behind a block is a restart."""
    worker = Worker()
    worker.drain(CREATED, window=64)
    worker.next = 0
    worker.drain(CREATED, window=4096)
    worker.drain(stored(1), window=4096)
    assert (worker.feed.counters.restarts, worker.feed.complete) == (0, True)
    assert (worker.feed.state, worker.held(1).blocks) == ("live", 1)
    worker.next = 1
    worker.drain(stored(2), window=4096)
    assert worker.feed.counters.restarts == 1
    assert (worker.held(1).blocks, worker.held(2).blocks) == (0, 1)


def test_all_cleared() -> None:
    """Nothing of what was held is believed."""
    worker = Worker()
    worker.drain(CREATED, stored(1, 2))
    cleared = json.dumps({"event_id": 2, "data": {"type": "all_cleared"}}).encode()
    worker.feed.receive(2, cleared)
    assert (worker.held(1).blocks, worker.feed.counters.undecodable) == (0, {})
    assert (worker.feed.state, worker.feed.complete) == ("live", False)
    worker.next = 3
    worker.drain(stored(1))
    assert (worker.held(1).blocks, worker.feed.counters.cleared) == (1, 1)
