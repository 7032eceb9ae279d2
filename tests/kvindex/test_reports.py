"""Failures of other gateways in the field, each with the input that caused it.

Reports about events, index, hashes, adapters and memory; each test names its thread.
Where our design decides otherwise than the report asks, the design's outcome is tested.
Those of whole drains and of replays are in `test_trtllm_feed.py`, `test_replay.py`.
"""

import random

import pytest

from kvindex.blocks import Namespace, chain
from kvindex.events import BlockStored, EventBatch, UndecodableBatch
from kvindex.owner import BLOCK_BYTES, HOLDING_BYTES
from kvindex.pages import indexed_size
from kvindex.wire.vllm import END_OF_REPLAY, decode_batch, decode_frames, encode_batch
from tests.kvindex.engine import (
    CLEARED,
    MODEL,
    Stream,
    ids_of,
    own,
    payload,
    removed,
    stored,
)
from tests.kvindex.test_knowledge import World

PROMPTS = 1_000


def test_cleared_cache_is_not_believed_in() -> None:
    """vllm-project/aibrix#2287: the handler of AllBlocksCleared did nothing."""
    stream = Stream()
    stream.send(stored(*range(1, 9)))
    stream.send(CLEARED)
    assert stream.held(*range(1, 9)) == 0


def test_cleared_cache_without_an_event_corrects_itself() -> None:
    """The same, but the event never came: delivered tokens contradict the index."""
    world = World()
    worker = world.worker()
    prompt = own(*range(1, 9), 50)
    worker.feed.receive(0, payload(stored(*range(1, 9))))
    for _ in range(2):
        assert worker.feed.held(prompt) == 8
        worker.sent(prompt)
        worker.ended(prompt, streamed=True, delivered_blocks=0, predicted_blocks=8)
    assert worker.feed.held(prompt) == 0
    assert worker.feed.counters.found_less == 16
    assert not worker.feed.complete


def test_one_request_that_skips_the_cache_changes_nothing() -> None:
    """The index is right; the next request finds what is there."""
    world = World()
    worker = world.worker()
    worker.feed.receive(0, payload(stored(1, 2)))
    for delivered in (0, 2, 0, 2):
        worker.sent(own(1, 2))
        worker.ended(
            own(1, 2), streamed=True, delivered_blocks=delivered, predicted_blocks=2
        )
    assert (worker.feed.state, worker.feed.held(own(1, 2))) == ("live", 2)


def test_more_found_than_predicted_is_missed_knowledge() -> None:
    """It is counted."""
    worker = World().worker()
    worker.sent(own(1, 2, 3))
    worker.ended(own(1, 2, 3), streamed=True, delivered_blocks=3, predicted_blocks=1)
    assert worker.feed.counters.found_more == 2


def test_restarted_engine_without_replay() -> None:
    """llm-d/llm-d-router#2853: the sequence was only compared with replay set up."""
    stream = Stream()
    for block in range(501):
        stream.send(stored(block))
    stream.next = 0
    stream.send(stored(900))
    assert (stream.owner.blocks, stream.feed.counters.restarts) == (1, 1)


def test_unknown_parents_are_not_lost_in_silence() -> None:
    """llm-d/llm-d-kv-cache#372: children of an unknown block were dropped for ever."""
    stream = Stream()
    stream.lose(10)
    stream.send(stored(2, 3, 4, parent=0xAB))
    stream.send(stored(5, 6, parent=4))
    assert (stream.feed.orphans, stream.feed.counters.orphans) == (5, 5)
    stream.send(stored(1, names=(0xAB,)))
    assert stream.held(1, 2, 3, 4, 5, 6) == 6


def test_replay_frames_with_and_without_topic() -> None:
    """vllm-project/vllm#45174: replayed batches lacked the topic frame."""
    seven, end = (7).to_bytes(8, "big"), b"\xff" * 8
    assert decode_frames([b"", seven, b"p"])[1:] == (7, b"p")
    assert decode_frames([b"", b"topic", seven, b"p"]) == (b"topic", 7, b"p")
    for front in ([b""], [b"", b""], [b"", b"topic"]):
        assert decode_frames([*front, end, b""])[1] == END_OF_REPLAY
    assert decode_frames([b"", b""])[1] == END_OF_REPLAY
    for nobodys in (2**40, 2**63, END_OF_REPLAY - 1):
        with pytest.raises(UndecodableBatch, match=str(nobodys)):
            decode_frames([b"", nobodys.to_bytes(8, "big"), b"p"])


def test_a_worker_that_never_publishes() -> None:
    """ai-dynamo/dynamo#11194: all looked healthy; the cause is named with the state."""
    stream = Stream()
    stream.feed.likely_cause = "the worker runs without --kv-events-config"
    stream.feed.request_ended(stores_new_block=True)
    stream.clock.now += 10
    stream.feed.tick()
    assert stream.feed.state == "silent"
    assert "--kv-events-config" in stream.feed.reason
    stream.send(stored(1))
    assert stream.feed.state == "live"


def test_a_late_join_claims_only_what_is_rooted() -> None:
    """sgl-project/sglang#39750: a fresh replica had deep blocks and no roots."""
    stream = Stream()
    stream.lose(1000)
    stream.send(stored(1001, parent=1000))
    assert stream.owner.blocks == 0
    assert (stream.feed.state, stream.feed.complete) == ("live", False)


def test_what_is_lost_is_counted() -> None:
    """ai-dynamo/dynamo#14167: batches were skipped in silence."""
    stream = Stream()
    rng = random.Random(3)
    lost = 0
    for block in range(300):
        if block and block < 299 and rng.random() < 0.4:
            stream.lose()
            lost += 1
        else:
            stream.send(stored(block))
    counters = stream.feed.counters
    assert counters.batches + counters.missed_batches == 300
    assert counters.missed_batches == lost


def test_spans_longer_than_their_hashes() -> None:
    """vllm-project/vllm#44451: masked blocks of hybrid models; index unchanged."""
    stream = Stream(block_size=16)
    event = stored(1, 2, 3, 4, 5, names=None)
    odd = type(event)(hashes=(1, 2), token_ids=event.token_ids, block_size=16)
    stream.send(odd)
    assert stream.feed.counters.rejected == {"length": 1}
    assert stream.owner.blocks == 0


def test_sliding_window_groups_are_no_residency() -> None:
    """llm-d/llm-d-router#2363: sparse groups were taken for whole spans."""
    stream = Stream()
    stream.send(stored(1, 2, group=0, group_kind="full_attention"))
    stream.send(stored(3, parent=2, group=1, group_kind="sliding_window"))
    stream.send(removed(1, 2, 3, group=1))
    assert stream.held(1, 2, 3) == 2
    assert stream.feed.counters.rejected == {"group_kind": 1}
    assert (stream.feed.counters.stored, stream.feed.counters.removed) == (2, 0)


@pytest.mark.parametrize("page", [1, 4, 8])
def test_pages_below_the_block_of_the_index(page: int) -> None:
    """llm-d/llm-d-router#2153: small pages never made a key."""
    stream = Stream(block_size=page)
    pages = 32 // page
    stream.send(stored(*range(1, pages + 1), size=page))
    ids = b"".join(ids_of(n, size=page) for n in range(1, pages + 1))
    assert stream.owner.blocks == 2
    assert indexed_size(page) == 16
    stream.send(removed(pages))
    assert stream.owner.blocks == 1
    assert len(ids) == 32 * 4


def test_pages_that_come_one_by_one_and_branch() -> None:
    """The same: four pages fill a block, a branch after two fills another; without
    its third page the first block is gone, the branch is not."""
    stream = Stream(block_size=4)
    blocks = []
    for page in range(1, 5):
        stream.send(stored(page, parent=page - 1 or None, size=4))
        blocks.append(stream.owner.blocks)
    assert blocks == [0, 0, 0, 1]
    stream.send(stored(5, parent=2, size=4))
    stream.send(stored(6, parent=5, size=4))
    trunk = b"".join(ids_of(page, size=4) for page in (1, 2, 3, 4))
    branch = b"".join(ids_of(page, size=4) for page in (1, 2, 5, 6))
    root = Namespace(model=MODEL).root()

    def held() -> list[int]:
        return [stream.feed.held(chain(ids, 16, root)) for ids in (trunk, branch)]

    assert held() == [1, 1]
    stream.send(removed(3))
    assert held() == [0, 1]


def test_block_sizes_of_a_mixed_fleet() -> None:
    """NVIDIA/TensorRT-LLM#15005: 128, 32 and 48 in one fleet. The same tokens are found
    at each worker as it cuts them, and not as another does."""
    world, sizes = World(), (128, 32, 48)
    tokens = ids_of(1, size=384)
    root = Namespace(model=MODEL).root()
    prompts = [chain(tokens, size, root) for size in sizes]
    workers = [world.worker(str(size), block_size=None) for size in sizes]
    for worker, size, prompt in zip(workers, sizes, prompts, strict=True):
        event = BlockStored(hashes=tuple(prompt), token_ids=tokens, block_size=size)
        worker.feed.receive(0, payload(event))
    found = [[worker.feed.held(prompt) for prompt in prompts] for worker in workers]
    assert found == [[3, 0, 0], [0, 12, 0], [0, 0, 8]]
    assert {worker.feed.state for worker in workers} == {"live"}


def test_hashes_of_workers_with_different_seeds() -> None:
    """vllm-project/vllm#51875: equal tokens, other engine hashes, the same blocks."""
    first, second = Stream(), Stream()
    first.send(stored(1, 2, names=(11, 12)))
    second.send(stored(1, 2, names=(b"x" * 32, b"y" * 32)))
    assert first.held(1, 2) == second.held(1, 2) == 2


def test_salts_and_adapters_are_namespaces() -> None:
    """NVIDIA/TensorRT-LLM#18156, ai-dynamo/dynamo#6517, smg-project/smg#2420: each
    matches its own, and no other."""
    stream = Stream()
    stream.send(stored(1, names=(1,)))
    stream.send(stored(1, names=(2,), extra_keys=(("a",),)))
    stream.send(stored(1, names=(3,), adapter="ad", extra_keys=(("ad",),)))
    roots = [
        Namespace(model=MODEL, salt=salt, adapter=adapter).root()
        for salt, adapter in ((None, None), ("a", None), (None, "ad"), ("b", None))
    ]
    assert [stream.held(1, root=root) for root in roots] == [1, 1, 1, 0]
    stream.send(removed(2))
    assert [stream.held(1, root=root) for root in roots] == [1, 0, 1, 0]


def test_one_hash_under_two_salts() -> None:
    """sgl-project/sglang#24568: the engine's hash left the salt out. Each salt is
    credited with what was stored for it, and a store for one takes nothing from the
    other. A removal does not tell whose block is gone: none is credited that may be,
    and the feed says that it knows less."""
    stream = Stream()
    roots = [Namespace(model=MODEL, salt=salt).root() for salt in ("a", "b", None)]
    held = []
    for event in (
        stored(1, names=(7,), extra_keys=(("a",),)),
        stored(1, names=(7,), extra_keys=(("b",),)),
        removed(7),
        stored(1, names=(7,), extra_keys=(("b",),)),
    ):
        stream.send(event)
        held.append([stream.held(1, root=root) for root in roots])
    assert held == [[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert not stream.feed.complete


def test_a_block_in_the_middle_is_no_match() -> None:
    """vllm-project/aibrix#917: hashes were not chained."""
    first, second = Stream(), Stream()
    first.send(stored(1, 2))
    second.send(stored(3, 2))
    assert (first.held(3, 2), second.held(3, 2)) == (0, 2)


def test_the_bound_holds_at_all_times() -> None:
    """sgl-project/sglang#16734: the tree grew between periodic evictions. Here by
    prompts of 8,000 tokens, one after the other: it is full, and never passed."""
    limit, blocks = 1_000_000, 8_000 // 16
    stream = Stream(limit_bytes=limit)
    for prompt in range(PROMPTS):
        stream.send(stored(*range(blocks * prompt, blocks * (prompt + 1))))
        assert stream.indexes.memory.used_bytes <= limit
    held = stream.owner.blocks
    assert held == limit // (BLOCK_BYTES + HOLDING_BYTES)
    assert stream.feed.counters.refused == PROMPTS * blocks - held
    assert not stream.feed.complete


def test_the_rank_of_a_batch_is_kept() -> None:
    """llm-d/llm-d-router#2379: it was read and then dropped."""
    batch = EventBatch(timestamp=1.0, events=(stored(1),), rank=3)
    assert decode_batch(encode_batch(batch)).rank == 3
