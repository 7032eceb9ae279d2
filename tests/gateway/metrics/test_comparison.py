"""Predicted against delivered: every prompt token has one fate, means run on."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.metrics.comparison import (
    AGREES,
    EVIDENCE,
    FATES,
    FINDS_LESS,
    FINDS_MORE,
    PATIENCE,
    Comparison,
    fates,
)
from router.outcome import Outcome
from router.request import Usage

TOKENS = st.integers(0, 5_000)


def outcome(predicted: int, delivered: int, **fields: Any) -> Outcome:
    """A request of 1,000 prompt tokens."""
    values = {
        "prompt_tokens": 1_000,
        "predicted_hit_tokens": predicted,
        "best_hit_tokens": predicted,
        "delivered_hit_tokens": delivered,
        "estimated": False,
    }
    return Outcome(**values | fields)


def split(**tokens: int) -> dict[str, int]:
    """All fates; those not named have no tokens."""
    return dict.fromkeys(FATES, 0) | tokens


@pytest.mark.parametrize(
    ("request_of", "expected"),
    [
        (outcome(0, 0), split(new=1_000)),
        (outcome(640, 640), split(found=640, new=360)),
        (outcome(640, 0), split(gone=640, new=360)),
        (outcome(640, 320), split(found=320, gone=320, new=360)),
        (outcome(0, 640), split(not_indexed=640, new=360)),
        (outcome(320, 640), split(found=320, not_indexed=320, new=360)),
        (outcome(320, 320, best_hit_tokens=800),
         split(found=320, elsewhere=480, new=200)),
        (outcome(320, 0, best_hit_tokens=800), split(gone=320, elsewhere=480, new=200)),
        (outcome(320, 640, best_hit_tokens=800),
         split(found=320, not_indexed=320, elsewhere=160, new=200)),
        (outcome(192, 640, estimated=True),
         split(found=192, not_indexed=448, not_rendered=360)),
        (outcome(640, 0, estimated=True), split(not_rendered=1_000)),
    ],
)  # fmt: skip
def test_fates(request_of: Outcome, expected: dict[str, int]) -> None:
    """What was found, what was lost and why, and what is simply new."""
    assert fates(request_of) == expected


@given(TOKENS, TOKENS, TOKENS, TOKENS, st.booleans())
def test_fates_add_up_to_the_prompt(
    prompt: int, predicted: int, more: int, delivered: int, estimated: bool
) -> None:
    """Whatever the numbers, each token is counted once."""
    request = Outcome(
        prompt_tokens=prompt,
        predicted_hit_tokens=predicted,
        best_hit_tokens=predicted + more,
        delivered_hit_tokens=min(delivered, prompt),
        estimated=estimated,
    )
    tokens = fates(request)
    assert sum(tokens.values()) == prompt
    assert min(tokens.values()) >= 0
    assert set(tokens) == set(FATES)


def test_sums() -> None:
    """Of all requests that could be compared, and of those that could not, why."""
    comparison = Comparison()
    comparison.settle(outcome(640, 320))
    comparison.settle(outcome(0, 320))
    comparison.skip("no_usage")
    assert (comparison.predicted, comparison.delivered) == (640, 640)
    assert comparison.fates == split(found=320, gone=320, not_indexed=320, new=1_040)
    assert comparison.uncompared == {"no_usage": 1}


def test_agreement_needs_evidence() -> None:
    """Requests that hit nothing, and estimates, are none."""
    comparison = Comparison()
    for _ in range(100):
        comparison.settle(outcome(0, 0))
        comparison.settle(outcome(640, 0, estimated=True))
    for _ in range(EVIDENCE - 1):
        comparison.settle(outcome(640, 0))
        assert comparison.agreement is None
    comparison.settle(outcome(640, 0))
    assert comparison.agreement == FINDS_LESS


@pytest.mark.parametrize(
    ("predicted", "delivered", "word"),
    [(640, 640, AGREES), (640, 500, AGREES), (640, 0, FINDS_LESS), (0, 640, FINDS_MORE),
     (640, 300, FINDS_LESS), (300, 640, FINDS_MORE), (640, 400, AGREES)],
)  # fmt: skip
def test_agreement(predicted: int, delivered: int, word: str) -> None:
    """Half of the other is where it ends."""
    comparison = Comparison()
    for _ in range(50):
        comparison.settle(outcome(predicted, delivered))
    assert comparison.agreement == word
    assert comparison.recent_predicted == pytest.approx(predicted)
    assert comparison.recent_delivered == pytest.approx(delivered)


def test_agreement_comes_back_and_does_not_flicker() -> None:
    """It is lost at a half, and found again at four fifths."""
    comparison = Comparison()
    words: list[str | None] = []
    for delivered in [640] * 50 + [0] * 60 + [420] * 200 + [640] * 100:
        comparison.settle(outcome(640, delivered))
        if not words or words[-1] != comparison.agreement:
            words.append(comparison.agreement)
    assert words == [None, AGREES, FINDS_LESS, AGREES]


def cached(comparison: Comparison, tokens: int | None, predicted: int) -> int | None:
    """What is read of a usage that tells so many."""
    usage = Usage(prompt_tokens=1_000, cached_tokens=tokens)
    return comparison.cached_tokens(usage, predicted)


def test_a_zero_that_is_left_out() -> None:
    """Of a worker that tells hits and leaves zeros out, nothing told is a zero."""
    comparison = Comparison()
    assert cached(comparison, None, 640) is None
    assert comparison.reports is None
    assert cached(comparison, 640, 640) == 640
    assert comparison.reports is True
    assert cached(comparison, None, 640) == 0
    assert cached(comparison, None, 0) == 0


def test_a_worker_that_tells_zeros_means_nothing_by_silence() -> None:
    """Its answer has no cached tokens for another reason."""
    comparison = Comparison()
    assert cached(comparison, 0, 0) == 0
    assert cached(comparison, 640, 640) == 640
    assert cached(comparison, None, 640) is None


def test_a_worker_that_tells_none() -> None:
    """Known after some answers whose predicted hits it did not tell of."""
    comparison = Comparison()
    for _ in range(100):
        assert cached(comparison, None, 0) is None
    assert comparison.reports is None
    for _ in range(PATIENCE):
        assert cached(comparison, None, 640) is None
    assert comparison.reports is False
    assert cached(comparison, 64, 640) == 64
    assert comparison.reports is True


def test_a_worker_that_ceases_to_tell() -> None:
    """Started anew without the flag: soon its silence is no zero any more."""
    comparison = Comparison()
    cached(comparison, 640, 640)
    told = [cached(comparison, None, 640) for _ in range(PATIENCE + 2)]
    assert told == [0] * (PATIENCE - 1) + [None] * 3
    assert comparison.reports is False
