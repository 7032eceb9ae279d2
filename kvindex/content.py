"""A prompt's blocks by their ids alone: to find in it what has no own hash yet.

An own hash says what a block is and all that is before it; of an orphan nobody knows
what is before it. Where a prompt has its ids, the prompt says.
"""

from functools import cached_property

from kvindex.blocks import ID_BYTES

LIMIT = 4096
"""The last blocks that are looked at: under a millisecond. What was stored last is what
a chat ends with."""


class Content:
    """The first `count` blocks of `token_ids` (u32 little-endian)."""

    def __init__(self, token_ids: bytes, block_size: int, count: int) -> None:
        self.block_size = block_size
        self.count = count
        self._token_ids = token_ids

    def block(self, position: int) -> bytes:
        """The ids of a block; empty behind the last."""
        if position >= self.count:
            return b""
        stride = ID_BYTES * self.block_size
        return self._token_ids[position * stride : (position + 1) * stride]

    @cached_property
    def positions(self) -> dict[bytes, int]:
        """Ids -> the only block that has them: those of several say nothing.

        Without block 0, which nothing is before.
        """
        first = max(1, self.count - LIMIT)
        found: dict[bytes, int] = {}
        repeated = set()
        for position in range(first, self.count):
            block = self.block(position)
            if found.setdefault(block, position) != position:
                repeated.add(block)
        for block in repeated:
            del found[block]
        return found
