"""Requests of which not all blocks are noted any more, or ever were."""

import pytest

from tests.kvindex.test_history import history


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize("evicted", [True, False])
def test_a_request_whose_deepest_blocks_are_gone(refused: bool, evicted: bool) -> None:
    """What is left of it is its own still: events speak for it, or it never came."""
    past, clock = history(capacity=6)
    past.sent([1, 2, 3, 4])
    if evicted:
        past.sent([7, 8, 9])
    else:
        past.gone(4)
    assert past.held([1, 2, 3, 4], live=True) == 3
    if refused:
        past.withdraw([1, 2, 3, 4])
    else:
        past.spoken_for([1, 2, 3, 4], 5.0)
        clock.now += 5.0
    assert past.held([1, 2, 3, 4], live=True) == 0
    assert past.held([1, 2, 3, 4], live=False) == (0 if refused else 3)


def test_a_request_longer_than_the_cache_is_spoken_for() -> None:
    """Though its last blocks were never noted."""
    past, _ = history(capacity=2)
    past.sent([1, 2, 3])
    past.spoken_for([1, 2, 3], 0.0)
    assert past.held([1, 2, 3], live=True) == 0
