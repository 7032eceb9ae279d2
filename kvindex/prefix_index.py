"""Which owners hold which blocks; how many leading blocks of a prompt each one holds.

Theory of operation. An owner is one (worker, data-parallel rank). It has bits of its
own in the bitset of each block: *gpu*, *other* (any other medium), and only while its
feed is in doubt *fresh*.

- Match: block hashes are chained and engines free leaves before parents, so what an
  owner holds on GPU is prefix-closed, and found by bisection (`leading.py`). From there
  on walk block by block while either medium holds it. A sampled match walks the GPU
  part of one owner, too, and counts holes.
- Clear and retire are at once: the owner gets new bits, or none; the old ones are wiped
  by `sweep` in slices (`bitsets.py`).
- Doubt: `suspect` allots a fresh bit, so every held block is suspect (held, not fresh)
  at once. Stores and confirmations set the bit, `drop_suspect` drops a block without
  it, `trust` ends the doubt.
- Bound: at the limit new blocks are refused and counted; engines' evictions make room.

Not here: engine hashes (`holder.py`), states (`feed.py`), guesses (`history.py`).
"""

import sys
from collections.abc import Hashable, Iterable, Sequence

from kvindex.bitsets import SHARD_MASK, BitTable
from kvindex.leading import LeadingBlocks
from kvindex.owner import BLOCK_BYTES, HOLDING_BYTES, NOTHING_HELD, Held, Memory, Owner
from kvindex.waste import Waste

SAMPLE = 100
"""One match in so many looks for holes of one owner."""


class PrefixIndex:
    """Block hash -> owners, for one model and one block size.

    `memory` and `waste` may be shared with other indexes.
    """

    def __init__(
        self,
        *,
        block_size: int,
        limit_blocks: int = sys.maxsize,
        memory: Memory | None = None,
        waste: Waste | None = None,
    ) -> None:
        self.block_size = block_size
        self.limit_blocks, self.refused = limit_blocks, 0
        self.memory = memory or Memory(sys.maxsize)
        self.waste = waste or Waste()
        self._holdings_bytes = self._matches = 0
        self._table = BitTable()
        self._leading = LeadingBlocks(self._table)

    @property
    def blocks(self) -> int:
        """Distinct blocks in memory, those that wait to be swept included."""
        return self._table.entries

    @property
    def bytes(self) -> int:
        """Estimated memory of the blocks and of the owners' maps of them."""
        return self._table.entries * BLOCK_BYTES + self._holdings_bytes

    def add_owner(self, key: Hashable, *, holding_bytes: int = HOLDING_BYTES) -> Owner:
        """A new owner that holds nothing."""
        self._renew(owner := Owner(key, holding_bytes))
        return owner

    def retire(self, owner: Owner) -> None:
        """The owner is gone: nothing is stored for it or matched any more."""
        self._drop_all(owner)
        owner.gpu = owner.other = owner.held = 0

    def clear(self, owner: Owner) -> None:
        """The owner holds nothing, from now on."""
        self._drop_all(owner)
        self._renew(owner)

    def _renew(self, owner: Owner) -> None:
        owner.gpu, owner.other = self._table.take_bit(), self._table.take_bit()
        owner.held = owner.gpu | owner.other

    def _drop_all(self, owner: Owner) -> None:
        if owner.blocks:
            self._table.retire(owner.held | owner.fresh)
        else:
            self._table.free(owner.held | owner.fresh)
        self._charge(0, -owner.blocks * owner.holding_bytes)
        self.charge_extra(owner, 0)
        owner.blocks = owner.gpu_blocks = owner.suspect_blocks = owner.fresh = 0
        owner.lookahead, owner.settling = 0, False

    def _charge(self, blocks: int, holdings_bytes: int) -> None:
        self._holdings_bytes += holdings_bytes
        self.memory.used_bytes += blocks * BLOCK_BYTES + holdings_bytes

    def charge_extra(self, owner: Owner, extra_bytes: int) -> None:
        """Say what an owner's tables take beside its blocks; a retired one has none."""
        extra_bytes = extra_bytes if owner.held else 0
        self._charge(0, extra_bytes - owner.extra_bytes)
        owner.extra_bytes = extra_bytes

    def store(self, owner: Owner, block_hash: int, *, on_gpu: bool) -> bool:
        """Note one block; False where it is refused."""
        return self.store_run(owner, (block_hash,), on_gpu=on_gpu)[0] == 1

    def store_run(
        self, owner: Owner, hashes: Sequence[int], *, on_gpu: bool
    ) -> tuple[int, list[int]]:
        """Note consecutive blocks, up to the first that is refused.

        Returns how many are noted, and those of them that this owner held in this
        medium before. Refused is what exceeds the bound, and all of a retired owner.
        """
        medium = owner.gpu if on_gpu else owner.other
        held, fresh = owner.held, owner.fresh
        table, shards, intern = self._table, self._table.shards, self._table.intern
        holding, entries = owner.holding_bytes, table.entries
        room = self.memory.limit_bytes - self.memory.used_bytes if held else -1
        accepted, again, kept, refreshed, bits = 0, [], 0, 0, 0
        for block_hash in hashes:
            shard = shards[block_hash & SHARD_MASK]
            had = shard.get(block_hash, 0)
            if had & held:
                if had & medium:
                    again.append(block_hash)
                kept += 1
                refreshed += not had & fresh
            else:
                room -= holding if had else holding + BLOCK_BYTES
                if room < 0 or (not had and table.entries >= self.limit_blocks):
                    break
                table.entries += not had
            if bits != had | medium | fresh:  # mostly as for the block before
                bits = intern(had | medium | fresh)
            shard[block_hash] = bits
            accepted += 1
        self.refused += len(hashes) - accepted
        self._charge(table.entries - entries, (accepted - kept) * holding)
        owner.blocks += accepted - kept
        owner.gpu_blocks += accepted - len(again) if on_gpu else 0
        owner.suspect_blocks -= refreshed if fresh else 0
        return accepted, again

    def remove(self, owner: Owner, block_hash: int, *, on_gpu: bool) -> None:
        """The owner no longer holds a block in this medium; nothing if it did not."""
        medium = owner.gpu if on_gpu else owner.other
        if (had := self._table.get(block_hash)) & medium:
            self._take_off(owner, block_hash, had, medium)

    def _take_off(self, owner: Owner, block_hash: int, had: int, media: int) -> None:
        left = had & ~media
        owner.gpu_blocks -= bool(had & media & owner.gpu)
        freed = 0
        if not left & owner.held:
            left &= ~owner.fresh
            owner.blocks -= 1
            owner.suspect_blocks -= owner.fresh != 0 and not had & owner.fresh
            freed = owner.holding_bytes
        self._table.put(block_hash, left)
        self._charge(-1 if not left else 0, -freed)

    def look_ahead(self, owner: Owner, tokens: int) -> None:
        """The owner's blocks depend on so many tokens behind them, too.

        A hash covers none of these, so of a match the last blocks are not certain: a
        prompt may go on otherwise. The most that was said counts, until it is cleared.
        """
        owner.lookahead = max(owner.lookahead, -(-tokens // self.block_size))

    def holds(self, owner: Owner, block_hash: int) -> bool:
        """Does the owner hold the block, in any medium?"""
        return self._table.get(block_hash) & owner.held != 0

    def suspect(self, owner: Owner) -> None:
        """All the owner holds is in doubt until stored again or confirmed."""
        owner.doubts += 1
        if owner.fresh and owner.suspect_blocks == owner.blocks:
            owner.settling = False  # as before
            return
        self.trust(owner)
        owner.fresh = self._table.take_bit()
        owner.suspect_blocks = owner.blocks

    def trust(self, owner: Owner) -> None:
        """Nothing the owner holds is in doubt any more."""
        if owner.suspect_blocks == owner.blocks:  # no block carries it
            self._table.free(owner.fresh)
        else:
            self._table.retire(owner.fresh)
        owner.fresh = owner.suspect_blocks = 0
        owner.settling = False

    def confirm(self, owner: Owner, hashes: Iterable[int]) -> None:
        """The owner was seen to hold these blocks: those in doubt no longer are."""
        for block_hash in hashes:
            had = self._table.get(block_hash)
            if owner.fresh and had & owner.held and not had & owner.fresh:
                self._table.put(block_hash, had | owner.fresh)
                owner.suspect_blocks -= 1

    def redoubt(self, owner: Owner, block_hash: int) -> None:
        """A block that was out of doubt is in doubt again, while the owner is."""
        had = self._table.get(block_hash)
        if owner.fresh and had & owner.held and had & owner.fresh:
            self._table.put(block_hash, had & ~owner.fresh)
            owner.suspect_blocks += 1

    def settle(self, owner: Owner) -> None:
        """From now on suspects do not match; drop each of them, then `trust`."""
        owner.settling = True

    def drop_suspect(self, owner: Owner, block_hash: int) -> bool:
        """Drop a block that is in doubt; True where the owner does not hold it now."""
        had = self._table.get(block_hash)
        if had & owner.held and (had & owner.fresh or not owner.fresh):
            return False
        if had & owner.held:
            self._take_off(owner, block_hash, had, owner.held)
        return True

    def match(self, hashes: Sequence[int], owners: Sequence[Owner]) -> list[Held]:
        """What each owner holds of the leading blocks `hashes`, in the order given."""
        on_gpu, others = self._bisect(hashes, owners)
        sampled = self._sampled(owners)
        result = []
        for owner in owners:
            held = on_gpu.get(owner.gpu, others)
            if owner is sampled:
                held = self._to_first_hole(owner, hashes, held)
            if owner.suspect_blocks or owner.blocks > owner.gpu_blocks:
                held = self._walk(owner, hashes, held.gpu_blocks)
            result.append(_certain(held, owner.lookahead) if owner.lookahead else held)
        return result

    def _sampled(self, owners: Sequence[Owner]) -> Owner | None:
        """The owner to look for holes of, now and then; each has its turn."""
        self._matches += 1
        turn, rest = divmod(self._matches, SAMPLE)
        return owners[turn % len(owners)] if owners and not rest else None

    def _bisect(
        self, hashes: Sequence[int], owners: Sequence[Owner]
    ) -> tuple[dict[int, Held], Held]:
        """What is held on GPU by gpu bit, and by all owners that are not listed."""
        bits = 0
        for owner in owners:
            bits |= owner.gpu
        *groups, (_, length) = self._leading.groups(hashes, bits)
        held = {0: NOTHING_HELD}  # of retired owners
        for bits, blocks in groups:
            same = _on_gpu(blocks)
            while bits:
                bit = bits & -bits
                held[bit] = same
                bits ^= bit
        return held, _on_gpu(length)

    def _to_first_hole(self, owner: Owner, hashes: Sequence[int], held: Held) -> Held:
        for position in range(held.gpu_blocks):
            if not self._table.get(hashes[position]) & owner.gpu:
                owner.holes += 1
                return _on_gpu(position)
        return held

    def _walk(self, owner: Owner, hashes: Sequence[int], gpu: int) -> Held:
        """Go on from the GPU part while any medium holds; list what is in doubt."""
        blocks, get = gpu, self._table.get
        while blocks < len(hashes) and get(hashes[blocks]) & owner.held:
            blocks += 1
        suspects: tuple[int, ...] = ()
        if owner.suspect_blocks:
            fresh = owner.fresh
            suspects = tuple([i for i in range(blocks) if not get(hashes[i]) & fresh])
        if suspects and owner.settling:
            blocks, suspects = suspects[0], ()
        return Held(gpu_blocks=min(gpu, blocks), blocks=blocks, suspects=suspects)

    def sweep(self, budget: int) -> bool:
        """Free about `budget` entries of cleared owners; True while some are left."""
        entries = self._table.entries
        left = self._table.sweep(budget) or self.waste.free(budget)
        self._charge(self._table.entries - entries, 0)
        return left


def _on_gpu(blocks: int) -> Held:
    return Held(gpu_blocks=blocks, blocks=blocks) if blocks else NOTHING_HELD


def _certain(held: Held, lookahead: int) -> Held:
    """What is held whatever comes behind the match."""
    blocks = max(0, held.blocks - lookahead)
    return Held(
        gpu_blocks=min(held.gpu_blocks, blocks),
        blocks=blocks,
        suspects=tuple([position for position in held.suspects if position < blocks]),
    )
