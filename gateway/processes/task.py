"""What one of several processes is told to be: its share of one configuration."""

import msgspec

from gateway.events.sources import CONSUMER
from gateway.settings.config import Config


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """All that a process needs to know."""

    number: int
    config: Config
    port: int
    """Of clients; shared by all processes."""
    path: str
    """Of the socket that the parent asks it by."""

    @property
    def consumes(self) -> bool:
        """Whether it takes feeds that allow one consumer only."""
        return self.number == CONSUMER


def share_of(config: Config, key: str) -> Config:
    """The configuration of one process; its own routes are opened by `key` alone.

    Bounds are of all processes together, so each gets its share.
    """
    count = config.processes
    limit = config.max_inflight_tokens
    return msgspec.structs.replace(
        config,
        admin_key=key,
        metrics_key=key,
        index_memory=max(1, config.index_memory // count),
        max_bodies=max(1, config.max_bodies // count),
        max_queue=max(min(1, config.max_queue), config.max_queue // count),
        max_inflight_tokens=None if limit is None else max(1, limit // count),
    )
