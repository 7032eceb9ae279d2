"""The verdict of `python -m bench replicas`: when a fleet has recovered from a kill."""

import pytest

from bench._replica_traffic import Sample
from bench._replica_verdict import faults, recovered_s, windows

KILL_S = 20.0


def run(*rates: float) -> list[Sample]:
    """Two requests a second, with these hit rates for five seconds each."""
    return [
        Sample(at_s=number / 2, prompt_tokens=100, cached_tokens=round(100 * rate))
        for number, rate in enumerate(rate for rate in rates for _ in range(10))
    ]


UNDISTURBED = run(*16 * [0.8])


@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        (12 * [0.8], 0),
        (12 * [0.79], 0),
        ([0.5] + 11 * [0.8], 5),
        ([0.8, 0.5, 0.7] + 9 * [0.8], 15),
        (7 * [0.6] + 5 * [0.8], 35),
        (12 * [0.7], None),
        (9 * [0.8] + 3 * [0.5], None),
        ([0.3] * 11 + [0.8], None),
    ],
)
def test_when_it_has_recovered(after: list[float], seconds: float | None) -> None:
    """From there on as much is found as where nobody was killed, within two points."""
    killed = run(*4 * [0.8], *after)
    assert recovered_s(killed, UNDISTURBED, KILL_S) == seconds
    said = faults(killed, UNDISTURBED, KILL_S, {"status 502": 2})
    assert said[0] == "clients saw 2 status 502"
    assert bool(said[1:]) == (seconds is None or seconds > 30)


def test_traffic_that_ends_too_early() -> None:
    """Of that nothing can be said, so it is not as it must be."""
    short = run(*5 * [0.8])
    assert recovered_s(short, short, KILL_S) is None
    assert faults(short, short, KILL_S, {}) == ["the hit rate did not recover"]


def test_windows() -> None:
    """Five seconds each, from shortly before the kill, the runs side by side."""
    killed = run(*3 * [0.8], 0.7, 0.5, *11 * [0.8])
    found = list(windows([UNDISTURBED, killed], KILL_S))
    assert [(w.begin_s, w.end_s) for w in found[:2]] == [(-15.0, -10.0), (-10.0, -5.0)]
    assert found[2].rates == (0.8, 0.7)
    assert found[3].rates == (0.8, 0.5)
