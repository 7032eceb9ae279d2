"""The scheduler on virtual time: how long things take, and what is stored when."""

import pytest

from kvindex.blocks import unpack_ids
from kvindex.events import BlockStored
from simworker.engine_settings import EngineSettings
from simworker.hashing import Identity
from simworker.job import Job
from tests.simworker.rig import Rig


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


def test_hits_are_reported_on_request() -> None:
    """Blocks that were found are announced from the root on, once more."""
    rig = Rig()
    rig.submit("a", Job(range(500), [1]))
    rig.run()
    first = rig.events()
    rig.submit("b", Job(range(520), [1], report_hits=True))
    rig.run()
    again, new = rig.events()[len(first) :]
    assert isinstance(again, BlockStored)
    assert isinstance(new, BlockStored)
    (stored,) = first
    assert isinstance(stored, BlockStored)
    assert (again.hashes, again.parent) == (stored.hashes, None)
    assert new.parent == stored.hashes[-1]


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
