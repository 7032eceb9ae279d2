"""The line that says which workers keep token ids from going along, and why.

Written when that set changes or a reason in it, and once when nobody does any more.
What a worker's rendering is worth is decided elsewhere.
"""

import logging

from router.forwarding import Forwarding
from router.pool import WorkerPool
from router.proof import PENDING, Blocker

log = logging.getLogger(__name__)

DETAIL = 200
"""Characters of a detail that a line repeats."""

_HELD_UP = {
    "all": "chats go without token ids while these workers may render differently",
    "chosen": "chats go without token ids to workers that may render differently",
}


class BlockerLog:
    """Compares the blockers with those it wrote down last, when told to look.

    A worker that is being asked counts as what it was found to be before. Nothing is
    said until all workers of the start have been asked, nor while none serves.
    """

    def __init__(self, pool: WorkerPool, forwarding: Forwarding) -> None:
        self._pool = pool
        self._forwarding = forwarding
        self._asked_all = False
        self._found: dict[str, Blocker] = {}
        self._said: dict[str, str] = {}

    def look(self) -> None:
        """Write a line if there is news."""
        serving = {worker.url for worker in self._pool.serving(None)}
        if self._forwarding.when == "never" or not serving:
            return
        blockers = self._forwarding.blockers()
        pending = {url for url, b in blockers.items() if b.reason == PENDING}
        if pending and not self._asked_all:
            return
        self._asked_all = True
        known = {url: self._found[url] for url in pending if url in self._found}
        self._found = known | {u: b for u, b in blockers.items() if u not in pending}
        now = {url: blocker.reason for url, blocker in self._found.items()}
        if now == self._said:
            return
        if now:
            held_up = _HELD_UP[self._forwarding.when]
            listed = "; ".join(map(_line, sorted(self._found.items())))
            log.warning("%s: %s", held_up, listed)
        else:
            log.info("chats go with their token ids again: every worker renders alike")
        self._said = now


def _line(found: tuple[str, Blocker]) -> str:
    url, blocker = found
    detail = " ".join(blocker.detail.split())[:DETAIL]  # some of it is the worker's
    return f"{url} {blocker.reason}" + (f" ({detail})" if detail else "")
