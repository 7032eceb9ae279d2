"""What the index hands out: owners, what they hold of a prompt, and its memory bound.

Records and handles only; `index.py` is what works on them.
"""

from collections.abc import Hashable

import msgspec

BLOCK_BYTES = 130
"""Memory of one block: its hash, its slot in the table, its share of the bitsets."""
NAME_BYTES = 160
"""Memory of one more name of a block: both hashes, and its entry, in a map that has
just grown."""
HOLDING_BYTES = 100
"""Memory of one block at one owner: its entry in the owner's map of engine hashes."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Of a prompt's leading blocks, those an owner holds.

    `gpu_blocks` on GPU, `blocks` in any medium; `suspects` are the positions of those
    that were stored before events were lost.
    """

    gpu_blocks: int = 0
    blocks: int = 0
    suspects: tuple[int, ...] = ()

    @property
    def suspect_blocks(self) -> int:
        """How many of `blocks` are in doubt."""
        return len(self.suspects)


NOTHING_HELD = Held()


class Memory:
    """One bound in bytes over any number of indexes."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def has_room(self, wanted_bytes: int) -> bool:
        """May so much more be used?"""
        return self.used_bytes + wanted_bytes <= self.limit_bytes

    @property
    def overdrawn(self) -> bool:
        """Is more used than allowed? Only what owners hold beside blocks does that."""
        return self.used_bytes > self.limit_bytes


class Owner:
    """A handle made by `PrefixIndex.add_owner`; only the index writes to it.

    `blocks` and `gpu_blocks` are what it holds, `suspect_blocks` those in doubt,
    `holes` how many holes sampled matches found in its GPU prefixes, `extra_bytes` what
    its tables take beside the blocks. `lookahead` are blocks at the end of a match that
    depend on what comes behind them. `doubts` counts how often all was put in doubt.
    """

    __slots__ = (
        "blocks",
        "doubts",
        "extra_bytes",
        "fresh",
        "gpu",
        "gpu_blocks",
        "held",
        "holding_bytes",
        "holes",
        "key",
        "lookahead",
        "other",
        "settling",
        "suspect_blocks",
    )

    def __init__(self, key: Hashable, holding_bytes: int) -> None:
        self.key = key
        self.holding_bytes = holding_bytes
        self.gpu = self.other = self.held = self.fresh = 0
        self.blocks = self.gpu_blocks = self.suspect_blocks = self.holes = 0
        self.extra_bytes = self.lookahead = self.doubts = 0
        self.settling = False
