"""Rates and lengths."""

import pytest

from router.rate import OutputLength, PrefillRate


def test_seconds_of_a_prefill() -> None:
    """Tokens over tokens per second."""
    assert PrefillRate().tokens_per_s == 20_000
    assert PrefillRate(10_000).seconds(2_500) == 0.25


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_must_be_positive_and_finite(rate: float) -> None:
    """Anything else would break every estimate, so it is refused."""
    with pytest.raises(ValueError, match="prefill rate must be positive"):
        PrefillRate(rate)


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
