"""Silent is only a feed whose worker must have stored a block that nobody heard of."""

import pytest

from kvindex.blocks import Namespace, chain, matchable_blocks, pack_ids
from kvindex.events import AllBlocksCleared, BlockStored, EventBatch
from kvindex.index import Indexes
from kvindex.knowledge import Knowledge
from kvindex.wire import sglang, vllm
from tests.kvindex.engine import MODEL, Clock, own, payload, stored

SIZE = 16


class World:
    """One worker's knowledge, and a clock in the test's hand."""

    def __init__(self, *, pairs: bool = False) -> None:
        self.clock = Clock()
        self.worker = Knowledge.open(
            model=MODEL,
            indexes=Indexes(limit_bytes=1 << 28),
            key="w1",
            clock=self.clock,
            capacity_blocks=100,
            block_size=SIZE,
            decode=sglang.decode_batch if pairs else vllm.decode_batch,
        )

    def end(
        self,
        hashes: list[int],
        *,
        delivered: int | None,
        predicted: int = 0,
        computed: int | None = None,
        answered: bool = True,
    ) -> None:
        """A request that was sent is over."""
        self.worker.ended(
            hashes,
            streamed=True,
            delivered_blocks=delivered,
            predicted_blocks=predicted,
            computed=computed,
            answered=answered,
        )

    def ask(self, hashes: list[int], *, delivered: int | None) -> None:
        """A request that nothing of is known, a second long."""
        self.worker.sent(hashes)
        self.clock.now += 1
        self.end(hashes, delivered=delivered)

    def state_later(self) -> str:
        """What the feed says when nothing has come for long."""
        self.clock.now += 11
        self.worker.feed.tick()
        return self.worker.feed.state.value


@pytest.mark.parametrize(
    ("delivered", "predicted", "answered", "state"),
    [
        (0, 0, True, "silent"),
        (1, 0, True, "silent"),
        (2, 0, True, "live"),  # one block may never be counted
        (0, 2, True, "live"),
        (3, 0, True, "live"),
        (None, 0, True, "live"),  # it may have held them before
        (0, 0, False, "live"),
    ],
)
def test_a_stream_that_never_began(
    delivered: int | None, predicted: int, answered: bool, state: str
) -> None:
    """One request of three blocks, of which so many were found and predicted."""
    world = World()
    world.worker.sent(own(1, 2, 3))
    world.end(own(1, 2, 3), delivered=delivered, predicted=predicted, answered=answered)
    assert world.state_later() == state


@pytest.mark.parametrize(("known", "state"), [(2, "live"), (1, "silent")])
def test_a_stream_that_stops(known: int, state: str) -> None:
    """A complete index knows what was new, whether the worker tells or not."""
    world = World()
    world.worker.feed.receive(0, payload(stored(*range(1, known + 1))))
    world.clock.now += 1
    world.ask(own(1, 2), delivered=None)
    assert world.state_later() == state


def test_workers_that_do_not_tell_what_they_found() -> None:
    """A cache may have been warm before the gateway came; but not for all prompts."""
    world = World()
    for block in (1, 2):
        world.ask(own(block), delivered=None)
    assert world.state_later() == "live"
    world.ask(own(3), delivered=None)
    assert world.state_later() == "silent"


def test_guesses_begin_anew_with_each_event() -> None:
    """What was guessed before says nothing of what comes after."""
    world = World()
    for block in (1, 2):
        world.ask(own(block), delivered=None)
    world.worker.feed.receive(7, payload(stored(9)))
    world.clock.now += 1
    for block in (3, 4):
        world.ask(own(block), delivered=None)
    assert world.state_later() == "live"


@pytest.mark.parametrize("tokens", [2 * SIZE, 2 * SIZE + 1, 2 * SIZE + 2, 3 * SIZE])
@pytest.mark.parametrize("behind", [1, 2], ids=["(n-1)//size", "(n-2)//size"])
def test_pairs_of_tokens_fill_less(tokens: int, behind: int) -> None:
    """EAGLE: a token counts with the one behind it, so a prompt has a pair less.

    Asked again and again, whatever the engine makes of the last block.
    """
    world, ids = World(pairs=True), list(range(100, 100 + tokens))
    hashes = chain(pack_ids(ids), SIZE, Namespace(model=MODEL).root())
    blocks = (tokens - behind) // SIZE
    event = BlockStored(
        hashes=tuple(range(1, blocks + 1)),
        token_ids=pack_ids(ids[: blocks * SIZE]),
        block_size=SIZE,
    )
    batch = EventBatch(timestamp=0.0, events=(AllBlocksCleared(), event), rank=0)
    predicted = 0
    for turn in range(5):
        world.worker.sent(hashes)
        world.clock.now += 1
        if not turn:
            world.worker.feed.receive(0, sglang.encode_batch(batch, pairs=True))
        world.worker.ended(
            hashes,
            streamed=True,
            delivered_blocks=predicted,
            predicted_blocks=predicted,
            matchable=matchable_blocks(tokens, SIZE),
            computed=max(0, tokens - 2) // SIZE,
        )
        assert world.state_later() == "live"
        predicted = min(blocks, max(0, tokens - 2) // SIZE)


def test_events_between_sending_and_end_are_heard() -> None:
    """The worker announces blocks while it computes."""
    world = World()
    world.worker.sent(own(1, 2))
    world.clock.now += 1
    world.worker.feed.receive(0, payload(stored(1, 2)))
    world.end(own(1, 2), delivered=0)
    world.worker.sent([])
    world.end([], delivered=0)
    assert world.state_later() == "live"


def test_two_at_once_with_one_prompt() -> None:
    """What the first one's end tells, the other's does not: nothing comes after it."""
    world = World()
    for _ in range(2):
        world.worker.sent(own(1, 2))
        world.clock.now += 1
    world.worker.feed.receive(0, payload(stored(1, 2)))
    for _ in range(2):
        world.clock.now += 1
        world.end(own(1, 2), delivered=0)
    assert world.state_later() == "live"
