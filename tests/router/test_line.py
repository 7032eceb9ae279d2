"""What a prefill takes, by its tokens."""

import random

import pytest

from router.line import COST_S, Line


def test_the_prior_is_a_line() -> None:
    """A fixed cost, and so much per token."""
    line = Line(per_token_s=1e-4)
    assert line.seconds(1_000) == pytest.approx(COST_S + 0.1)


def test_cost_and_slope_are_told_apart() -> None:
    """By prefills of several lengths: 30 ms and 8,000 tokens a second."""
    line, rng = Line(per_token_s=1 / 20_000), random.Random(1)
    for _ in range(200):
        tokens = rng.randrange(10, 6_000)
        line.add(tokens, 0.03 + tokens / 8_000)
    assert line.cost_s == pytest.approx(0.03, rel=0.1)
    assert 1 / line.per_token_s == pytest.approx(8_000, rel=0.05)


def test_prefills_of_one_length_are_enough() -> None:
    """The fixed cost is then the one that is believed."""
    line = Line(per_token_s=1 / 20_000)
    for _ in range(200):
        line.add(6_000, COST_S + 1.0)
    assert 1 / line.per_token_s == pytest.approx(6_000, rel=0.02)


def test_outliers_count_little() -> None:
    """One in thirty that takes a minute."""
    line, rng = Line(per_token_s=1 / 20_000), random.Random(1)
    for number in range(600):
        tokens = rng.randrange(10, 6_000)
        line.add(tokens, 60.0 if number % 30 == 7 else 0.01 + tokens / 20_000)
    assert 1 / line.per_token_s == pytest.approx(20_000, rel=0.25)


def test_what_says_nothing_changes_nothing() -> None:
    """Prefills of no tokens and of no time leave a rate above zero, and finite."""
    line = Line(per_token_s=1 / 20_000)
    for _ in range(2_000):
        line.add(0, 0.0)
        line.add(100, 0.0)
    assert 0 < line.per_token_s < 1
