"""History: an LRU of prefixes, and when its entries count."""

from hypothesis import given
from hypothesis import strategies as st

from kvindex.history import History
from tests.kvindex.engine import Clock


def history(capacity: int = 100) -> tuple[History, Clock]:
    """An empty one and its clock."""
    clock = Clock()
    return History(capacity_blocks=capacity, clock=clock), clock


def test_a_sent_request_is_held() -> None:
    """As far as the prompts agree."""
    past, _ = history()
    past.sent([1, 2, 3, 4])
    past.sent([1, 2, 9])
    assert past.held([1, 2, 3, 4, 5], live=False) == 4
    assert past.held([1, 2, 9, 94], live=False) == 3
    assert past.held([1, 8, 3], live=False) == 1
    assert past.held([8], live=False) == 0
    assert past.held([], live=False) == 0
    past.sent([])
    assert len(past) == 5


def test_the_deepest_of_the_oldest_go_first() -> None:
    """Prefixes stay whole."""
    past, _ = history(capacity=6)
    past.sent([1, 2, 3, 4])
    past.sent([1, 2, 5])
    past.sent([7])
    assert past.held([1, 2, 3, 4], live=False) == 4
    past.sent([8])
    assert past.held([1, 2, 3, 4], live=False) == 3
    past.sent([9, 10])
    assert past.held([1, 2, 3, 4], live=False) == 2
    assert past.held([1, 2, 5], live=False) == 2
    assert len(past) == 6


def test_a_request_larger_than_the_cache() -> None:
    """Its first blocks are kept."""
    past, _ = history(capacity=3)
    past.sent([1, 2, 3, 4, 5])
    assert past.held([1, 2, 3, 4, 5], live=False) == 3
    none, _ = history(capacity=0)
    none.sent([1])
    assert none.held([1], live=False) == 0


def test_events_speak_after_a_while() -> None:
    """Entries stop to count for a live feed, and stay for the others."""
    past, clock = history()
    past.sent([1, 2, 3])
    clock.now += 100
    assert past.held([1, 2, 3], live=True) == 3
    past.spoken_for([1, 2, 3], 5.0)
    clock.now += 4.9
    assert past.held([1, 2, 3], live=True) == 3
    past.spoken_for([1, 2, 3], 5.0)
    clock.now += 0.2
    assert past.held([1, 2, 3], live=True) == 0
    assert past.held([1, 2, 3], live=False) == 3
    past.spoken_for([], 5.0)
    past.spoken_for([42], 5.0)


def test_a_longer_request_in_flight_keeps_its_blocks() -> None:
    """The first token of a shorter one does not speak for it."""
    past, clock = history()
    past.sent([1, 2])
    past.sent([1, 2, 3])
    past.spoken_for([1, 2], 0.0)
    clock.now += 1
    assert past.held([1, 2, 3], live=True) == 3


def test_history_goes_on_where_the_index_ends() -> None:
    """A prefix touched by a request that is over, then one still in flight."""
    past, clock = history()
    past.sent([1, 2, 3, 4])
    past.sent([1])
    past.spoken_for([1], 0.0)
    clock.now += 1
    assert past.held([1, 2, 3, 4], live=True) == 0
    assert past.held([1, 2, 3, 4], live=True, start=1) == 4
    assert past.held([1, 2, 3, 4], live=True, start=4) == 4


def test_one_contradiction_is_forgiven() -> None:
    """The request that found nothing has just filled the cache; two are not."""
    past, _ = history()
    past.sent([1, 2, 3])
    past.delivered([1, 2, 3], 1, 3)
    assert past.held([1, 2, 3], live=False) == 3
    past.delivered([1, 2, 3, 99], 1, 4)
    assert past.held([1, 2, 3], live=False) == 1
    assert past.held([1, 2, 3], live=False, start=2) == 2
    past.sent([1, 2, 3])
    assert past.held([1, 2, 3], live=False) == 1
    past.delivered([1, 2, 3], 3, 1)
    assert past.held([1, 2, 3], live=False) == 3


def test_clear() -> None:
    """The cache is empty."""
    past, _ = history()
    past.sent([1, 2])
    past.delivered([1, 2], 0, 2)
    past.clear()
    assert (len(past), past.held([1], live=False)) == (0, 0)
    past.sent([1])
    past.delivered([1], 0, 1)
    assert past.held([1], live=False) == 1


def test_strikes_leave_with_their_blocks() -> None:
    """What comes back later starts anew."""
    past, _ = history(capacity=2)
    past.sent([1, 2])
    past.delivered([1, 2], 0, 2)
    past.sent([8, 9])
    past.sent([1, 2])
    past.delivered([1, 2], 0, 2)
    assert past.held([1, 2], live=False) == 2


def test_shared_prefixes_do_not_grow_the_line() -> None:
    """The same long prompt, many times: memory stays bounded."""
    past, _ = history(capacity=50)
    for turn in range(500):
        past.sent([*range(40), 1000 + turn])
    assert len(past) <= 50
    assert past._in_line <= 4 * 50
    assert len(past._runs) <= 5
    assert past.held(list(range(40)), live=False) == 40


def test_a_withdrawn_request_leaves_what_was_there_before() -> None:
    """What an earlier request noted stays; what only this one noted goes."""
    past, _ = history()
    past.sent([1, 2])
    past.sent([1, 2, 3, 4])
    past.withdraw([1, 2, 3, 4])
    assert past.held([1, 2, 3, 4], live=False) == 2
    assert len(past) == 2
    past.sent([5, 6])
    past.withdraw([5, 6])
    assert (past.held([5, 6], live=False), len(past)) == (0, 2)


def test_a_withdrawn_request_that_others_followed_stays() -> None:
    """A later request with the same last block has taken its place."""
    past, _ = history()
    past.sent([1, 2])
    past.sent([1, 2, 3])
    past.withdraw([1, 2])
    past.withdraw([])
    past.withdraw([9])
    assert past.held([1, 2, 3], live=False) == 3


def test_withdrawn_requests_leave_the_line() -> None:
    """A worker that refuses everything costs no memory."""
    past, _ = history(capacity=4)
    for turn in range(0, 100, 2):
        past.sent([turn, turn + 1])
        past.withdraw([turn, turn + 1])
        past.withdraw([turn, turn + 1])
    assert len(past) == 0
    past.sent([1, 2, 3, 4])
    past.sent([5, 6])
    assert (len(past), len(past._runs)) == (4, 2)


PROMPTS = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=6).map(
        lambda path: [hash(tuple(path[: i + 1])) for i in range(len(path))]
    ),
    max_size=30,
)


@given(PROMPTS, st.integers(1, 12))
def test_it_is_an_lru_of_prefixes(prompts: list[list[int]], capacity: int) -> None:
    """Against a plain ordered list that touches the deepest block first."""
    past, _ = history(capacity)
    order: list[int] = []
    line = 0
    for prompt in prompts:
        kept = prompt[:capacity]
        line += len(kept)
        if line > 4 * capacity:  # beyond that the two may differ
            return
        past.sent(prompt)
        for block_hash in reversed(kept):
            if block_hash in order:
                order.remove(block_hash)
            order.append(block_hash)
        del order[: max(0, len(order) - capacity)]
        line = past._in_line
        for other in prompts:
            leading = 0
            while leading < len(other) and other[leading] in order:
                leading += 1
            assert past.held(other, live=False) == leading
        assert len(past) == len(order)


@given(PROMPTS, st.data())
def test_what_is_gone_ends_each_prompt(
    prompts: list[list[int]], data: st.DataObject
) -> None:
    """A block the owner gave up is not counted, nor is what was noted behind it."""
    past, _ = history(capacity=1_000)
    for prompt in prompts:
        past.sent(prompt)
    for prompt in prompts:
        at = data.draw(st.integers(0, len(prompt) - 1))
        past.gone(prompt[at])
        assert past.held(prompt, live=False) <= at
        past.gone(prompt[at])
    assert past._in_line == sum(run.end for run in past._runs)
    for prompt in prompts:
        past.sent(prompt)
        assert past.held(prompt, live=False) == len(prompt)


def test_what_was_cleared_is_freed_little_by_little() -> None:
    """With the requests that come after: a large history takes its time."""
    history = History(capacity_blocks=100_000, clock=Clock())
    for number in range(10):
        history.sent(range(number * 5_000, (number + 1) * 5_000))
    history.clear()
    assert (len(history), history.held(range(10), live=False)) == (0, 0)
    assert len(history._old_runs[0]) == 10
    for number in range(60):
        history.sent([-number])
    assert history._old_runs == []
    assert not history._waste.free(0)
    assert len(history) == 60


def test_what_is_gone_leaves_nothing() -> None:
    """A worker that evicts, and requests that never came: no run stays for good."""
    past, _ = history(capacity=1_000)
    first, *later = range(20_001)
    past.sent([first])
    for number in later:
        prompt = [number, -number]
        past.sent(prompt)
        if number % 2:
            past.withdraw(prompt)
        else:
            past.gone(-number)
            past.gone(number)
    assert (len(past), len(past._runs), past._in_line) == (1, 1, 1)


def test_a_run_keeps_no_more_than_twice_what_is_left() -> None:
    """Its deepest blocks go one by one, as engines evict them."""
    past, _ = history(capacity=1_000)
    prompt = list(range(1_000))
    past.sent(prompt)
    (run,) = past._runs
    for left in range(999, 0, -1):
        past.gone(prompt[left])
        assert past.held(prompt, live=False) == run.end == left
        assert len(run.hashes) <= 2 * left + 1
    past.spoken_for(prompt[:1], 0.0)
    assert past.held(prompt, live=True) == 1  # it is of a shorter request
