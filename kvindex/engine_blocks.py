"""The map from an engine's block hashes to own hashes, and which events enter it.

Not here: what an event does (`holder.py`).
"""

from collections.abc import Sequence

from kvindex.blocks import ID_BYTES
from kvindex.events import BlockRemoved, BlockStored, EngineHash
from kvindex.orphans import HolderKey

FULL_ATTENTION = ("full_attention", "mla_attention", "sink_full_attention")
MAPS = 32
"""At most so many (group, medium) maps of one owner."""


class EngineBlocks:
    """Engine hash -> own hash of one (group, medium)."""

    def __init__(self, *, on_gpu: bool) -> None:
        self.on_gpu = on_gpu
        self.own: dict[EngineHash, int] = {}
        self.previous: dict[EngineHash, int] = {}
        self.copies: dict[EngineHash, int] = {}
        self.shared: dict[int, int] = {}

    def find(self, engine_hash: EngineHash) -> int | None:
        """The own hash of a block that is held here."""
        own = self.own.get(engine_hash)
        return self.previous.get(engine_hash) if own is None else own

    def doubt(self) -> None:
        """All entries become previous ones; their copies are no longer known."""
        if len(self.own) > len(self.previous):
            self.own, self.previous = self.previous, self.own
        self.previous.update(self.own)
        self.own, self.copies, self.shared = {}, {}, {}

    def knows_none(self, hashes: Sequence[EngineHash]) -> bool:
        """Are all these different, and none held here?"""
        names = set(hashes)
        return (
            len(names) == len(hashes)
            and self.own.keys().isdisjoint(names)
            and (not self.previous or self.previous.keys().isdisjoint(names))
        )


def refusal(event: BlockStored) -> str | None:
    """Why an event cannot be indexed, or None."""
    if event.group_kind is not None and event.group_kind not in FULL_ATTENTION:
        return "group_kind"
    if event.block_size < 1 or not event.token_ids:
        return "no_tokens"
    if len(event.token_ids) != len(event.hashes) * event.block_size * ID_BYTES:
        return "length"
    return None


def key_of(event: BlockStored | BlockRemoved) -> HolderKey:
    """Which map an event is about. No group is group 0, no medium is GPU."""
    return event.group or 0, event.medium or "GPU", event.locality == "REMOTE"
