"""Rates and lengths."""

import random

import pytest

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
