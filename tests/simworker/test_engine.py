"""The scheduler on virtual time: how long things take, and what is stored when."""

from typing import Any

import pytest

from kvindex.blocks import unpack_ids
from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent
from simworker.cache import BlockCache
from simworker.engine import Engine, EngineSettings, Job
from simworker.hashing import BlockHasher, Identity
from tests.simworker import captures

SETTINGS = EngineSettings(
    prefill_rate=1000.0,
    decode_rate=10.0,
    prefill_cost_s=0.5,
    max_running=2,
    max_step_tokens=1000,
)


class Rig:
    """An engine on a virtual clock, with a record of all it did."""

    def __init__(
        self,
        settings: EngineSettings = SETTINGS,
        *,
        blocks: int = 1000,
        block_size: int = 10,
        hasher: BlockHasher | None = None,
    ) -> None:
        hasher = hasher or BlockHasher()
        self.cache = BlockCache(blocks=blocks, block_size=block_size, hasher=hasher)
        self.now = 0.0
        self.batches: list[tuple[float, list[KVEvent]]] = []
        self.tokens: list[tuple[float, str, int]] = []
        self.engine = Engine(settings, self.cache, hasher, on_batch=self._batch)

    def _batch(self, events: list[KVEvent]) -> None:
        self.batches.append((round(self.now, 6), events))

    def submit(self, name: str, job: Job) -> Job:
        """Hand a job in now; its progress is recorded under `name`."""
        job.on_progress = lambda: self.tokens.append(
            (round(self.now, 6), name, job.produced)
        )
        self.engine.submit(job, self.now)
        return job

    def run(self, until: float = 1e9) -> None:
        """Let virtual time pass, event by event."""
        while (due := self.engine.next_time()) is not None and due <= until:
            self.now = due
            self.engine.advance(due)
        self.now = max(self.now, until) if until < 1e9 else self.now

    def events(self) -> list[KVEvent]:
        """All events so far."""
        return [event for _, batch in self.batches for event in batch]


def test_prefill_then_decode() -> None:
    """First token after the fixed cost and the prompt's tokens, then one a tick."""
    rig = Rig()
    rig.submit("a", Job(range(500), range(3)))
    rig.run()
    assert rig.tokens == [(1.0, "a", 1), (1.1, "a", 2), (1.2, "a", 3)]
    assert rig.engine.running == rig.engine.waiting == 0
    assert rig.cache.used == 0


def test_prefills_queue_and_hits_are_free() -> None:
    """One prefill at a time; what an earlier one stored is not computed again."""
    rig = Rig()
    first = rig.submit("a", Job(range(500), [1]))
    second = rig.submit("b", Job(range(500), [1]))
    assert (rig.engine.running, rig.engine.waiting) == (1, 1)
    rig.run()
    # 49 blocks of 10 can be a hit at most: the last token is always computed.
    assert (first.cached_tokens, second.cached_tokens) == (0, 490)
    assert rig.tokens == [(1.0, "a", 1), (1.51, "b", 1)]
    assert (rig.engine.queried_tokens, rig.engine.hit_tokens) == (1000, 490)


def test_max_running_holds_back() -> None:
    """A third request waits until one of two decoding ones is done."""
    rig = Rig()
    rig.submit("a", Job(range(100), range(11)))
    rig.submit("b", Job(range(100, 200), range(21)))
    rig.submit("c", Job(range(200, 300), [1]))
    rig.run(1.5)
    assert (rig.engine.running, rig.engine.waiting) == (2, 1)
    rig.run()
    # a: 0.6 + 10 ticks of 0.1; then c's prefill of 0.6
    assert rig.tokens[-1][1] == "b"
    assert next(at for at, name, _ in rig.tokens if name == "c") == pytest.approx(2.2)


def test_speed_divides_all_times() -> None:
    """At ten times the speed the same takes a tenth; ticks have a floor."""
    rig = Rig(EngineSettings(
        prefill_rate=1000.0, decode_rate=100.0, prefill_cost_s=0.5, speed=10.0,
        min_tick_s=0.01,
    ))  # fmt: skip
    rig.submit("a", Job(range(500), range(25)))
    rig.run()
    assert rig.tokens == [
        (0.1, "a", 1), (0.11, "a", 11), (0.12, "a", 21), (0.13, "a", 25)
    ]  # fmt: skip


def test_long_prompts_take_several_steps() -> None:
    """A prompt above the step limit stores its blocks step by step."""
    rig = Rig()
    rig.submit("a", Job(range(2500), [1]))
    rig.run()
    stored = [
        (at, [len(event.hashes) for event in batch if isinstance(event, BlockStored)])
        for at, batch in rig.batches
    ]
    assert stored == [(1.5, [100]), (2.5, [100]), (3.0, [50])]
    assert rig.tokens == [(3.0, "a", 1)]


def test_generated_tokens_fill_blocks() -> None:
    """All but the last output token are computed, and fill blocks."""
    rig = Rig()
    rig.submit("a", Job(range(5), range(100, 116)))
    rig.run()
    spans = [
        unpack_ids(event.token_ids)
        for event in rig.events()
        if isinstance(event, BlockStored)
    ]
    assert spans == [[0, 1, 2, 3, 4, *range(100, 105)], list(range(105, 115))]
    again = Rig()
    again.submit("a", Job(range(5), range(100, 115)))
    again.run()
    assert len(again.events()) == 1  # token 115 is never computed: one block less


def test_without_reading_the_cache() -> None:
    """A request that must not read the cache computes everything anew."""
    rig = Rig()
    rig.submit("a", Job(range(100), [1]))
    rig.run()
    job = rig.submit("b", Job(range(100), [1], read_cache=False))
    rig.run()
    assert job.cached_tokens == 0
    assert rig.cache.held == 20  # two copies of each block


def test_salts_and_adapters_share_nothing() -> None:
    """Equal prompts of different namespaces are no hits of each other."""
    rig = Rig()
    identities = [Identity(), Identity(salt="x"), Identity(adapter="l", adapter_id=1)]
    for identity in identities:
        job = rig.submit("", Job(range(100), [1], identity=identity))
        rig.run()
        assert job.cached_tokens == 0
    job = rig.submit("", Job(range(100), [1], identity=Identity(salt="x")))
    rig.run()
    assert job.cached_tokens == 90


def test_abort_everywhere() -> None:
    """A job dropped while waiting, prefilling or decoding frees what it holds."""
    rig = Rig()
    decoding = rig.submit("a", Job(range(100), range(1000)))
    rig.run(1.0)
    prefilling = rig.submit("b", Job(range(1000, 2000), range(9)))
    waiting = rig.submit("c", Job(range(2000, 3000), range(9)))
    for job in (waiting, decoding, prefilling):
        rig.engine.abort(job, rig.now)
    rig.engine.abort(decoding, rig.now)
    rig.run()
    assert rig.engine.next_time() is None
    assert rig.engine.running == rig.engine.waiting == rig.cache.used == 0
    assert {name for _, name, _ in rig.tokens} == {"a"}
    # The step under way was computed to its end, so its blocks are there.
    job = rig.submit("d", Job(range(1000, 2000), [1]))
    rig.run()
    assert job.cached_tokens == 990


@pytest.mark.parametrize("prompt", [52, 58])
def test_the_youngest_is_put_back(prompt: int) -> None:
    """The youngest waits and is computed again, whoever it is that needs a block."""
    rig = Rig(blocks=13)
    old = rig.submit("old", Job(range(55), range(1000, 1050)))
    young = rig.submit("young", Job(range(500, 500 + prompt), range(1000, 1030)))
    rig.run()
    assert old.finished
    assert young.finished
    assert rig.engine.preemptions >= 1
    assert rig.cache.used == 0
    produced = [count for _, name, count in rig.tokens if name == "young"]
    assert produced == sorted(set(produced))
    assert young.cached_tokens == 0


def test_what_can_never_fit_is_refused() -> None:
    """A request larger than the whole cache would wait for ever."""
    rig = Rig(blocks=10)
    with pytest.raises(ValueError, match="11 blocks"):
        rig.submit("a", Job(range(100), range(11)))
    rig.submit("b", Job(range(80), range(11)))
    rig.run()
    assert rig.tokens[-1][2] == 11


def test_an_empty_job_is_refused() -> None:
    """There is always a prompt and something to say."""
    with pytest.raises(ValueError, match="prompt"):
        Job([], [1])


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
