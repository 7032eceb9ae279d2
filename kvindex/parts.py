"""What a feed is made of, put together. What each part does is in its own file."""

from collections.abc import Callable, Hashable
from typing import NamedTuple

from kvindex.counters import Counters
from kvindex.doubt import Doubt
from kvindex.events import EventBatch
from kvindex.following import Following
from kvindex.index import Indexes
from kvindex.intake import Intake
from kvindex.reader import Reader
from kvindex.settings import FeedSettings
from kvindex.standing import NO_SOURCE, FeedState, Standing


class Stream(NamedTuple):
    """What is known of a stream before anything came by it.

    Where `has_source` is False nothing ever will. `missed_reason` is what is said of a
    hole in the batches' numbers.
    """

    key: Hashable
    model: str
    has_source: bool
    decode: Callable[[bytes], EventBatch]
    missed_reason: str
    on_gone: Callable[[int], None] | None


class Parts(NamedTuple):
    """The parts of one feed."""

    standing: Standing
    intake: Intake
    doubt: Doubt
    reader: Reader
    following: Following


def put_together(
    stream: Stream,
    indexes: Indexes,
    counters: Counters,
    settings: FeedSettings,
    *,
    clock: Callable[[], float],
    changed: Callable[[], None],
    emptied: Callable[[], None],
) -> Parts:
    """The parts, each of which knows those before it.

    `changed` is called when the feed's state or its blocks' size is another, `emptied`
    when the worker's cache is known to be empty.
    """
    standing = _standing(stream, clock, changed)
    intake = _intake(stream, indexes, counters, settings)
    doubt = Doubt(
        standing=standing, intake=intake, clock=clock, ttl_s=settings.suspect_ttl_s
    )
    reader = Reader(
        key=stream.key,
        decode=stream.decode,
        standing=standing,
        intake=intake,
        doubt=doubt,
        counters=counters,
        emptied=emptied,
        resized=changed,
    )
    following = Following(
        standing=standing,
        doubt=doubt,
        reader=reader,
        counters=counters,
        clock=clock,
        missed_reason=stream.missed_reason,
        pause_s=settings.replay_pause_s,
    )
    return Parts(standing, intake, doubt, reader, following)


def _standing(
    stream: Stream, clock: Callable[[], float], changed: Callable[[], None]
) -> Standing:
    return Standing(
        key=stream.key,
        clock=clock,
        state=FeedState.LIVE if stream.has_source else FeedState.ESTIMATED,
        reason="no batch yet" if stream.has_source else NO_SOURCE,
        changed=changed,
    )


def _intake(
    stream: Stream, indexes: Indexes, counters: Counters, settings: FeedSettings
) -> Intake:
    return Intake(
        model=stream.model,
        indexes=indexes,
        key=stream.key,
        counters=counters,
        orphan_blocks=settings.orphan_blocks,
        on_gone=stream.on_gone,
    )
