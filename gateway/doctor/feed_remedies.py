"""What mends a feed, by what is wrong with it."""

from gateway.doctor import remedies
from gateway.events import drain, feeds, following, listener, topics
from gateway.workers.engines import trtllm
from gateway.workers.engines.facts import EventSource
from kvindex.feed import Feed
from kvindex.following import SHARED, UNANSWERED
from kvindex.intake import TAIL
from kvindex.standing import NO_SOURCE, FeedState
from kvindex.wire.trtllm import MISSED
from router.worker import Worker

ALIVE = "is it up? its log says why it left"
TOPIC = "--kv-events-topic URL=TOPIC"
APART = f"a topic of its own for each worker, and {TOPIC} for each"
NO_ROUTE = (
    "a release of trtllm-serve that has this route; where a proxy stands before it, "
    "one that lets it through"
)
NO_LIST = f"{trtllm.SEND_EVENTS}; else {NO_ROUTE}"
REPLAY = (
    "replay_endpoint in its --kv-events-config, and --kv-replay URL=tcp://HOST:PORT "
    "here where it does not tell that one"
)
CONNECTS = "--kv-events-bind tcp://*:PORT here, as its publisher connects to PORT; "
DECLARED = "--kv-events URL=tcp://HOST:PORT as the worker publishes; "
SIZE = (
    "its --block-size, --page-size or tokens_per_block: what it tells is not the size "
    "of the blocks in its events"
)
UNINDEXED = {
    "group_kind": "none, or a newer gateway where the kind is a new one: only layers "
    "of full attention tell what a prompt has cached; its history counts",
    "window": "start it without max_attention_window",
    "namespace": "kv_cache_event_hash_algo as this gateway knows it (v1_block_key, "
    "v2_sha256, v2_sha256_64); none, where all its requests have adapters or salts",
    "block_size": SIZE,
    TAIL: SIZE,
}
"""By the reason why none of a worker's events could be indexed."""
BY_CAUSE = {
    listener.SHARED: APART,
    SHARED: APART,
    topics.SEVERAL: APART,
    following.NOTHING_COMES: f"{TOPIC}, with the topic of its --kv-events-config, "
    "whose endpoint is to be this gateway's --kv-events-bind",
    following.MOVED: "ask again: it has restarted",
    MISSED: "a larger event_buffer_max_size, and one gateway that fetches",
    "cannot follow": DECLARED + "an endpoint that can be connected to",
    "undecodable": remedies.OTHER_SERVICE,
    UNANSWERED: REPLAY,
    "missed batches": REPLAY,
    listener.LOST: ALIVE,
    "its worker is": ALIVE,
    f"POST {drain.ROUTE}: answers 404": NO_ROUTE,
    f"POST {drain.ROUTE}: answers 405": NO_ROUTE,
    f"POST {drain.ROUTE}: answers 501": NO_ROUTE,
    f"POST {drain.ROUTE}: answers 5": "its log says why: it is up",
    f"POST {drain.ROUTE}: no answer": "its log: it is up, but hangs at that route",
    "answers no list": NO_LIST,
    f"POST {drain.ROUTE}": ALIVE,
}
"""By words of a feed's reason."""


def for_feed(worker: Worker, feed: Feed, source: EventSource | None) -> str:
    """What is to be changed so that a feed is live; `source` is a publisher's."""
    live = feed.state is FeedState.LIVE
    cause = feed.likely_cause if live else feed.reason
    return remedies.named(worker, _for(worker, cause, source))


def _for(worker: Worker, cause: str, source: EventSource | None) -> str:
    if remedies.wants_key(cause):
        return remedies.WANTS_KEY
    if cause == NO_SOURCE:
        also = f"; where it connects to a gateway: --kv-events-bind, and {TOPIC}"
        return remedies.for_events(worker) + also
    if feeds.UNREACHED in cause and source is not None:
        return _for_unreached(worker, source)
    found = (remedy for text, remedy in BY_CAUSE.items() if text in cause)
    return next(found, remedies.for_events(worker))


def _for_unreached(worker: Worker, source: EventSource) -> str:
    """Nobody publishes there: as declared it may be wrong, as told it connects."""
    if worker.spec.kv_events:
        return f"{DECLARED}or, as its publisher connects, --kv-events-bind and {TOPIC}"
    port = source.endpoint.rpartition(":")[2]
    bind = CONNECTS.replace("PORT", port) if port.isdecimal() else ""
    return f"{bind}or an endpoint with a * in its --kv-events-config, so that it binds"
