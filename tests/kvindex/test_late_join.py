"""A feed that begins late: what stands below blocks of which no event has told.

Blocks 1 and 2 are those: a system prompt that was cached before the feed began.
"""

import pytest

from kvindex.content import LIMIT, Content
from kvindex.events import BlockStored
from kvindex.knowledge import Knowledge, credits
from tests.kvindex.engine import CLEARED, ids_of, own, payload, removed, stored
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

    def guessed(self, *blocks: int, size: int = 16) -> int:
        """The same where the prompt's ids are at hand."""
        content = Content(ids_of(*blocks, size=size), size, len(blocks))
        found = credits([self.worker], own(*blocks, size=size), content=content)[0]
        assert found.held_blocks == 0  # the index claims nothing
        return found.blocks

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


def test_a_prompt_that_goes_on_with_what_others_sent(late: Late) -> None:
    """Its ids are below its own beginning: that is taken as held with them."""
    assert late.guessed(1, 2, 11, 12, 13) == 4
    assert late.guessed(1, 2, 11, 99, 98) == 3
    assert late.guessed(1, 2, 99, 98) == 0
    late.hear(stored(13, 14, parent=12), stored(51, parent=50))
    assert late.guessed(1, 2, 11, 12, 13, 14, 15) == 6
    assert late.guessed(41, 50, 51, 52) == 3


def test_what_a_prompt_begins_with_has_nothing_before_it(late: Late) -> None:
    """Such blocks are no orphans: these are others."""
    assert late.guessed(11, 12, 13) == 0


def test_ids_that_a_prompt_repeats(late: Late) -> None:
    """Nobody knows which of them they are."""
    assert late.guessed(1, 11, 12, 11, 12, 13) == 0
    assert late.guessed(1, 11, 12, 5, 12) == 3


def test_what_is_gone_or_of_another_size(late: Late) -> None:
    """It is nobody's end."""
    late.hear(removed(12))  # type: ignore[arg-type]
    assert late.guessed(1, 2, 11, 12, 13) == 3
    late.hear(removed(11))  # type: ignore[arg-type]
    assert late.guessed(1, 2, 11, 12, 13) == 0
    assert late.guessed(1, 2, 11, 12, size=32) == 0


def test_media_are_not_in_the_ids(late: Late) -> None:
    """What has them is never guessed by the ids."""
    picture = ("picture", 0)
    late.hear(stored(61, 62, parent=60, extra_keys=((picture,), None)))
    late.hear(stored(71, 72, parent=70, extra_keys=(None, (picture,))))
    assert late.guessed(1, 60, 61, 62) == 0
    assert late.guessed(1, 70, 71, 72) == 3


def test_of_a_very_long_prompt_the_end_counts(late: Late) -> None:
    """What a chat was last is what was stored last."""
    rest = range(1000, 1000 + LIMIT)
    assert late.guessed(1, *rest, 11, 12, 13) == 1 + LIMIT + 2
    assert late.guessed(1, 11, 12, *rest) == 0


def test_what_was_guessed_goes_on(late: Late) -> None:
    """What others send below it later is at its end still."""
    late.ask(1, 2, 11, 12, 13, found=4, events=(stored(13, parent=12),))
    assert late.known(1, 2, 11, 12, 13, 14) == 5
    late.hear(stored(14, parent=13))
    assert late.guessed(1, 2, 11, 12, 13, 14, 15) == 6
