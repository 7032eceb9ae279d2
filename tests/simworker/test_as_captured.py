"""Scheduler and cache against what a real vLLM stored and evicted."""

from typing import Any

from kvindex.blocks import unpack_ids
from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent
from simworker.hashing import BlockHasher, Identity
from simworker.job import Job
from tests.simworker import captures
from tests.simworker.rig import Rig


def plain(event: KVEvent) -> dict[str, Any]:
    """An event with the fields and value forms of the captures."""

    def shown(value: int | bytes) -> Any:
        return {"__bytes__": value.hex()} if isinstance(value, bytes) else value

    match event:
        case BlockStored():
            parent = None if event.parent is None else shown(event.parent)
            return {
                "type": "BlockStored",
                "block_hashes": [shown(value) for value in event.hashes],
                "parent_block_hash": parent,
                "token_ids": unpack_ids(event.token_ids),
                "block_size": event.block_size,
            }
        case BlockRemoved():
            hashes = [shown(value) for value in event.hashes]
            return {"type": "BlockRemoved", "block_hashes": hashes}
        case AllBlocksCleared():
            return {"type": "AllBlocksCleared"}
        case _:
            raise AssertionError("no event of vLLM's")


def test_evicts_exactly_as_a_real_worker() -> None:
    """The captured prompts over 40 blocks: same hashes, removals, order, batches."""
    batches = captures.batches("w2_kv_events_live_pubbind")
    hasher = BlockHasher("sha256", seed="0", bytes_hashes=True)
    rig = Rig(blocks=40, block_size=32, hasher=hasher)
    ours = []
    for number, batch in enumerate(batches):
        stored = batch[-1]
        # The last prompt was sent three times; repeats store only its last block.
        spans = batches[10][-1] if number > 10 else stored
        # A tail that fills no block; that prompt has none.
        tail = [] if number >= 10 else [7, 7, number]
        if batch[0]["type"] == "AllBlocksCleared":
            assert rig.cache.clear()
        rig.submit("", Job([*spans["token_ids"], *tail], [1, 2]))
        rig.run()
        ours.append([plain(event) for event in rig.batches[-1][1]])
    keys = {key for batch in ours for event in batch for key in event}
    expected = [
        [{key: event[key] for key in event if key in keys} for event in batch]
        for batch in batches
    ]
    for batch in expected:
        for event in batch:
            if event["type"] == "BlockRemoved":
                event.pop("medium", None)
    assert ours == expected
    assert len(rig.batches) == len(batches)


def test_stores_the_spans_of_a_real_worker() -> None:
    """Captured prompts and outputs store exactly the token spans they stored there."""
    exchanges = [(each["request"], each["response"]) for each in captures.generated()]
    assert len(exchanges) >= 20
    rig = Rig(block_size=32)
    told: list[tuple[str | None, list[int]]] = []
    for request, response in exchanges:
        salt = request.get("cache_salt")
        output = response["choices"][0]["token_ids"]
        job = Job(request["token_ids"], output, identity=Identity(salt=salt))
        rig.submit("", job)
        rig.run()
        told.append((salt, [*request["token_ids"], *output]))
    ours = paths(
        plain(event) | {"extra_keys": event.extra_keys}
        for event in rig.events()
        if isinstance(event, BlockStored)
    )
    names = ("w1_kv_events_replay_dealer", "w1_kv_events_live_pubconnect")
    batches = [batch for name in names for batch in captures.batches(name)]
    theirs = paths(event for batch in batches for event in batch)
    # The capture also has other prompts: only what these requests can have stored.
    due = {
        (salt, path) for salt, path in theirs
        if any(salt == other and list(path) == tokens[: len(path)]
               for other, tokens in told)
    }  # fmt: skip
    assert ours == due
    assert len(ours) >= 15


def paths(events: Any) -> set[tuple[str | None, tuple[int, ...]]]:
    """Each stored block as the salt and all tokens from the root up to its end."""
    known: dict[Any, tuple[str | None, tuple[int, ...]]] = {}
    for event in events:
        size, parent = event["block_size"], event["parent_block_hash"]
        salt, path = known[parent] if parent is not None else (None, ())
        if parent is None and event["extra_keys"] and event["extra_keys"][0]:
            salt = event["extra_keys"][0][0]
        for number, value in enumerate(event["block_hashes"]):
            path += tuple(event["token_ids"][number * size : (number + 1) * size])
            known[value] = (salt, path)
    return set(known.values())
