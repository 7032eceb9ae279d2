"""How much of a prompt one owner is taken to hold, and how far each block counts."""

import msgspec

from kvindex.owner import Held

OFFLOAD_WEIGHT = 0.5
SUSPECT_WEIGHT = 0.5
GUESS_WEIGHT = 0.5


class Credit(msgspec.Struct, frozen=True, kw_only=True):
    """Leading blocks of a prompt taken as held by one owner.

    `held_blocks` by the index in any medium, `gpu_blocks` of them on GPU,
    `suspect_blocks` of them in doubt; `history_blocks` by history alone. `blocks` is
    the longest run of either, each block in full; `guessed_blocks` come after these, as
    orphans have the same ids; `weighted` is all with less for what is offloaded, in
    doubt or guessed, for the cost.
    """

    held_blocks: int = 0
    gpu_blocks: int = 0
    suspect_blocks: int = 0
    history_blocks: int = 0
    blocks: int = 0
    guessed_blocks: int = 0
    weighted: float = 0.0


NO_CREDIT = Credit()


def deduction(held: Held, start: int, offload_weight: float) -> float:
    """What blocks from `start` on weigh less for being offloaded or in doubt."""
    offloaded = held.blocks - max(held.gpu_blocks, start)
    less = offloaded * (1 - offload_weight)
    for position in held.suspects:
        if position >= start:
            weight = 1.0 if position < held.gpu_blocks else offload_weight
            less += weight * (1 - SUSPECT_WEIGHT)
    return less
