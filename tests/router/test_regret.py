"""When a prefix gets one more copy."""

from router.regret import BURST_SHARE, FIRST_FACTOR, LEAST_FACTOR, Regrets
from tests.router.fleet import Clock


def copies(regrets: Regrets, clock: Clock, *, waits: int, gap_s: float) -> list[int]:
    """Which of so many requests makes a copy: each waits 1 s more, a copy takes 1 s."""
    made = []
    for number in range(waits):
        if regrets.due(7, 1.0, 1.0):
            made.append(number)
            regrets.paid(7)
        else:
            regrets.waited(7, 1.0, 1.0)
        clock += gap_s
    return made


def test_the_first_copy_takes_longest() -> None:
    """Waits add up beyond the factor; the next needs less."""
    clock = Clock()
    made = copies(Regrets(clock), clock, waits=12, gap_s=10.0)
    first, second = int(FIRST_FACTOR), int(FIRST_FACTOR + LEAST_FACTOR + 1)
    assert made[:2] == [first, second]


def test_a_burst_makes_no_copy() -> None:
    """What comes within half of a copy's time is one demand, and waits."""
    clock = Clock()
    assert copies(Regrets(clock), clock, waits=50, gap_s=0.0) == []


def test_lasting_demand_counts_once_in_a_burst() -> None:
    """Eight come in the time a copy takes: one in four counts."""
    clock = Clock()
    made = copies(Regrets(clock), clock, waits=20, gap_s=BURST_SHARE / 4)
    assert made[0] == 4 * int(FIRST_FACTOR)


def test_a_long_wait_needs_no_history() -> None:
    """One request that would wait longer than the factor pays at once."""
    regrets = Regrets(Clock())
    assert not regrets.due(7, FIRST_FACTOR, 1.0)
    assert regrets.due(7, FIRST_FACTOR + 0.1, 1.0)


def test_prefixes_are_told_apart() -> None:
    """Waiting for one makes no copy of another."""
    clock = Clock()
    regrets = Regrets(clock)
    for _ in range(int(FIRST_FACTOR)):
        regrets.waited(7, 1.0, 1.0)
        clock += 1.0
    assert regrets.due(7, 1.0, 1.0)
    assert not regrets.due(8, 1.0, 1.0)


def test_what_was_waited_for_longest_ago_is_forgotten() -> None:
    """The table is bounded."""
    clock = Clock()
    regrets = Regrets(clock, prefixes=100)
    for prefix in range(1_000):
        regrets.waited(prefix, FIRST_FACTOR, 1.0)
        clock += 1.0
    assert len(regrets) == 100
    assert regrets.due(999, 1.0, 1.0)
    assert not regrets.due(899, 1.0, 1.0)
