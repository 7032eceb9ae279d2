"""Topics of the gateway's own socket that are of no use: a log line for each."""

import logging

from gateway.events.topics import name_of

log = logging.getLogger(__name__)

STRANGERS = 100
"""Topics that get a line; there may be any number."""


class Strangers:
    """Those that had theirs."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()

    def note(self, endpoint: str, topic: bytes, why: str) -> None:
        """What comes under a topic counts for nobody, and that is why."""
        told = name_of(topic), why.partition(":")[0]
        if told in self._known or len(self._known) >= STRANGERS:
            return
        self._known.add(told)
        shown = topic[:100].decode("utf-8", "replace")
        log.warning("KV events at %s: topic %r %s", endpoint, shown, why)
