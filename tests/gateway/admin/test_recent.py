"""What is kept of the last minutes, and what is forgotten."""

from gateway.admin.recent import MOST_TIMES, SLOT_S, SLOTS, Recent
from router.outcome import Outcome


class Clock:
    """Told by the test."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def outcome(delivered: int | None) -> Outcome:
    """100 prompt tokens, 60 predicted, 80 at best."""
    return Outcome(
        prompt_tokens=100,
        predicted_hit_tokens=60,
        best_hit_tokens=80,
        delivered_hit_tokens=delivered,
        estimated=False,
    )


def test_slots_of_time() -> None:
    """What ends within one is summed; its age grows; nothing happened: no slot."""
    clock = Clock()
    recent = Recent(clock=clock)
    recent.finished(outcome(50))
    recent.finished(outcome(None))
    recent.finished(outcome(70))
    clock.now += 3 * SLOT_S
    for seconds in (0.3, 0.1, 0.2):
        recent.first_token(seconds)
    old, new = recent.page()["slots"]
    assert old == {
        "age": 3,
        "prompt_tokens": 200,
        "delivered_hit_tokens": 120,
        "predicted_hit_tokens": 120,
        "best_hit_tokens": 160,
        "first_token_p50_s": None,
        "first_token_p95_s": None,
    }
    assert new["age"] == 0
    assert (new["first_token_p50_s"], new["first_token_p95_s"]) == (0.2, 0.3)


def test_it_is_bounded() -> None:
    """Old slots go, at once on the page, and a busy slot keeps its last times."""
    clock = Clock()
    recent = Recent(clock=clock)
    for _ in range(2 * SLOTS):
        recent.first_token(9.0)
        clock.now += SLOT_S
    assert len(recent.page()["slots"]) == SLOTS - 1
    for _ in range(MOST_TIMES):
        recent.first_token(0.5)
    assert recent.page()["slots"][-1]["first_token_p95_s"] == 0.5
    clock.now += SLOTS * SLOT_S
    assert recent.page()["slots"] == []
