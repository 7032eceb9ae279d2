"""Whole replays: small ones, whose outcome can be told beforehand."""

from typing import Any

import msgspec
import pytest

from simworker.simulate.faults import Fault
from simworker.simulate.options import BadOptions, SimulateOptions
from simworker.simulate.prompts import BlockCutter, extended
from simworker.simulate.replay import Outcome, Replay, hit_ceiling, workload
from simworker.simulate.worker import Speed
from simworker.simulate.workload import Asked

SMALL = SimulateOptions(format="synthetic:chat4", block_size=64, limit=200)


def replayed(
    options: SimulateOptions = SMALL,
    policy: str = "kv_cache_aware",
    asked: list[Asked] | None = None,
) -> tuple[Replay, Outcome]:
    """A replay that is over, and its outcome."""
    requests = workload(options) if asked is None else asked
    cutter = BlockCutter(options.block_size)
    replay = Replay(options, requests, policy, cutter)
    return replay, replay.run(hit_ceiling(requests, cutter))


def with_fault(**fault: Any) -> SimulateOptions:
    """The small workload with one fault."""
    return msgspec.structs.replace(SMALL, faults=(Fault(**fault),))


def same(outcome: Outcome) -> Outcome:
    """What does not depend on the machine."""
    return msgspec.structs.replace(outcome, decisions_s=0.0)


@pytest.mark.parametrize("policy", ["kv_cache_aware", "random", "power_of_two"])
def test_a_seed_decides_everything(policy: str) -> None:
    """Twice the same, and another one with another seed."""
    first, second = (same(replayed(SMALL, policy)[1]) for _ in range(2))
    assert first == second
    other = msgspec.structs.replace(SMALL, seed=1)
    assert same(replayed(other, policy)[1]) != first


def test_affinity_pays() -> None:
    """Chats that return find their turns; nobody beats the endless cache."""
    ours, theirs = (replayed(SMALL, p)[1] for p in ("kv_cache_aware", "round_robin"))
    assert ours.success_rate == theirs.success_rate == 1.0
    assert theirs.hit_rate < ours.hit_rate <= ours.ceiling
    assert ours.ttft_mean_s < theirs.ttft_mean_s
    assert ours.ttft_p50_s <= ours.ttft_p90_s <= ours.ttft_p99_s


def test_sessions_find_their_turns_without_knowledge_of_caches() -> None:
    """By their names alone."""
    by_session, by_turn = (replayed(SMALL, p)[1] for p in ("session", "round_robin"))
    assert by_session.hit_rate > by_turn.hit_rate + 0.1


def test_without_events_history_does_it() -> None:
    """What was sent where is remembered."""
    ours = replayed(msgspec.structs.replace(SMALL, kv_events=False))[1]
    assert ours.hit_rate > 0.9 * replayed()[1].hit_rate


def test_events_that_come_late_or_not_at_all() -> None:
    """Every request is answered, and most of the cache is still found."""
    late = replayed(msgspec.structs.replace(SMALL, event_delay_s=0.5))[1]
    lost = replayed(with_fault(kind="lost-events", amount=0.3))[1]
    whole = replayed()[1]
    for outcome in (late, lost):
        assert outcome.success_rate == 1.0
        assert outcome.hit_rate > 0.9 * whole.hit_rate


def test_a_restart_loses_what_was_under_way() -> None:
    """And the worker's cache; the rest is answered."""
    outcome = replayed(with_fault(kind="restart", worker=0, amount=10.0))[1]
    assert 0.95 < outcome.success_rate < 1.0


def test_rates_are_learnt_and_a_slow_worker_gets_less() -> None:
    """A quarter of the speed is noticed, and it prefills less than its share."""
    slow_one = with_fault(kind="slow", worker=2, amount=4.0)
    options = msgspec.structs.replace(
        slow_one, format="synthetic:no-sharing", limit=1_000
    )
    replay, _ = replayed(options)
    fleet = replay.fleet
    rates = [worker.rate.tokens_per_s for worker in fleet.pool.workers]
    slow = rates.pop(2)
    assert len(set(rates)) == 1
    assert rates[0] == pytest.approx(options.speed.prefill_rate, rel=0.1)
    assert slow == pytest.approx(options.speed.prefill_rate / 4, rel=0.2)
    work = [worker.prefilled_tokens for worker in fleet.workers.values()]
    assert work[2] < 0.6 * sum(work) / len(work)


def test_one_request() -> None:
    """15 ms, and 1,000 tokens at 20,000 a second."""
    asked = [Asked(prompt=extended((), 1, 1_000), output_tokens=1)]
    outcome = replayed(asked=asked)[1]
    assert outcome.ttft_mean_s == outcome.ttft_p99_s == 0.065
    assert (outcome.requests, outcome.hit_rate, outcome.ceiling) == (1, 0.0, 0.0)
    assert outcome.imbalance == 8.0


def test_the_second_of_two_equal_prompts_is_cached() -> None:
    """All full blocks but the last token's."""
    prompt = extended((), 1, 1_024)
    asked = [Asked(prompt=prompt, output_tokens=1, at=at) for at in (0.0, 5.0)]
    outcome = replayed(asked=asked)[1]
    assert outcome.hit_rate == outcome.ceiling == round(960 / 2_048, 4)


@pytest.mark.parametrize("gap_s", [1e6, 1e9])
def test_what_is_paid_for_is_what_happens_not_the_time(
    gap_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a pause of days or years; what time does to a feed it does all the same."""
    ticks = list[float]()
    times = (0.0, 5.0, gap_s + 0.5, 3 * gap_s)
    prompt = extended((), 1, 1_024)
    asked = [Asked(prompt=prompt, output_tokens=1, at=at) for at in times]
    replay = Replay(SMALL, asked, "kv_cache_aware", BlockCutter(64))
    tick = replay.fleet.tick

    def counted() -> bool:
        ticks.append(replay._timeline.now)
        return tick()

    monkeypatch.setattr(replay.fleet, "tick", counted)
    outcome = replay.run(0.0)
    assert outcome.hit_rate == round(3 * 960 / 4_096, 4)
    assert ticks[:60] == [float(second) for second in range(1, 61)]
    assert gap_s in ticks
    assert 3 * gap_s - 1.0 in ticks or 3 * gap_s in ticks
    assert len(ticks) < 300


def test_slow_workers_cost_no_more_time_than_fast_ones() -> None:
    """A prefill of a thousand years is one thing that happens."""
    slow = Speed(prefill_rate=1e-7, decode_rate=1e-7)
    options = msgspec.structs.replace(SMALL, limit=None, speed=slow)
    asked = [Asked(prompt=extended((), 1, 1_000), output_tokens=9) for _ in range(3)]
    assert replayed(options, asked=asked)[1].ttft_mean_s >= 1e10


def test_what_no_worker_can_hold_fails() -> None:
    """It counts against the success rate, and what follows it comes all the same."""
    options = msgspec.structs.replace(SMALL, cache_tokens=640)
    asked = [
        Asked(prompt=extended((), 1, 1_000), output_tokens=1),
        Asked(prompt=extended((), 2, 100), output_tokens=1, follows=0, gap_s=1.0),
    ]
    outcome = replayed(options, asked=asked)[1]
    assert outcome.success_rate == 0.5


def test_options_that_do_not_go_together() -> None:
    """A fault's worker must be there; a trace needs its format."""
    with pytest.raises(BadOptions, match="worker 8, but the 8 are counted from 0"):
        with_fault(kind="slow", worker=8, amount=2.0)
    with pytest.raises(BadOptions, match="--format mooncake needs --trace FILE"):
        workload(SimulateOptions(format="mooncake"))
