"""What one feed has seen, as numbers that only grow. For metrics and the index page."""

import msgspec


class Counters(msgspec.Struct):
    """Counts of blocks (`stored`, `removed`, `refused`, `orphans`), batches, events.

    `found_more` are blocks that the worker found cached beyond those predicted (our
    knowledge missed them), `found_less` those predicted that it did not find.
    `out_of_order` and `replayed` are batches; `events` by type, `undecodable` and
    `rejected` by reason (small fixed sets).
    """

    stored: int = 0
    removed: int = 0
    cleared: int = 0
    refused: int = 0
    orphans: int = 0
    orphans_dropped: int = 0
    batches: int = 0
    duplicates: int = 0
    gaps: int = 0
    missed_batches: int = 0
    replayed: int = 0
    out_of_order: int = 0
    found_more: int = 0
    found_less: int = 0
    restarts: int = 0
    events: dict[str, int] = {}
    undecodable: dict[str, int] = {}
    rejected: dict[str, int] = {}


def count(counter: dict[str, int], name: str, by: int = 1) -> None:
    """Add to a named count."""
    counter[name] = counter.get(name, 0) + by
