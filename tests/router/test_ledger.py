"""The books of load in flight."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.ledger import Ledger
from tests.router.fleet import Clock


def test_prompt_tokens_count_until_the_first_token() -> None:
    """A streamed request moves from prefill to decode work, then out."""
    ledger = Ledger(clock=Clock())
    booking = ledger.book(1_000, 200, prefill_s=None)
    assert (ledger.uncached_tokens, ledger.decode_tokens, ledger.requests) == (
        1_000,
        0,
        1,
    )
    booking.first_token()
    assert (ledger.uncached_tokens, ledger.decode_tokens, ledger.requests) == (
        0,
        200,
        1,
    )
    booking.release()
    assert (ledger.uncached_tokens, ledger.decode_tokens, ledger.requests) == (0, 0, 0)
    assert booking.released


def test_unstreamed_prompt_tokens_leave_when_their_prefill_has_passed() -> None:
    """Without a first token to see, the estimate stands in for it."""
    clock = Clock()
    ledger = Ledger(clock=clock)
    slow = ledger.book(4_000, 100, prefill_s=2.0)
    ledger.book(1_000, 50, prefill_s=0.5)
    assert ledger.uncached_tokens == 5_000
    clock += 0.5
    assert ledger.uncached_tokens == 4_000
    assert ledger.decode_tokens == 50
    slow.release()
    assert ledger.uncached_tokens == 0
    clock += 10
    assert (ledger.decode_tokens, ledger.requests) == (50, 1)


def test_what_should_be_done_of_the_first_prefill() -> None:
    """All of it when it should be over; ever less again if it is not over then."""
    clock = Clock()
    ledger = Ledger(clock=clock)
    assert ledger.done_tokens(1_000) == 0
    first = ledger.book(2_000, 50, prefill_s=None)
    clock += 0.5
    ledger.book(5_000, 50, prefill_s=None)
    assert ledger.done_tokens(1_000) == pytest.approx(500)
    clock += 1.5
    assert ledger.done_tokens(1_000) == pytest.approx(2_000)
    clock += 0.5
    assert ledger.done_tokens(1_000) == pytest.approx(1_500)
    clock += 10
    assert ledger.done_tokens(1_000) == 0
    first.first_token()
    clock += 1
    assert ledger.done_tokens(1_000) == pytest.approx(1_000)


def test_an_answer_before_the_estimate_releases_at_once() -> None:
    """The estimate is an upper bound: the answer ends the prefill."""
    clock = Clock()
    ledger = Ledger(clock=clock)
    ledger.book(4_000, 100, prefill_s=2.0).release()
    assert (ledger.uncached_tokens, ledger.requests) == (0, 0)


def test_dues_of_released_bookings_do_not_pile_up() -> None:
    """A flood of fast answers leaves no trace, however long their estimates were."""
    ledger = Ledger(clock=Clock())
    for _ in range(5_000):
        ledger.book(10, 10, prefill_s=3_600.0).release()
    assert len(ledger._dues) <= 65


def test_negative_amounts_are_booked_as_nothing() -> None:
    """A wrong estimate cannot make load negative."""
    ledger = Ledger(clock=Clock())
    ledger.book(-5, -5, prefill_s=None).first_token()
    assert (ledger.uncached_tokens, ledger.decode_tokens) == (0, 0)


@given(
    amounts=st.lists(
        st.tuples(
            st.integers(0, 100_000),
            st.integers(0, 10_000),
            st.one_of(st.none(), st.floats(0, 60)),
        ),
        min_size=1,
        max_size=12,
    ),
    calls=st.lists(
        st.tuples(st.integers(0, 11), st.sampled_from(["first_token", "release"])),
        max_size=60,
    ),
    steps=st.lists(st.floats(0, 30), min_size=1, max_size=60),
)
def test_any_order_of_calls_balances(
    amounts: list[tuple[int, int, float | None]],
    calls: list[tuple[int, str]],
    steps: list[float],
) -> None:
    """Never negative on the way, exactly nothing once all are released."""
    clock = Clock()
    ledger = Ledger(clock=clock)
    bookings = [
        ledger.book(uncached, output, prefill_s=prefill_s)
        for uncached, output, prefill_s in amounts
    ]
    for number, (which, call) in enumerate(calls):
        getattr(bookings[which % len(bookings)], call)()
        clock += steps[number % len(steps)]
        alive = [booking for booking in bookings if not booking.released]
        assert ledger.uncached_tokens == sum(
            booking.uncached_tokens for booking in alive if booking.in_prefill
        )
        assert ledger.decode_tokens == sum(
            booking.output_tokens for booking in alive if not booking.in_prefill
        )
        assert ledger.requests == len(alive)
    for booking in bookings:
        booking.release()
    assert (ledger.uncached_tokens, ledger.decode_tokens, ledger.requests) == (0, 0, 0)
