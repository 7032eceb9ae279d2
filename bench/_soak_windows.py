"""When a worker's events could not be trusted, and what was predicted meanwhile.

A window is per worker: from a fault until its feeds have heard all it published, say
that they are live, and 5 seconds have passed.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bench._soak_faults import at_rest
from simworker.server import SimWorker

SETTLES_S = 5.0


class Window(msgspec.Struct, kw_only=True):
    """From a fault on; `end` is infinite while it lasts. Monotonic seconds."""

    fault: str
    begun: float
    end: float = float("inf")


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """A finished request, as the gateway told it."""

    url: str
    begun: float
    ended: float
    predicted: int
    delivered: int | None
    prompt: int
    estimated: bool


class Windows:
    """The fault windows of all workers."""

    def __init__(self, workers: Sequence[SimWorker]) -> None:
        self._workers = {worker.url: worker for worker in workers}
        self.all: dict[str, list[Window]] = {worker.url: [] for worker in workers}

    def open(self, worker: SimWorker, fault: str) -> Window:
        """A fault begins."""
        window = Window(fault=fault, begun=time.monotonic())
        self.all[worker.url].append(window)
        return window

    def look(self, page: Mapping[str, Any], playing: Sequence[Window]) -> None:
        """Close what is over, by what `/gateway/workers` says; not those `playing`."""
        for told in page["workers"]:
            worker = self._workers[told["url"]]
            settled = at_rest(worker) and not wrong_feeds(worker, told)
            for window in self.all[worker.url]:
                open_still = window.end == float("inf") and window not in playing
                if settled and open_still:
                    window.end = time.monotonic() + SETTLES_S

    def holds(self, request: Settled) -> Window | None:
        """The window that a request falls into, if only in part."""
        for window in self.all[request.url]:
            if window.begun <= request.ended and request.begun <= window.end:
                return window
        return None

    def last_before(self, request: Settled) -> Window | None:
        """The window of its worker that ended last before a request."""
        over = [w for w in self.all[request.url] if w.end <= request.begun]
        return max(over, key=lambda window: window.end, default=None)


def wrong_feeds(worker: SimWorker, told: Mapping[str, Any]) -> list[str]:
    """What is not as it should be with the feeds of a worker that is at rest."""
    wrong = []
    for feed in told["feeds"]:
        stream = worker.ranks[feed["rank"]].stream
        expected = "live" if stream else "estimated"
        if feed["state"] != expected:
            wrong.append(f"rank {feed['rank']} is {feed['state']} ({feed['reason']})")
        elif stream and stream.next_sequence:
            last = stream.next_sequence - 1
            if feed["last_sequence"] != last:
                seen = feed["last_sequence"]
                wrong.append(f"rank {feed['rank']} has heard {seen}, not {last}")
    if len(told["feeds"]) != len(worker.ranks):
        wrong.append(f"{len(told['feeds'])} feeds of {len(worker.ranks)}")
    return wrong


def wrong_claims(
    worker: SimWorker, owner: Mapping[str, Any], page: Mapping[str, Any]
) -> list[str]:
    """Whether the index believes a complete feed's worker to hold more than it does."""
    (told,) = [each for each in page["workers"] if each["url"] == worker.url]
    feeds = [feed for feed in told["feeds"] if feed["rank"] == owner["rank"]]
    # Larger blocks than the worker's share some of its tokens.
    coarse = told["block_size"] != worker.ranks.block_size
    if not feeds or not feeds[0]["complete"] or coarse:
        return []
    holdings = worker.ranks[owner["rank"]].cache.holdings()
    held = sum(each.content.size for each in holdings)
    believed = owner["blocks"] * told["block_size"]
    if believed <= held:
        return []
    return [f"rank {owner['rank']} is believed to hold {believed} tokens, not {held}"]
