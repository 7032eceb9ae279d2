"""What is known of one (worker, rank)'s cache: its feed and its history, combined.

The index counts in full while the feed is live; blocks in doubt weigh half, those off
the GPU `offload_weight`. History counts in full, too: for a live and complete feed only
until events have spoken, else until it is evicted or contradicted. The longest run that
either holds is taken as held. What a prompt has in common with orphans of a live feed
is a guess that weighs half, until it is contradicted: nothing is predicted by it.

Not here: cost and choice.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

import msgspec

from kvindex.content import Content
from kvindex.credit import (
    GUESS_WEIGHT,
    NO_CREDIT,
    OFFLOAD_WEIGHT,
    Credit,
    deduction,
)
from kvindex.events import EventBatch
from kvindex.feed import Feed, FeedSettings
from kvindex.history import History
from kvindex.index import Indexes, PrefixIndex
from kvindex.orphans import Guess
from kvindex.owner import NOTHING_HELD, Held
from kvindex.standing import FeedState
from kvindex.unknown import Unknown
from kvindex.wire import vllm

SPOKEN_AFTER_S = 5.0
"""Events have told of a request's blocks so long after its first token."""
_IN_FLIGHT = 16_384


class _Sent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request that was sent: when, the blocks held then, and what was counted.

    `guess` is what was guessed of it; `plain`: it is known to have no salt.
    """

    at: float | None = None
    held: int = 0
    removed: int = 0
    orphans: int = 0
    guess: Guess | None = None
    plain: bool = False


UNSENT = _Sent()


class Knowledge:
    """What is known of one (worker, rank)'s cache."""

    def __init__(
        self, *, feed: Feed, history: History, clock: Callable[[], float]
    ) -> None:
        """Give the feed `history.clear` as `on_restart`, or use `open`."""
        self.feed = feed
        self.history = history
        self._clock = clock
        self._unknown = Unknown(feed, clock)
        self._tells = False  # its cached tokens
        self._sent: OrderedDict[int, _Sent] = OrderedDict()
        """By the last block."""

    @classmethod
    def open(
        cls,
        *,
        model: str,
        indexes: Indexes,
        key: Hashable,
        clock: Callable[[], float],
        capacity_blocks: int,
        settings: FeedSettings | None = None,
        block_size: int | None = None,
        has_source: bool = True,
        on_change: Callable[[Feed], None] | None = None,
        decode: Callable[[bytes], EventBatch] = vllm.decode_batch,
        missed_reason: str = "missed batches",
    ) -> "Knowledge":
        """A feed and a history that belong together."""
        history = History(capacity_blocks=capacity_blocks, clock=clock)
        feed = Feed(
            model=model,
            indexes=indexes,
            key=key,
            clock=clock,
            settings=settings,
            block_size=block_size,
            has_source=has_source,
            on_change=on_change,
            on_restart=history.clear,
            on_gone=history.gone,
            decode=decode,
            missed_reason=missed_reason,
        )
        return cls(feed=feed, history=history, clock=clock)

    @property
    def room_blocks(self) -> int:
        """Blocks that the cache takes before it pushes one out, as far as is known."""
        feed, owner = self.feed, self.feed.owner
        sure = feed.state is FeedState.LIVE and feed.complete and owner is not None
        held = owner.gpu_blocks if owner and sure else len(self.history)
        return max(0, self.history.capacity_blocks - held)

    def sent(self, hashes: Sequence[int], content: Content | None = None) -> None:
        """A request with these full blocks is sent to the owner now.

        Its matchable `content` is there where it was looked for by ids: not of a salt.
        """
        self.history.sent(hashes)
        if hashes and hashes[-1] not in self._sent:
            counters = self.feed.counters
            self._sent[hashes[-1]] = _Sent(
                at=self._clock(),
                held=self.feed.held(hashes),
                removed=counters.removed,
                orphans=counters.orphans,
                guess=self._guess(content),
                plain=content is not None,
            )
            if len(self._sent) > _IN_FLIGHT:
                self._sent.popitem(last=False)

    def unsent(self, hashes: Sequence[int]) -> None:
        """The request never came to the owner's cache: no connection, or refused."""
        if hashes:
            self._sent.pop(hashes[-1], None)
            self.history.withdraw(hashes)

    def first_token(self, hashes: Sequence[int]) -> None:
        """The request's prompt is computed: its events are on their way."""
        self.history.spoken_for(hashes, SPOKEN_AFTER_S)

    def ended(
        self,
        hashes: Sequence[int],
        *,
        streamed: bool,
        delivered_blocks: int | None,
        predicted_blocks: int,
        matchable: int | None = None,
        computed: int | None = None,
        answered: bool = True,
    ) -> None:
        """The request is over; `delivered_blocks` is None where none was reported.

        Only the first `matchable` of the `hashes` that were sent can be found cached
        (None: all), and the first `computed` are full at any engine (None: those).
        `answered` is False where the worker may never have computed the prompt.
        """
        sent = self._sent.pop(hashes[-1], UNSENT) if hashes else UNSENT
        if not answered:
            return
        if not streamed:
            self.history.spoken_for(hashes, SPOKEN_AFTER_S)
        findable = hashes[:matchable]
        full = len(findable) if computed is None else min(computed, len(findable))
        found = max(predicted_blocks, sent.held, delivered_blocks or 0)
        self._expect(sent.at, full - found, told=delivered_blocks is not None)
        if delivered_blocks is not None:
            self._tells = True
            self._count(delivered_blocks - predicted_blocks)
            # What was evicted while it waited could not be found: events have said so.
            evicted = self.feed.counters.removed - sent.removed
            held = min(sent.held, len(findable)) - evicted
            self.feed.compared(max(0, held), delivered_blocks)
            self.feed.confirmed(findable, delivered_blocks)
            self._unknown.found(findable, min(delivered_blocks, len(findable)))
            self.history.delivered(findable, delivered_blocks, predicted_blocks)
            self._learn_of_orphans(findable, delivered_blocks, sent)

    def _learn_of_orphans(
        self, hashes: Sequence[int], delivered_blocks: int, sent: _Sent
    ) -> None:
        """What a request found tells of what was guessed, and where orphans stand.

        Of the `hashes` that it could find, the first that it did not find is new there.
        """
        if sent.guess is not None and delivered_blocks <= sent.guess.start:
            self.feed.misguessed(sent.guess)
        if sent.at is not None and 0 < delivered_blocks < len(hashes):
            pair = hashes[delivered_blocks - 1 : delivered_blocks + 1]
            self.feed.placed(*pair, since=sent.orphans, plain=sent.plain)

    def _expect(self, sent_at: float | None, new: int, *, told: bool) -> None:
        """The feed should hear of `new` blocks; `told`: the worker found none of them.

        What a worker held before the feed began it does not announce, and some engines
        never find the last block that they hold. Where the same prompt was sent twice
        at once, what the other one caused is not known.
        """
        if sent_at is not None:
            sure = self.feed.complete or (told and new > 1)
            self.feed.request_ended(
                stores_new_block=new > 0, sent_at=sent_at, sure=sure
            )

    def _count(self, more: int) -> None:
        """What the worker found beyond the prediction, or short of it."""
        self.feed.counters.found_more += max(0, more)
        self.feed.counters.found_less += max(0, -more)

    def credit(
        self,
        hashes: Sequence[int],
        held: Held,
        offload_weight: float = OFFLOAD_WEIGHT,
        content: Content | None = None,
    ) -> Credit:
        """Combine what the index says is held, history, and what orphans may be."""
        feed = self.feed
        live = feed.state is FeedState.LIVE and feed.complete
        past = self.history.held(hashes, live=live)
        blocks = max(past, held.blocks)
        if held.blocks > past:  # history may go on where the index ends
            blocks = self.history.held(hashes, live=live, start=held.blocks)
        guess = self._guess(content)
        if not blocks and guess is None:
            return NO_CREDIT
        more = self._beyond(hashes, held, past)
        blocks += more.blocks
        weighted = blocks - deduction(more, 0, offload_weight)
        if held.blocks > past:
            weighted -= deduction(held, past, offload_weight)
        guessed = max(0, guess.blocks - blocks) if guess is not None else 0
        return Credit(
            held_blocks=held.blocks,
            gpu_blocks=held.gpu_blocks,
            suspect_blocks=held.suspect_blocks,
            history_blocks=past,
            blocks=blocks,
            guessed_blocks=guessed,
            weighted=weighted + GUESS_WEIGHT * guessed,
        )

    def _guess(self, content: Content | None) -> Guess | None:
        """What orphans have in common with a prompt, where a wrong guess would show."""
        sure = self._tells and self.feed.state is FeedState.LIVE
        if content is None or not sure or not self.feed.orphans:
            return None
        return self.feed.guess(content)

    def _beyond(self, hashes: Sequence[int], held: Held, past: int) -> Held:
        """What the index has from where history ends: a late feed knows no roots."""
        index, owner = self.feed.index, self.feed.owner
        late = not self.feed.complete and held.blocks < past < len(hashes)
        if not late or index is None or owner is None:
            return NOTHING_HELD
        (more,) = index.match(hashes[past:], [owner])
        return more


def credits(
    knowledges: Sequence[Knowledge],
    hashes: Sequence[int],
    *,
    offload_weight: float = OFFLOAD_WEIGHT,
    content: Content | None = None,
) -> list[Credit]:
    """What each owner is taken to hold of a prompt's matchable blocks, in order.

    All owners whose blocks are in one index are matched at once. The hashes must be of
    the owners' block size, and so must the `content` of the same blocks, if it is had.
    """
    by_index: dict[int, tuple[PrefixIndex, list[int]]] = {}
    for position, knowledge in enumerate(knowledges):
        index = knowledge.feed.index
        if index is not None:
            by_index.setdefault(id(index), (index, []))[1].append(position)
    held = [NOTHING_HELD] * len(knowledges)
    for index, positions in by_index.values():
        owners = [o for p in positions if (o := knowledges[p].feed.owner) is not None]
        for position, found in zip(positions, index.match(hashes, owners), strict=True):
            held[position] = found
    pairs = zip(knowledges, held, strict=True)
    return [k.credit(hashes, found, offload_weight, content) for k, found in pairs]
