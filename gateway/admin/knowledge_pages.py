"""What is known of each rank of a worker, as JSON-ready values for the admin pages.

Reads only. `feed` is how far its events can be trusted, `owner` what came of them.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

from kvindex.knowledge import Knowledge


def feed(
    rank: int,
    known: Knowledge,
    *,
    source: str | None,
    elsewhere: str = "",
    now: float,
    wall: float,
) -> dict[str, Any]:
    """An entry of `feeds` on the workers page.

    `elsewhere` is why its events go to another process of this gateway, if they do.
    `now` is the time by the feed's clock, `wall` the same moment in seconds since 1970.
    """
    found = known.feed
    lasts_s = now - found.since
    return {
        "rank": rank,
        "source": source,
        "state": found.state,
        "reason": elsewhere or found.reason,
        "state_s": round(lasts_s, 3),
        "since": moment(wall - lasts_s),
        "complete": found.complete,
        "last_sequence": found.last_sequence,
        "block_size": found.block_size,
        "blocks": found.owner.blocks if found.owner else 0,
        "suspect_blocks": found.owner.suspect_blocks if found.owner else 0,
        "history_blocks": len(known.history),
    }


def owner(worker: str, rank: int, known: Knowledge) -> dict[str, Any]:
    """An entry of `owners` on the index page."""
    found = known.feed
    held = found.owner
    return {
        **msgspec.to_builtins(found.counters),
        "worker": worker,
        "rank": rank,
        "state": found.state,
        "block_size": found.block_size,
        "blocks": held.blocks if held else 0,
        "gpu_blocks": held.gpu_blocks if held else 0,
        "suspect_blocks": held.suspect_blocks if held else 0,
        "waiting_orphans": found.orphans,
        "holes": held.holes if held else 0,
        "history_blocks": len(known.history),
        "last_sequence": found.last_sequence,
    }


def moment(wall: float) -> str:
    """A time in seconds since 1970, to be read: UTC, to the second."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
