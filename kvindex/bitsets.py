"""A sharded hash table from block hash to bitset, whose bits can be retired.

Theory of operation. A bit is taken, set on any number of entries, and retired in no
time: it stays on the entries but means nothing. `sweep` walks the table in slices,
wipes retired bits, deletes entries left empty, and frees the bits after a whole round.
Equal bitsets are one shared object. 256 shards keep the time to grow one, or to list
one's keys, under a millisecond at millions of entries.

Not here: what a bit means (`index.py`).
"""

SHARDS = 256
SHARD_MASK = SHARDS - 1

_INTERNED = 65_536


class BitTable:
    """Block hash -> bitset. `entries` counts what is in the table, swept or not."""

    def __init__(self) -> None:
        self.shards: list[dict[int, int]] = [{} for _ in range(SHARDS)]
        self.entries = 0
        self._interned: dict[int, int] = {}
        self._used = 0
        self._free: list[int] = []
        self._retired = 0
        self._wiping = 0
        self._next_shard = SHARDS
        self._keys: list[int] = []

    def get(self, block_hash: int) -> int:
        """The bitset of a block, 0 where there is none."""
        return self.shards[block_hash & SHARD_MASK].get(block_hash, 0)

    def put(self, block_hash: int, bits: int) -> None:
        """Replace the bitset of a block; an empty one deletes the entry."""
        shard = self.shards[block_hash & SHARD_MASK]
        if not bits:
            self.entries -= shard.pop(block_hash, 0) != 0
            if not shard:
                shard.clear()  # it keeps its size; a new one would pin old memory
            return
        self.entries += block_hash not in shard
        shard[block_hash] = self.intern(bits)

    def intern(self, bits: int) -> int:
        """The shared object equal to `bits`."""
        if len(self._interned) >= _INTERNED:  # only sharing is lost
            self._interned.clear()
        return self._interned.setdefault(bits, bits)

    def take_bit(self) -> int:
        """A bit that no entry carries."""
        if self._free:
            return self._free.pop()
        self._used += 1
        return 1 << (self._used - 1)

    def free(self, bits: int) -> None:
        """Give back bits that no entry carries."""
        while bits:
            low = bits & -bits
            self._free.append(low)
            bits ^= low

    def retire(self, bits: int) -> None:
        """Give back bits that entries may still carry."""
        self._retired |= bits

    def sweep(self, budget: int) -> bool:
        """Wipe retired bits off about `budget` entries; True while some are left."""
        while budget > 0:
            if not self._keys:
                if not self._next_keys():
                    return False
                budget -= 1
            slice_ = self._keys[-budget:] if budget else []
            del self._keys[len(self._keys) - len(slice_) :]
            self._wipe(slice_)
            budget -= len(slice_)
        return True

    def _next_keys(self) -> bool:
        """Go to the next shard, or the next round; False where all is swept."""
        if self._next_shard == SHARDS:
            self.free(self._wiping)
            self._wiping, self._retired = self._retired, 0
            if not self._wiping:
                return False
            self._next_shard = 0
        self._keys = list(self.shards[self._next_shard])
        self._next_shard += 1
        return True

    def _wipe(self, keys: list[int]) -> None:
        """Wipe the bits off entries of one shard."""
        wiping, intern = self._wiping, self.intern
        shard = self.shards[self._next_shard - 1]
        for block_hash in keys:
            had = shard.get(block_hash, 0)
            if not had & wiping:
                continue
            left = had & ~wiping
            if left:
                shard[block_hash] = intern(left)
            else:
                del shard[block_hash]
                self.entries -= 1
        if not shard:
            shard.clear()
