"""One owner's names of blocks, engine hash -> own hash, written to the index.

An engine hash is only a name: removals, moves and parents are given by it. Per (group,
medium) a map leads from it to the own hash; extra copies are counted where there are
any. One own hash may have several names: it is held while one of them is left. One name
may be that of several blocks: a removal does not tell which is gone, so none of them
counts after it. Of several groups the first to lose a block ends its residency, for a
hit needs it in all.

After a doubt a name that was kept may be stale. So it is never counted as one more of
its block: the first of these names that is removed takes the block with it.

Not here: events, orphans and bounds (`holder.py`).
"""

from collections.abc import Sequence
from itertools import chain

from kvindex.engine_blocks import EngineBlocks, Maps
from kvindex.events import EngineHash
from kvindex.shelf import Shelf

_SMALL = 256


class Names:
    """`maps` by (group, medium); the shelf is written to as names come and go."""

    def __init__(self, shelf: Shelf) -> None:
        self.maps = Maps()
        self._shelf = shelf

    def note(
        self,
        blocks: EngineBlocks,
        hashes: Sequence[EngineHash],
        own: Sequence[int],
        announced: bool,
    ) -> int:
        """Store a run; how many blocks of it the bound let in.

        `announced` adds no copies of what is known.
        """
        if blocks.knows_none(hashes):
            noted, again = self._shelf.store_run(own, on_gpu=blocks.on_gpu)
            told = own[:noted]
            blocks.own.extend(hashes[:noted], told)
            if again or blocks.shares or not blocks.on_gpu:
                names = dict(zip(own, hashes, strict=True))
                self._told(blocks, names, told, again)
            return noted
        for position, engine_hash in enumerate(hashes):
            if not self._note_one(blocks, engine_hash, own[position], announced):
                return position
        return len(hashes)

    def _note_one(
        self, blocks: EngineBlocks, engine_hash: EngineHash, own: int, announced: bool
    ) -> bool:
        another = blocks.find(engine_hash) is not None
        another = another and not blocks.names_it(engine_hash, own)
        if another and not blocks.may_lend(engine_hash):
            self._drop(blocks, engine_hash)
            another = False
        noted, again = self._shelf.store_run((own,), on_gpu=blocks.on_gpu)
        if not noted:
            return False
        if another:
            blocks.lend(engine_hash)
        elif engine_hash in blocks.own:
            if not again:  # of what was counted nothing is left
                blocks.copies.pop(engine_hash)
                blocks.shares.forget(own)
            elif not announced:
                blocks.add_copies(engine_hash, 1)
            return True
        blocks.own[engine_hash] = own
        self._told(blocks, {own: engine_hash}, (own,), again)
        blocks.previous.pop(engine_hash)
        return True

    def _told(
        self,
        blocks: EngineBlocks,
        names: dict[int, EngineHash],
        told: Sequence[int],
        again: Sequence[int],
    ) -> None:
        """Blocks have a new name here; `again` of them were held in this medium class.

        They are shared, then, with another name: but not while there are previous ones,
        which may be stale. Nor is then known what holds a block on GPU that is told
        elsewhere by a name that is unknown there. What was counted of others is over.
        """
        if blocks.shares:
            for own in set(told).difference(again):
                blocks.shares.forget(own)
        if not self.maps.in_doubt:
            for own in again:
                if not self.maps.elsewhere(blocks, names[own], own):
                    blocks.shares.add(own)
        elif not blocks.on_gpu:
            for own in told:
                if not self.maps.names_on_gpu(names[own], own):
                    self._shelf.remove(own, on_gpu=True)

    def remove(self, blocks: EngineBlocks, engine_hash: EngineHash) -> None:
        """One copy of a block that is known here is gone."""
        lent = engine_hash in blocks.namesakes
        if lent or not blocks.drop_copy(engine_hash):
            self._drop(blocks, engine_hash)

    def move(
        self, engine_hash: EngineHash, blocks: EngineBlocks, to: EngineBlocks
    ) -> bool:
        """A block goes to another medium; False where the bound keeps it out."""
        own = None if engine_hash in blocks.namesakes else blocks.find(engine_hash)
        moved = own is not None and self._note_one(to, engine_hash, own, True)
        self.remove(blocks, engine_hash)
        return moved

    def _drop(self, blocks: EngineBlocks, engine_hash: EngineHash) -> None:
        if blocks.copies.entries:
            blocks.copies.pop(engine_hash)
        for own in blocks.drop_name(engine_hash):
            gone = self._take_off(blocks, engine_hash, own)
            in_doubt = gone and self._shelf.owner.fresh
            if in_doubt and not self.maps.tells(engine_hash, own):
                self._redoubt(engine_hash, own)

    def _redoubt(self, engine_hash: EngineHash, own: int) -> None:
        """What took a block out of doubt is gone; so is it, if no walk comes by it."""
        self._shelf.redoubt(own)
        if not self.maps.names(engine_hash, own):
            self._shelf.drop_suspect(own, on_gpu=True)

    def _take_off(
        self, blocks: EngineBlocks, engine_hash: EngineHash, own: int
    ) -> bool:
        """A name that has been forgotten holds its block no more; False: others do."""
        if not blocks.on_gpu and self.maps.elsewhere(blocks, engine_hash, own):
            return True
        if blocks.shares.drop(own):
            return False
        self._shelf.remove(own, on_gpu=blocks.on_gpu)
        return True

    def doubt(self) -> None:
        """How many copies there are, and of what, is not known any more."""
        for blocks in self.maps.values():
            for engine_hash in tuple(blocks.namesakes):
                self._drop(blocks, engine_hash)
            self._shelf.index.waste.add(*blocks.doubt())
        for shares in self.maps.shares:
            self._shelf.index.waste.add(*shares.clear())

    def settle(self, budget: int) -> int:
        """Walk previous names, dropping those in doubt; what is left of `budget`.

        A block out of doubt is where it was told again. Where that is nowhere, the
        worker has found it: then it is on GPU.
        """
        for blocks in self.maps.values():
            while blocks.previous and budget:
                budget -= 1
                engine_hash, own = blocks.previous.take()
                if self._shelf.drop_suspect(own, on_gpu=blocks.on_gpu):
                    continue
                if blocks.on_gpu and not self.maps.tells(engine_hash, own):
                    if engine_hash not in blocks.own:
                        blocks.own[engine_hash] = own
                else:
                    self._take_off(blocks, engine_hash, own)
        return budget

    def gather(self, budget: int) -> bool:
        """Put previous names together, as `Generations.gather` does."""
        more = [blocks.previous.gather(budget) for blocks in self.maps.values()]
        return any(more)

    def clear(self) -> None:
        """No name means anything; memory is given back by `PrefixIndex.sweep`."""
        few = self.maps.entries <= _SMALL
        if few and self._shelf.owner.blocks <= _SMALL:  # saves the index a sweep
            for blocks in self.maps.values():
                lent = (own for before in blocks.namesakes.values() for own in before)
                tables = (table.values() for table in blocks.previous.tables)
                for own in chain(blocks.own.values(), lent, *tables):
                    self._shelf.remove(own, on_gpu=blocks.on_gpu)
        self.discard()

    def discard(self) -> None:
        """Forget all names, whatever becomes of the blocks."""
        for blocks in self.maps.values():
            self._shelf.index.waste.add(*blocks.tables)
        for shares in self.maps.shares:
            self._shelf.index.waste.add(*shares.clear())
        self.maps = Maps()
