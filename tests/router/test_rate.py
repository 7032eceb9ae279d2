"""Rates and lengths."""

import random

import pytest

from router.load import Prefills
from router.rate import OutputLength, PrefillRate, Rates

COST_S = 0.015


def show(
    rate: PrefillRate, tokens_per_s: float, *, seed: int = 1, prefills: int = 60
) -> None:
    """Prefills of a worker that is so fast, give or take a tenth."""
    rng = random.Random(seed)
    for _ in range(prefills):
        tokens = rng.randrange(100, 8_000)
        took_s = COST_S + tokens / tokens_per_s
        rate.learn(tokens, took_s * rng.uniform(0.9, 1.1))


def test_seconds_of_a_prefill() -> None:
    """Tokens over tokens per second."""
    assert PrefillRate().tokens_per_s == 20_000
    assert PrefillRate(10_000).seconds(2_500) == 0.25


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_must_be_positive_and_finite(rate: float) -> None:
    """Anything else would break every estimate, so it is refused."""
    with pytest.raises(ValueError, match="prefill rate must be positive"):
        PrefillRate(rate)
    with pytest.raises(ValueError, match="prefill rate must be positive"):
        Rates(rate).add()


@pytest.mark.parametrize("actual", [1_000, 5_000, 20_480, 60_000, 200_000])
def test_a_rate_is_learnt(actual: float) -> None:
    """From the prior, within a tenth, after 60 prefills."""
    rate = Rates().add()
    assert (rate.tokens_per_s, rate.source) == (20_000, "prior")
    show(rate, actual)
    assert rate.tokens_per_s == pytest.approx(actual, rel=0.1)
    assert rate.source == "learnt"


def test_a_pinned_rate_is_not_learnt() -> None:
    """The operator knows better."""
    rate = Rates(7_000).add()
    show(rate, 20_000)
    assert (rate.tokens_per_s, rate.source) == (7_000, "pinned")


def test_a_few_prefills_change_nothing() -> None:
    """What is learnt counts once there were enough."""
    rate = Rates().add()
    show(rate, 1_000, prefills=15)
    assert rate.tokens_per_s == 20_000


def test_equal_workers_stay_equal() -> None:
    """Their estimates differ a little; their rates do not, or one would get all."""
    rates = Rates()
    fleet = [rates.add() for _ in range(8)]
    for seed, rate in enumerate(fleet):
        show(rate, 10_000 * (1 + seed / 100), seed=seed)
    assert len({rate.tokens_per_s for rate in fleet}) == 1
    assert fleet[0].tokens_per_s == pytest.approx(10_350, rel=0.1)


@pytest.mark.parametrize("actual", [5_000, 80_000])
def test_equal_workers_stay_equal_however_little_some_have_shown(actual: int) -> None:
    """What is short says little of the rate, and the prior must not say the rest.

    Of 16 equal workers two had got nine of ten requests: they alone had shown that
    all were faster than the prior, so all that was new went to them.
    """
    rates, rng = Rates(), random.Random(1)
    fleet = [rates.add() for _ in range(8)]
    for number in range(600):
        for rate in fleet if number % 15 == 0 else fleet[:2]:
            tokens = rng.randrange(100, 400)
            rate.learn(tokens, 0.004 + tokens / actual)
    assert len({rate.tokens_per_s for rate in fleet}) == 1


def test_a_slower_worker_is_told_apart() -> None:
    """Within a step of a quarter, while the others stay as they are."""
    rates = Rates()
    fleet = [rates.add() for _ in range(4)]
    for seed, rate in enumerate(fleet):
        show(rate, 5_000 if seed == 2 else 20_000, seed=seed)
    slow = fleet.pop(2)
    assert slow.tokens_per_s == pytest.approx(5_000, rel=0.15)
    assert len({rate.tokens_per_s for rate in fleet}) == 1


def test_a_new_worker_is_like_the_others_until_it_shows_its_speed() -> None:
    """Which is a better guess than the prior."""
    rates = Rates()
    show(rates.add(), 4_000)
    new = rates.add()
    assert new.tokens_per_s == pytest.approx(4_000, rel=0.1)
    assert new.source == "fleet"
    show(new, 16_000)
    assert new.tokens_per_s == pytest.approx(16_000, rel=0.15)


def test_a_worker_that_left_is_forgotten() -> None:
    """Its speed says nothing of those that stay."""
    rates = Rates()
    gone, stays = rates.add(), rates.add()
    show(gone, 1_000)
    rates.remove(gone)
    rates.remove(gone)
    show(stays, 20_000)
    assert stays.tokens_per_s == pytest.approx(20_000, rel=0.1)


def test_a_worker_that_becomes_slower_is_noticed() -> None:
    """What was long ago is forgotten."""
    rate = Rates().add()
    show(rate, 20_000, prefills=500)
    show(rate, 5_000, prefills=160)
    assert rate.tokens_per_s == pytest.approx(5_000, rel=0.1)


def test_the_expected_output_follows_finished_answers() -> None:
    """The mean moves towards what answers have, from its prior."""
    output = OutputLength(prior=100)
    assert output.expected(None) == 100
    for _ in range(200):
        output.finished(1_000)
    assert 990 <= output.expected(None) <= 1_000


@pytest.mark.parametrize(
    ("max_tokens", "expected"), [(None, 256), (1, 1), (10_000, 256), (0, 0), (-3, 0)]
)
def test_max_tokens_bounds_the_expected_output(
    max_tokens: int | None, expected: int
) -> None:
    """A request that allows fewer tokens will not get more."""
    assert OutputLength().expected(max_tokens) == expected


def count(
    rate: PrefillRate, tokens_per_s: float, *, prefills: float | None, reports: int = 40
) -> None:
    """An engine whose counters move on: two prefills between two reports."""
    rng = random.Random(3)
    now = Prefills(1e6, 500.0, None if prefills is None else 900.0)
    for _ in range(reports):
        tokens = rng.randrange(1_000, 8_000)
        took_s = 2 * COST_S + tokens / tokens_per_s
        after = None if now.count is None else now.count + 2
        rate.counted(0, now)
        now = Prefills(now.tokens + tokens, now.seconds + took_s, after)


@pytest.mark.parametrize("prefills", [2.0, None], ids=["counted", "not counted"])
@pytest.mark.parametrize("actual", [2_000, 20_480, 60_000])
def test_a_rate_is_counted_by_the_engine(actual: float, prefills: float | None) -> None:
    """Where no stream tells how long a prefill takes, the engine's counters do."""
    rate = Rates().add()
    count(rate, actual, prefills=prefills)
    assert rate.tokens_per_s == pytest.approx(actual, rel=0.15)
    assert rate.source == "counted"


def test_streams_tell_more_than_counters() -> None:
    """What is learnt from streams counts as soon as there is enough of it."""
    rate = Rates().add()
    count(rate, 5_000, prefills=2.0)
    show(rate, 40_000)
    assert rate.tokens_per_s == pytest.approx(40_000, rel=0.1)
    assert rate.source == "learnt"
    count(rate, 5_000, prefills=2.0)
    assert rate.tokens_per_s == pytest.approx(40_000, rel=0.1)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (Prefills(9e6, 500.0, 90.0), Prefills(1e6, 10.0, 4.0)),
        (Prefills(1e6, 500.0, 90.0), Prefills(1e6, 500.0, 90.0)),
        (Prefills(1e6, 500.0, 90.0), Prefills(9e6, 500.0, 95.0)),
        (Prefills(1e6, 500.0, 90.0), Prefills(9e6, 600.0, 90.0)),
        (Prefills(1e6, 500.0, 90.0), Prefills(1.1e6, 510.0, 1090.0)),
    ],
    ids=["another process", "idle", "no time", "none finished", "short ones"],
)
def test_counters_that_tell_nothing(before: Prefills, now: Prefills) -> None:
    """They change nothing."""
    rate = Rates().add()
    rate.counted(0, before)
    for _ in range(50):
        rate.counted(0, now)
    assert (rate.tokens_per_s, rate.source) == (20_000, "prior")


def test_a_pinned_rate_is_not_counted() -> None:
    """The operator knows better."""
    rate = Rates(7_000).add()
    count(rate, 20_000, prefills=2.0)
    assert (rate.tokens_per_s, rate.source) == (7_000, "pinned")
