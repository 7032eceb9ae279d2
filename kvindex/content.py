"""A prompt's blocks by their ids alone: to find in it what has no own hash yet.

An own hash says what a block is and all that is before it; of an orphan nobody knows
what is before it. Where a prompt has its ids, the prompt may say.
"""

from functools import cached_property

from kvindex.blocks import ID_BYTES

LIMIT = 512
"""The last blocks that are looked at: what a chat ends with was stored last. Looking
for them costs less than a tenth of a millisecond."""


class Content:
    """The first `count` blocks of `token_ids` (u32 little-endian), for `adapter`."""

    def __init__(
        self, token_ids: bytes, block_size: int, count: int, adapter: str | None = None
    ) -> None:
        self.block_size = block_size
        self.count = count
        self.adapter = adapter
        self._token_ids = token_ids

    def block(self, position: int) -> bytes:
        """The ids of a block, from 0 on."""
        stride = ID_BYTES * self.block_size
        return self._token_ids[position * stride : (position + 1) * stride]

    @cached_property
    def backwards(self) -> list[tuple[int, bytes]]:
        """The last blocks, each with its position, the very last first."""
        last = range(max(0, self.count - LIMIT), self.count)
        return [(position, self.block(position)) for position in reversed(last)]
