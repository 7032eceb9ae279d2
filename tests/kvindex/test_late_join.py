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


def contents(*blocks: int, size: int = 16, adapter: str | None = None) -> Content:
    """A prompt of such blocks by its ids."""
    return Content(ids_of(*blocks, size=size), size, len(blocks), adapter)


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
        self.worker.sent(hashes, contents(*blocks))
        self.hear(*events)
        self.worker.ended(
            hashes, streamed=True, delivered_blocks=found, predicted_blocks=0
        )

    def later(self) -> None:
        """Some seconds later all events are there."""
        self.world.clock.now += 3.0
        self.worker.feed.tick()

    def guessed(self, *blocks: int, size: int = 16, adapter: str | None = None) -> int:
        """Where in this prompt ends what is guessed by its ids; nothing is held."""
        content = contents(*blocks, size=size, adapter=adapter)
        found = credits([self.worker], own(*blocks, size=size), content=content)[0]
        assert found.held_blocks == 0  # the index claims nothing
        assert found.weighted == found.blocks + found.guessed_blocks / 2
        return found.guessed_blocks and found.blocks + found.guessed_blocks

    def known(self, *blocks: int) -> int:
        """The leading blocks of this prompt that are taken as held."""
        return credits([self.worker], own(*blocks))[0].blocks


@pytest.fixture
def late() -> Late:
    """It has heard of the other gateway's chat; its worker tells its cached tokens."""
    late = Late()
    late.hear(OTHERS)
    late.worker.ended(
        own(7), streamed=True, delivered_blocks=0, predicted_blocks=0, matchable=0
    )
    return late


def test_a_request_of_ones_own_places_what_others_sent(late: Late) -> None:
    """One request below the same blocks tells by which name the worker knows them."""
    assert late.known(1, 2, 11, 12, 13) == 0
    late.ask(1, 2, 21, 22, found=2, events=(stored(21, 22, parent=2),))
    assert late.known(1, 2, 11, 12, 13) == 2  # as its own request says
    late.later()
    assert late.known(1, 2, 11, 12, 13) == 4
    assert late.known(1, 2, 21, 22, 23) == 4
    late.hear(stored(13, parent=12), stored(31, parent=2))  # and what comes later
    assert late.known(1, 2, 11, 12, 13, 14) == 5
    assert late.known(1, 2, 31, 32) == 3
    assert late.known(1, 3, 31, 32) == 1


def test_what_is_evicted_is_not_held(late: Late) -> None:
    """Placed blocks have their names, by which they go."""
    late.ask(1, 2, 21, found=2, events=(stored(21, parent=2),))
    late.later()
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
    late.ask(1, 2, 21, found=2, events=(stored(21, names=(921,), parent=902),))
    late.hear(stored(21, parent=2))  # its own, a moment after its end
    late.later()
    assert late.known(1, 2, 11, 12) == 2
    late.ask(1, 2, 11, found=2, events=())
    late.later()
    assert late.known(1, 2, 11, 12, 13) == 3


def test_a_request_below_what_is_an_orphan_itself(late: Late) -> None:
    """Its own block has no place still: another one that is alike must not get it."""
    others = stored(21, names=(921,), parent=902)
    late.ask(1, 2, 11, 12, 21, found=4, events=(stored(21, parent=12), others))
    late.later()
    late.hear(stored(99, parent=902))
    assert late.known(1, 2, 11, 12, 99) == 4


def test_a_last_block_that_no_request_can_find(late: Late) -> None:
    """It is computed though it is held: one that is told meanwhile may be another's."""
    prompt = own(1, 2, 21)
    late.worker.sent(prompt)
    late.hear(stored(21, names=(921,), parent=902))
    late.worker.ended(
        prompt, streamed=True, delivered_blocks=2, predicted_blocks=0, matchable=2
    )
    late.later()
    late.hear(stored(99, parent=902))
    assert late.known(1, 2, 99) == 2


def test_a_place_of_before_a_restart(late: Late) -> None:
    """What the process before found cached says nothing of the next one's blocks."""
    late.ask(1, 2, 21, found=2, events=())
    feed = late.worker.feed
    feed.restarted("another process")
    feed.receive(9, payload(stored(21, names=(921,), parent=902)))
    late.later()
    assert feed.owner is not None
    assert (feed.owner.blocks, feed.orphans) == (0, 1)


def test_what_is_indexed_needs_no_place(late: Late) -> None:
    """Its own block is where its parent is: an orphan that is alike is another's."""
    late.hear(stored(1, 2))
    assert late.known(1, 2, 11, 12, 13) == 4
    others = stored(21, names=(921,), parent=902), stored(22, names=(922,), parent=921)
    late.ask(1, 2, 21, found=2, events=(stored(21, parent=2), *others))
    late.later()
    late.hear(stored(99, parent=902))
    assert late.known(1, 2, 21, 22) == 3
    assert late.known(1, 2, 99) == 2


@pytest.mark.parametrize("found", [0, 1, 3])
def test_other_cached_tokens_than_the_events_tell_of(late: Late, found: int) -> None:
    """Then the blocks are others, and nothing is placed."""
    late.ask(1, 2, 21, found=found, events=(stored(21, parent=2),))
    late.later()
    assert late.known(1, 2, 11, 12, 13) == 2


def test_many_that_wait_for_one_place_are_indexed_in_slices(late: Late) -> None:
    """Thousands take long: never all at once."""
    count = 3_000
    for first in range(1_000, 1_000 + count, 500):
        late.hear(*(stored(each, parent=2) for each in range(first, first + 500)))
    late.worker.feed.sliced = True
    late.hear(stored(2, parent=1), stored(1))
    owner = late.worker.feed.owner
    assert owner is not None
    most = before = 0
    while late.worker.feed.work(1):
        most, before = max(most, owner.blocks - before), owner.blocks
    assert owner.blocks == count + 4
    assert most <= 513


def test_a_prompt_that_goes_on_with_what_others_sent(late: Late) -> None:
    """Its ids are below its own beginning: that is guessed to be held with them."""
    assert late.guessed(1, 2, 11, 12, 13) == 4
    assert late.guessed(1, 2, 11, 99, 98) == 3
    assert late.guessed(1, 2, 99, 98) == 0
    late.hear(stored(13, 14, parent=12), stored(51, parent=50))
    assert late.guessed(1, 2, 11, 12, 13, 14, 15) == 6
    assert late.guessed(41, 50, 51, 52) == 3


def test_what_differs_before_is_another_prompt(late: Late) -> None:
    """All of a run is compared, up to where nobody knows what was before."""
    assert late.guessed(1, 2, 10, 12, 13) == 0
    assert late.guessed(11, 12, 13) == 0  # nothing is before block 0, so no orphan is
    assert late.guessed(12, 13) == 0


def test_a_guess_that_was_wrong_is_not_made_again(late: Late) -> None:
    """One request pays; what it computes there is then known without a guess."""
    document = 5, 6, 11, 12, 13
    assert late.guessed(*document) == 4
    late.ask(*document, found=0, events=())
    assert late.guessed(8, 9, 11, 12, 13) == 0
    assert late.guessed(1, 2, 11, 12, 13) == 0
    late.hear(stored(11, names=(911,), parent=902))  # another copy, another guess
    assert late.guessed(8, 9, 11, 12, 13) == 3


def test_a_guess_that_was_right_stays(late: Late) -> None:
    """And so does what others send below it later."""
    late.ask(1, 2, 11, 12, 13, found=4, events=(stored(13, parent=12),))
    assert late.known(1, 2, 11, 12, 13, 14) == 5
    late.hear(stored(14, parent=13))
    assert late.guessed(1, 2, 11, 12, 13, 14, 15) == 6


def test_where_a_wrong_guess_would_not_show(late: Late) -> None:
    """None is made: of a worker that tells no cached tokens, or of a doubtful feed."""
    silent = Late()
    silent.hear(OTHERS)
    assert silent.guessed(1, 2, 11, 12, 13) == 0
    late.worker.feed.disconnected("lost")
    assert late.guessed(1, 2, 11, 12, 13) == 0


def test_orphans_of_a_feed_that_stays_lost_are_forgotten(late: Late) -> None:
    """As what is indexed is: after the time that doubt may last."""
    late.worker.feed.disconnected("lost")
    late.world.clock.now += late.worker.feed.settings.suspect_ttl_s + 1
    late.worker.feed.tick()
    assert late.worker.feed.orphans == 0
    assert late.world.indexes.memory.used_bytes == 0


def test_what_is_gone_or_of_another_size(late: Late) -> None:
    """It is nobody's end."""
    late.hear(removed(12))  # type: ignore[arg-type]
    assert late.guessed(1, 2, 11, 12, 13) == 3
    assert late.guessed(1, 2, 11, 12, size=32) == 0
    late.hear(removed(2))  # type: ignore[arg-type]
    assert late.guessed(1, 2, 11, 12, 13) == 0
    late.hear(stored(31, 32, 33, parent=30))
    assert late.guessed(1, 30, 31, 32, 33, 34) == 5
    late.hear(removed(32))  # type: ignore[arg-type]
    assert late.guessed(1, 30, 31, 32, 33, 34) == 3  # not what was below it


def test_adapters_are_kept_apart(late: Late) -> None:
    """The event says whose it is."""
    late.hear(stored(61, parent=60, adapter="sql"))
    assert late.guessed(1, 60, 61, 62) == 0
    assert late.guessed(1, 60, 61, 62, adapter="sql") == 3
    assert late.guessed(1, 2, 11, 12, 13, adapter="sql") == 0


def test_media_are_not_in_the_ids(late: Late) -> None:
    """What has them, or is below them, is never guessed by the ids."""
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


def test_a_chat_that_grows_for_long(late: Late) -> None:
    """Its first orphans are far before what is looked at: its last are enough."""
    late.hear(stored(*range(1000, 1000 + 3 * LIMIT), parent=12))
    prompt = 1, 2, 11, 12, *range(1000, 1000 + 3 * LIMIT), 9
    assert late.guessed(*prompt) == len(prompt) - 1
