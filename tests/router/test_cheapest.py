"""Cold prompts and the room in caches, among workers that cost the same."""

from collections import Counter

import msgspec

from router import Candidate
from router.cheapest import cheapest
from tests.router.choices import candidate
from tests.router.fleet import Fleet, prompt


def sent_lately(room: int | None, tokens: float, *, uncached: int = 1_000) -> Candidate:
    """A candidate that got so much, with room for so much more."""
    known = candidate(room=room, uncached=uncached)
    return msgspec.structs.replace(known, recent_tokens=tokens)


def test_a_cold_prompt_goes_where_there_is_room() -> None:
    """Though more was sent there lately: at the other it pushes something out."""
    assert cheapest([sent_lately(999, 0), sent_lately(1_000, 5_000)]) == 1


def test_a_cache_of_unknown_size_is_not_known_to_be_full() -> None:
    """It is as good as one with room: else it would get nothing beside such a one."""
    assert cheapest([sent_lately(None, 9), sent_lately(0, 5)]) == 0
    assert cheapest([sent_lately(None, 0), sent_lately(5_000, 5)]) == 0
    assert cheapest([sent_lately(None, 6), sent_lately(5_000, 5)]) == 1


def test_room_does_not_crowd_a_worker() -> None:
    """With twice the mean it has done enough: the least busy one is next."""
    others = [sent_lately(0, tokens) for tokens in (1_000, 900, 1_100)]
    assert cheapest([*others, sent_lately(5_000, 2_900)]) == 3
    assert cheapest([*others, sent_lately(5_000, 3_100)]) == 1


def test_what_is_held_comes_before_room() -> None:
    """Of two that hold the prompt the less busy one: that is what copies are for."""
    warm = sent_lately(5, 0, uncached=10), sent_lately(5_000, 9, uncached=10)
    assert cheapest(warm) == 0


def test_an_empty_cache_is_filled_first() -> None:
    """w1 is full but for 1,472 tokens, w2 began anew: they got four each of eight.

    What w1 holds is still there afterwards.
    """
    fleet, served = Fleet(2), Counter[str]()
    for worker in fleet.pool.workers:
        worker.cache_blocks = 1_000
    for number in range(81):
        fleet.store("w1", prompt(1_000 + number, 1_600))
    fleet.clock += 600
    told = fleet.router.explain(fleet.request(prompt(99, 3_200)))
    assert [worker.room_tokens for worker in told.workers] == [1_472, 131_072]
    for number in range(8):
        decision = fleet.router.decide(fleet.request(prompt(number, 3_200)))
        decision.sent()
        fleet.clock += 1
        decision.first_token()
        decision.finished(None)
        fleet.clock += 30
        served[decision.worker.url] += 1
    assert served == {"w2": 8}
    told = fleet.router.explain(fleet.request(prompt(99, 3_200)))
    assert told.why.endswith("but its cache has no room for it")
