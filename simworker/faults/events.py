"""Events that an engine itself gets wrong."""

from collections.abc import Callable, Sequence

import msgspec

from kvindex.events import BlockRemoved, BlockStored, EngineHash, KVEvent

NEVER_STORED = 0x0BAD_B10C
"""The names of blocks that never were begin here."""


def mistaken(
    events: Sequence[KVEvent], play: Callable[[str], bool]
) -> Sequence[KVEvent]:
    """`events` with those faults in them that `play` says are to be played now."""
    found = [_orphaned(event, play) for event in events]
    if events and play("unknown_removals"):
        found.append(BlockRemoved(hashes=_unknown(events), medium="GPU", group=0))
    return found


def _orphaned(event: KVEvent, play: Callable[[str], bool]) -> KVEvent:
    """The parent of a stored block is one that never was."""
    if not isinstance(event, BlockStored) or event.parent is None:
        return event
    if not play("wrong_parents"):
        return event
    return msgspec.structs.replace(event, parent=_like(event.parent, 0))


def _unknown(events: Sequence[KVEvent]) -> tuple[EngineHash, ...]:
    named = [event.hashes[0] for event in events if isinstance(event, BlockStored)]
    sample: EngineHash = named[0] if named else 0
    return tuple(_like(sample, number) for number in range(1, 4))


def _like(name: EngineHash, number: int) -> EngineHash:
    """A name that never was, of the same form."""
    value = NEVER_STORED + number
    return value.to_bytes(len(name)) if isinstance(name, bytes) else value
