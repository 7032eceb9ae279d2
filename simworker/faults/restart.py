"""A restart in place: how another process takes over while HTTP stays up."""

import msgspec


class Restart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers and cache start anew; requests that run are computed from the start.

    `block_size`: blocks have so many tokens from now on. `unheard`: the first batches
    are lost, and the numbers past those of before, so that none goes back.
    `same_start`: the start time that the worker tells does not change. `reconnect`: the
    event sockets are closed and opened again, as they are when a process ends.
    """

    block_size: int | None = None
    unheard: bool = False
    same_start: bool = False
    reconnect: bool = False

    def __post_init__(self) -> None:
        if self.block_size is not None and not 1 <= self.block_size <= 1 << 16:
            raise ValueError("block_size must be from 1 to 65536")
