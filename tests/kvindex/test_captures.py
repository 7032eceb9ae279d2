"""Captured streams of a real vLLM: the index they leave, and the hits it predicts."""

import random
from collections import Counter
from typing import Any

import pytest
import xxhash

from kvindex.blocks import Namespace, chain, matchable_blocks, pack_ids
from kvindex.feed import Feed
from kvindex.index import Indexes
from kvindex.knowledge import Knowledge, credits
from tests.kvindex.engine import MODEL, Clock, captured, case_file

W1 = ("w1_kv_events_replay_dealer", "w1_kv_events_live_pubconnect")
W2 = ("w2_kv_events_live_pubbind",)
SIZE = 32


class BruteForce:
    """The captured events, replayed on plain data: engine hash -> copies and content.

    A content is (salt, all token ids up to the end of the block).
    """

    def __init__(self) -> None:
        self.content: dict[str, tuple[str | None, tuple[int, ...]]] = {}
        self.copies: Counter[str] = Counter()

    def apply(self, event: dict[str, Any]) -> None:
        """One decoded event."""
        if event["type"] == "AllBlocksCleared":
            self.copies.clear()
            return
        names = [str(name) for name in event["block_hashes"]]
        if event["type"] == "BlockRemoved":
            self.copies.subtract(names)
            return
        parent = event["parent_block_hash"]
        keys = event["extra_keys"][0]
        before = (keys[0] if keys else None, ())
        salt, ids = before if parent is None else self.content[str(parent)]
        for at, name in enumerate(names):
            ids = (*ids, *event["token_ids"][at * SIZE : (at + 1) * SIZE])
            self.content[name] = (salt, ids)
            self.copies[name] += 1

    def own_hashes(self) -> set[int]:
        """The own hash of each block that is left, computed here."""
        left = [self.content[name] for name, count in self.copies.items() if count > 0]
        return {self._hash(salt, ids) for salt, ids in left}

    def _hash(self, salt: str | None, ids: tuple[int, ...]) -> int:
        parent = Namespace(model=MODEL, salt=salt).root()
        for start in range(0, len(ids), SIZE):
            data = b"".join(i.to_bytes(4, "little") for i in ids[start : start + SIZE])
            parent = xxhash.xxh3_64(data, seed=parent).intdigest()
        return parent


def replay(*names: str) -> tuple[Feed, BruteForce]:
    """Both ways through captured streams."""
    feed = Feed(
        model=MODEL, indexes=Indexes(limit_bytes=1 << 28), key="w", clock=Clock()
    )
    brute = BruteForce()
    for sequence, payload, (_, events, _) in captured(*names):
        feed.receive(sequence, payload)
        for event in events:
            brute.apply(event)
    return feed, brute


@pytest.mark.parametrize(("names", "blocks"), [(W1, 349), (W2, 4)])
def test_a_replayed_capture_equals_brute_force(
    names: tuple[str, ...], blocks: int
) -> None:
    """Block for block, and the feed is live and complete."""
    feed, brute = replay(*names)
    assert (feed.state, feed.complete, feed.reason) == ("live", True, "")
    assert (feed.counters.gaps, feed.counters.restarts) == (0, 0)
    assert (feed.counters.rejected, feed.counters.undecodable) == ({}, {})
    assert feed.index is not None
    assert feed.owner is not None
    expected = brute.own_hashes()
    assert len(expected) == feed.owner.blocks == feed.owner.gpu_blocks == blocks
    assert all(feed.index.holds(feed.owner, own_hash) for own_hash in expected)


def test_w2_step_by_step() -> None:
    """After each batch, with evictions, a clearing and copies, both are equal."""
    feed = Feed(
        model=MODEL, indexes=Indexes(limit_bytes=1 << 28), key="w", clock=Clock()
    )
    brute = BruteForce()
    for sequence, payload, (_, events, _) in captured(*W2):
        feed.receive(sequence, payload)
        for event in events:
            brute.apply(event)
        assert feed.index is not None
        assert feed.owner is not None
        expected = brute.own_hashes()
        assert feed.owner.blocks == len(expected)
        assert all(feed.index.holds(feed.owner, own_hash) for own_hash in expected)
    assert feed.counters.removed == 38
    assert feed.counters.cleared == 1


def test_predicted_hits_equal_reported_ones() -> None:
    """For every captured chat with reported usage, tenant salts included."""
    clock = Clock()
    knowledge = Knowledge.open(
        model=MODEL,
        indexes=Indexes(limit_bytes=1 << 28),
        key="w1",
        clock=clock,
        capacity_blocks=4096,
    )
    for sequence, payload, _ in captured(*W1):
        knowledge.feed.receive(sequence, payload)
    compared = 0
    for name, case in case_file("w1_chat_cases")["cases"].items():
        chat = case.get("chat")
        response = chat["response"] if chat else {}
        ids, usage = response.get("prompt_token_ids"), response.get("usage")
        if not ids or not usage:
            continue
        root = Namespace(model=MODEL, salt=chat["request"].get("cache_salt")).root()
        matchable = matchable_blocks(len(ids), SIZE)
        hashes = chain(pack_ids(ids), SIZE, root)[:matchable]
        credit = credits([knowledge], hashes)[0]
        details = usage["prompt_tokens_details"] or {}
        assert credit.blocks * SIZE == details.get("cached_tokens", 0), name
        compared += 1
    assert compared == 21


@pytest.mark.parametrize("seed", range(8))
def test_a_capture_with_batches_lost_is_recovered(seed: int) -> None:
    """With a replay it ends live, complete and equal to brute force."""
    feed, brute = lossy(seed, can_replay=True)
    assert (feed.state, feed.complete) == ("live", True)
    assert feed.counters.missed_batches == 0
    assert feed.counters.replayed > 0
    assert feed.index is not None
    assert feed.owner is not None
    expected = brute.own_hashes()
    assert feed.owner.blocks == len(expected)
    assert all(feed.index.holds(feed.owner, own_hash) for own_hash in expected)


@pytest.mark.parametrize("seed", range(8))
def test_a_capture_with_batches_lost_for_good(seed: int) -> None:
    """Without a replay nothing is credited that is gone, once doubt is over."""
    feed, brute = lossy(seed, can_replay=False)
    assert feed.counters.missed_batches > 0
    assert feed.index is not None
    assert feed.owner is not None
    clock = feed._silence._clock
    assert isinstance(clock, Clock)
    clock.now += feed.settings.suspect_ttl_s
    feed.tick()
    feed.tick()
    assert feed.state == "live"
    expected = brute.own_hashes()
    gone = {brute._hash(*content) for content in brute.content.values()} - expected
    assert not any(feed.index.holds(feed.owner, own_hash) for own_hash in gone)


def lossy(seed: int, *, can_replay: bool) -> tuple[Feed, BruteForce]:
    """A captured stream of which half of the batches are lost on the way."""
    feed = Feed(
        model=MODEL, indexes=Indexes(limit_bytes=1 << 28), key="w", clock=Clock()
    )
    feed.can_replay = can_replay
    brute, rng = BruteForce(), random.Random(seed)
    batches = list(captured(*W2))
    for at, (sequence, payload, (_, events, _)) in enumerate(batches):
        for event in events:
            brute.apply(event)
        if at in (0, len(batches) - 1) or rng.random() < 0.5:
            feed.receive(sequence, payload)
        while feed.replay_from is not None:
            start = feed.replay_from
            feed.replaying(start)
            for earlier, content, _ in batches[: at + 1]:
                if earlier >= start:
                    feed.replayed(earlier, content)
            feed.replay_ended(True)
    return feed, brute
