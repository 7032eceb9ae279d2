"""Whose topic a stream's batches came under: its worker may lose it to another.

So it does where a second worker tells the same. From then on nothing that comes under
it counts, and what the feed holds is in doubt, until the topic is its worker's own
again.
Not here: whose a topic is (`topics.py`).
"""

import logging
from collections.abc import Iterator

from gateway.events.stream import Stream
from gateway.events.topics import FLAG, Topics
from kvindex.feed import Feed
from kvindex.standing import FeedState

log = logging.getLogger(__name__)


class Claims:
    """The streams of one socket, and the topics they last came under."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._came: dict[Stream, tuple[str, str]] = {}
        self._lost: dict[Stream, str] = {}

    def came(self, stream: Stream, url: str, topic: str) -> bool:
        """A batch came under a topic that is this worker's; had it lost another?"""
        self._came[stream] = url, topic
        return self._lost.pop(stream, None) is not None

    def forget(self, stream: Stream) -> None:
        """It is no more."""
        self._came.pop(stream, None)
        self._lost.pop(stream, None)

    def lost(self, stream: Stream) -> str:
        """Why its topic is not its worker's now; "" if it is."""
        return self._lost.get(stream, "")

    def changed(self) -> Iterator[tuple[Stream, str]]:
        """Topics may have changed hands: each stream that lost its own, or has it back.

        With the worker's URL.
        """
        for stream, (url, topic) in list(self._came.items()):
            owner, lost = self._topics.url(topic), stream in self._lost
            if owner == url and lost:
                del self._lost[stream]
                yield stream, url
            elif owner != url and not lost:
                whose = f"is now {owner}'s, see {FLAG}"
                why = self._topics.nobodys(topic) if owner is None else whose
                self._lost[stream] = f"its topic {why}"
                yield stream, url


def degrade(feed: Feed, why: str) -> None:
    """None of its events counts from now on; the log says why, in any state."""
    if feed.state is FeedState.DEGRADED:  # for another reason, and that is shown
        log.warning("KV events of %s: %s", feed.key, why)
    feed.disconnected(why)
