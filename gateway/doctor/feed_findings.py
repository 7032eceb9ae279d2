"""What is wrong with the feeds of a worker: no events, lost ones, ones of no use."""

from collections.abc import Iterator

from gateway.doctor import feed_remedies, remedies
from gateway.doctor.finding import Finding
from gateway.doctor.trial import Trial
from gateway.events.sources import FETCHED, HEARD, Sources
from kvindex.feed import Feed
from kvindex.intake import TAIL
from kvindex.knowledge import Knowledge
from kvindex.standing import FeedState
from router.worker import Worker

LEFT_OUT = frozenset({"group_kind", "window", "namespace", TAIL})
"""Why events are left out on purpose: layers that keep only a part of a prompt, blocks
of adapters or salts that the events do not name, and ends that fill no block."""
ELSEWHERE = {FETCHED: "POST /kv_cache_events", HEARD: "--kv-events-bind"}


def heard(worker: Worker) -> bool:
    """Whether each of its feeds has told of a block, or has nothing to tell it by.

    What a cache says when it is created, or cannot be indexed, is followed by more.
    """
    return all(
        feed.state is FeedState.ESTIMATED
        or feed.counters.stored > 0
        or feed.counters.orphans > 0
        for feed in feeds(worker)
    )


def reached(worker: Worker) -> bool:
    """Whether it is known of each of its feeds if anybody publishes there."""
    return all(
        feed.reached or feed.state is not FeedState.LIVE for feed in feeds(worker)
    )


def feeds(worker: Worker) -> list[Feed]:
    """Those of its ranks, in their order."""
    return [known.feed for _, known in sorted(worker.knowledge.items())]


def came_from(worker: Worker, sources: Sources) -> str:
    """Where its events come from, as a cell of a table."""
    if sources.elsewhere:
        return ELSEWHERE.get(sources.elsewhere, sources.elsewhere)
    named = (sources.named(rank) for rank in sorted(worker.knowledge))
    first, *more = list(dict.fromkeys(filter(None, named))) or ["nowhere"]
    return f"{first} and {len(more)} more" if more else str(first)


def about_feeds(
    worker: Worker, sources: Sources, *, trouble: str | None, trial: Trial | None
) -> Iterator[Finding]:
    """What is wrong with each rank's.

    `trouble` is what is said of the worker anyway; `trial` what came of small chats.
    """
    for rank, known in sorted(worker.knowledge.items()):
        where = f"rank {rank}: " if len(worker.knowledge) > 1 else ""
        if known.feed.reason == trouble:
            continue
        remedy = feed_remedies.for_feed(worker, known.feed, sources.by_rank.get(rank))
        for finding in _about_events(known, remedy, trial):
            named = remedies.named(worker, finding.remedy)
            yield Finding(where + finding.problem, named, finding.wrong)


def _about_events(
    known: Knowledge, remedy: str, trial: Trial | None
) -> Iterator[Finding]:
    feed = known.feed
    tried = trial is not None and trial.problem is None
    if feed.state is FeedState.ESTIMATED:
        yield Finding(f"no KV events: {feed.reason}", remedy)
    elif feed.state is not FeedState.LIVE:
        yield Finding(f"{feed.state}: {feed.reason}", remedy)
    elif feed.last_sequence is None and tried:
        yield Finding(feed.likely_cause or "no events though it stored blocks", remedy)
    elif feed.last_sequence is None and trial is None:
        text = "nothing heard: it may have had nothing to say"
        yield Finding(text, "--probe, which sends it small chats", wrong=False)
    yield from _about_left_out(feed, tried=tried)


def _about_left_out(feed: Feed, *, tried: bool) -> Iterator[Finding]:
    """Of events that count for nothing; ends of prompts do not, unless all are such."""
    why, rejected = feed.unindexed, feed.counters.rejected
    if not why and tried and TAIL in rejected and not feed.counters.stored:
        why = TAIL
    if why:
        text = f"of its KV events none can be indexed: {why}"
        yield Finding(text, feed_remedies.UNINDEXED.get(why, remedies.NEWER))
    for what in ("undecodable", "rejected"):
        for reason, count in getattr(feed.counters, what).items():
            if reason not in LEFT_OUT and reason != why:
                text = f"{count} of its KV events are {what}: {reason}"
                yield Finding(text, remedies.for_events_left_out(reason))
