"""Turns that go round: every client's requests in order, no client ahead of others."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.request.fair_queue import FairQueue


def filled(**waiting: int) -> FairQueue[str]:
    """A queue in which so many of each client wait; a's came first, then b's, ..."""
    queue = FairQueue[str]()
    for client, count in waiting.items():
        for number in range(count):
            queue.add(client, f"{client}{number}")
    return queue


def all_served(queue: FairQueue[str]) -> list[str]:
    """What is served, one after the other."""
    served = []
    while queue:
        client, item = next(queue.in_turn())
        queue.served(client, item)
        served.append(item)
    return served


def test_one_client_is_served_in_order() -> None:
    """As without any clients."""
    assert all_served(filled(a=4)) == ["a0", "a1", "a2", "a3"]


def test_turns_go_round() -> None:
    """One that has many waits for all others, whoever came first."""
    assert all_served(filled(a=4, b=1, c=2)) == [
        "a0", "b0", "c0", "a1", "c1", "a2", "a3",
    ]  # fmt: skip


def test_who_comes_late_waits_one_round() -> None:
    """Not behind all that waits."""
    queue = filled(a=3, b=3)
    client, item = next(queue.in_turn())
    queue.served(client, item)
    queue.add("c", "c0")
    assert all_served(queue) == ["b0", "a1", "c0", "b1", "a2", "b2"]


def test_all_in_the_order_of_their_turns() -> None:
    """For those whose model has room while the first one's has none."""
    assert [item for _, item in filled(a=3, b=1).in_turn()] == ["a0", "b0", "a1", "a2"]


def test_whose_last_gives_way() -> None:
    """That of whoever has most; never of one who would then have fewer."""
    queue = filled(a=4, b=2)
    assert queue.last_of_longest("b") == ("a", "a3")
    assert queue.last_of_longest("c") == ("a", "a3")
    assert queue.last_of_longest("a") is None
    assert filled(a=3, b=2).last_of_longest("b") is None
    assert filled(a=1).last_of_longest("c") is None


def test_nothing_is_kept_of_who_has_gone() -> None:
    """However many clients there were."""
    queue = FairQueue[str]()
    for number in range(1000):
        queue.add(str(number), "x")
        queue.discard(str(number), "x")
        queue.discard(str(number), "x")
    assert len(queue) == 0
    assert queue._waiting == {}


def test_an_empty_queue_has_no_last() -> None:
    """There may be no room even in an empty one."""
    assert FairQueue[str]().last_of_longest("a") is None


@given(st.lists(st.sampled_from("abcd"), max_size=40))
def test_nobody_is_ahead_by_more_than_one(clients: list[str]) -> None:
    """While two clients wait, they have been served alike; none is lost."""
    queue = FairQueue[int]()
    for number, client in enumerate(clients):
        queue.add(client, number)
    served = dict.fromkeys("abcd", 0)
    order = []
    while queue:
        turn, item = next(queue.in_turn())
        client = str(turn)
        waiting = [c for c in served if served[c] < clients.count(c)]
        assert served[client] == min(served[c] for c in waiting)
        queue.served(client, item)
        served[client] += 1
        order.append(item)
    assert sorted(order) == list(range(len(clients)))
