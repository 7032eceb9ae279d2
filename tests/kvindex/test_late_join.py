"""A feed that begins late: what stands below blocks of which no event has told.

Blocks 1 and 2 are those: a system prompt that was cached before the feed began.
"""

import pytest

from kvindex.events import BlockStored
from kvindex.knowledge import Knowledge, credits
from tests.kvindex.engine import CLEARED, own, payload, removed, stored
from tests.kvindex.test_knowledge import World

OTHERS = stored(11, 12, parent=2)
"""A chat below it, which another gateway sent."""


class Late:
    """Such a feed, and requests that find blocks 1 and 2 cached."""

    def __init__(self) -> None:
        self.world = World()
        self.worker: Knowledge = self.world.worker()
        self._next = 700

    def hear(self, *events: BlockStored) -> None:
        """The next batch."""
        self.worker.feed.receive(self._next, payload(*events))
        self._next += 1

    def ask(self, *blocks: int, found: int, events: tuple[BlockStored, ...]) -> None:
        """Send a prompt of which `found` blocks are cached; what events come of it."""
        hashes = own(*blocks)
        self.worker.sent(hashes)
        self.hear(*events)
        self.worker.ended(
            hashes, streamed=True, delivered_blocks=found, predicted_blocks=0
        )

    def known(self, *blocks: int) -> int:
        """The leading blocks of this prompt that are taken as held."""
        return credits([self.worker], own(*blocks))[0].blocks


@pytest.fixture
def late() -> Late:
    """It has heard of the other gateway's chat."""
    late = Late()
    late.hear(OTHERS)
    return late


def test_a_request_of_ones_own_places_what_others_sent(late: Late) -> None:
    """One request below the same blocks tells by which name the worker knows them."""
    assert late.known(1, 2, 11, 12, 13) == 0
    late.ask(1, 2, 21, 22, found=2, events=(stored(21, 22, parent=2),))
    assert late.known(1, 2, 11, 12, 13) == 4
    assert late.known(1, 2, 21, 22, 23) == 4
    late.hear(stored(13, parent=12), stored(31, parent=2))  # and what comes later
    assert late.known(1, 2, 11, 12, 13, 14) == 5
    assert late.known(1, 2, 31, 32) == 3
    assert late.known(1, 3, 31, 32) == 1


def test_what_is_evicted_is_not_held(late: Late) -> None:
    """Placed blocks have their names, by which they go."""
    late.ask(1, 2, 21, found=2, events=(stored(21, parent=2),))
    late.hear(removed(12))  # type: ignore[arg-type]
    assert late.known(1, 2, 11, 12, 13) == 3
    late.hear(removed(11), removed(21), removed(2))  # type: ignore[arg-type]
    owner = late.worker.feed.owner
    assert owner is not None
    assert owner.blocks == 0
    late.hear(CLEARED)  # type: ignore[arg-type]
    assert late.known(1, 2, 11, 12) == 0


def test_the_same_text_below_another_prompt_is_no_proof(late: Late) -> None:
    """Two at a time that are alike tell nothing; nor does one of before."""
    both = stored(21, parent=2), stored(21, names=(921,), parent=902)
    late.ask(1, 2, 21, found=2, events=both)
    assert late.known(1, 2, 11, 12) == 2
    late.ask(1, 2, 11, found=2, events=())
    assert late.known(1, 2, 11, 12, 13) == 3


@pytest.mark.parametrize("found", [0, 1, 3])
def test_other_cached_tokens_than_the_events_tell_of(late: Late, found: int) -> None:
    """Then the blocks are others, and nothing is placed."""
    late.ask(1, 2, 21, found=found, events=(stored(21, parent=2),))
    assert late.known(1, 2, 11, 12, 13) == 2
