"""One owner's blocks by engine hash, and what its events do to the index.

Theory of operation. Blocks of an event whose parent is known are named (`names.py`) and
indexed under their own hashes; others wait as orphans.

- A block stored N times needs N removals: engines keep physical copies of one block and
  announce each. But an engine asked to report in full announces blocks again that it
  reuses, unmarked. It does so from the root, one event over all reused blocks; a copy
  comes from the root only where nothing was reused. So a known block in an event
  without parent is taken as announced again and adds no copy. Where that is wrong
  (prompts of one block, requests that skip the cache) a hit is hidden, and nothing
  stale is kept.
- When a batch was missed the names become the *previous* ones, looked at second. What
  is stored again moves over with one copy. `settle` walks what is left.

Not here: when a feed is in doubt (`feed.py`).
"""

from collections.abc import Sequence

from kvindex.adoption import Adoption
from kvindex.blocks import chain
from kvindex.by_name import ByName
from kvindex.charges import Charges
from kvindex.counters import Counters, count
from kvindex.engine_blocks import EngineBlocks, announces_again, key_of, keys_of
from kvindex.events import (
    BlockKeys,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    EngineHash,
    take_apart,
)
from kvindex.names import Names
from kvindex.orphans import HolderKey, Orphans
from kvindex.shelf import Shelf


class Holder:
    """The blocks of one owner; `page_size` tokens each, as the engine cuts them."""

    def __init__(
        self,
        *,
        model: str,
        page_size: int,
        shelf: Shelf,
        counters: Counters,
        orphan_blocks: int,
    ) -> None:
        self.page_size = page_size
        self.shelf = shelf
        self.incomplete = self._missed = False
        self.orphans = Orphans(orphan_blocks, counters.rejected)
        self._model = model
        self._counters = counters
        self._names = Names(shelf)
        self._charges = Charges(shelf, self.orphans, counters, self._names)
        self.by_name = ByName(self._names, self._note_one)
        self.adoption = Adoption(
            orphans=self.orphans,
            names=self._names,
            shelf=shelf,
            page_size=page_size,
            note=self._note_one,
        )

    def stored(self, event: BlockStored, *, complete: bool = False) -> bool:
        """Index the blocks of an event that `refusal` lets pass.

        False where not all of them are: what comes after them cannot be, either.
        `complete`: the index has all that the worker holds.
        """
        key = key_of(event)
        blocks = self._names.maps.at(key)
        if blocks is None:
            return self.reject("media")
        try:
            keys = take_apart(event, self._model)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return self.reject("extra_keys")
        salted = event.salt is not None
        if not self._charges.named(event.hashes, keys.media, salted=salted):
            self.refuse(len(event.hashes))
            return False
        salts, before = self.shelf.salts, self._counters.refused
        parent = keys.namespace.root()
        root = salts.told(event, parent)
        if event.parent is not None:
            found = salts.parents(self._names.maps, blocks, event.parent, root)
            if len(found) > 1:
                return self.reject("parent")
            if not found:
                self._keep_orphans(key, event, event.parent, keys, root)
                return True
            parent = found.pop()
            root = salts.root_of(parent)
        own = chain(event.token_ids, self.page_size, parent, keys.media)
        all_known = complete and not self.incomplete
        repeats = announces_again(blocks, event, all_known=all_known)
        if self.orphans or not self._charges.ample(len(event.hashes)):
            self._store_singly(blocks, event, [parent, *own], keys.media, repeats, root)
        else:
            self.shelf.prepare(parent, own, event.token_ids, keys.media)
            noted = self._note(blocks, event.hashes, own, repeats)
            salts.note(own[:noted], root)
        self._charges.account()
        return self._counters.refused == before

    def _store_singly(
        self,
        blocks: EngineBlocks,
        event: BlockStored,
        own: list[int],
        media: dict[int, bytes],
        announced: bool,
        root: int | None,
    ) -> None:
        """Block by block, as each may have waited as an orphan, or be refused.

        `own` begins with the hash of the parent.
        """
        for position, engine_hash in enumerate(event.hashes):
            medium = {0: media[position]} if position in media else {}
            parent, block_hash = own[position : position + 2]
            before = event.hashes[position - 1] if position else event.parent
            self.adoption.stored((key_of(event), engine_hash), before, parent, root)
            self.shelf.prepare(parent, (block_hash,), event.ids_of(position), medium)
            if not self._note_one(blocks, engine_hash, block_hash, announced):
                self.refuse(len(event.hashes) - position - 1)
                return
            self.shelf.salts.note((block_hash,), root)
            self.adoption.arrived(engine_hash, block_hash)

    def reject(self, reason: str) -> bool:
        """Count blocks that the worker holds and the index cannot; False."""
        count(self._counters.rejected, reason)
        self.incomplete = True
        return False

    def refuse(self, blocks: int) -> None:
        """Count blocks that the bound keeps out."""
        self.shelf.index.refused += blocks
        self._refuse(blocks)

    def _refuse(self, blocks: int) -> None:
        self._counters.refused += blocks
        self.incomplete = self.incomplete or blocks > 0

    def _keep_orphans(
        self,
        key: HolderKey,
        event: BlockStored,
        parent: EngineHash,
        keys: BlockKeys,
        root: int | None,
    ) -> None:
        self.incomplete = True
        self._counters.orphans += len(event.hashes)
        dropped = self.orphans.add(
            key,
            event,
            parent,
            keys.media,
            self._counters.orphans,
            keys.namespace.adapter,
            root,
        )
        self._counters.orphans_dropped += dropped
        self._charges.account()

    def _note_one(
        self, blocks: EngineBlocks, name: EngineHash, own: int, announced: bool
    ) -> bool:
        if self._charges.admits(blocks, name, own, announced=announced):
            return self._note(blocks, (name,), (own,), announced) == 1
        self.refuse(1)
        return False

    def _note(
        self,
        blocks: EngineBlocks,
        hashes: Sequence[EngineHash],
        own: Sequence[int],
        announced: bool,
    ) -> int:
        noted = self._names.note(blocks, hashes, own, announced)
        self._counters.stored += noted
        self._refuse(len(hashes) - noted)
        return noted

    def removed(self, event: BlockRemoved) -> None:
        """Drop one copy of each block; those never indexed are ignored."""
        for key in keys_of(event, self._names.maps):
            blocks = self._names.maps.get(key)
            for engine_hash in event.hashes:
                known = blocks is not None and blocks.find(engine_hash) is not None
                whole = event.any_medium or known  # which of both is gone?
                self.orphans.remove(key, engine_hash, whole=whole)
                if blocks is None or not known:
                    continue
                self._counters.removed += 1
                self.incomplete = self.incomplete or engine_hash in blocks.namesakes
                if event.any_medium:  # such engines keep one of each
                    blocks.copies.pop(engine_hash)
                self._names.remove(blocks, engine_hash)
        self._charges.account()

    def moved(self, event: BlockUpdated) -> None:
        """One copy of a block goes to another medium, from wherever it is known."""
        if event.medium is None:
            return
        maps, to = self._names.maps, (event.group or 0, event.medium, False)
        target = maps.at(to)
        if target is None:
            self.reject("media")
            return
        keys = [key for key in maps.of_group(event.group) if key != to]
        keys.sort(key=lambda key: key[1] != event.medium_before)
        for key in keys:
            if (own := maps[key].find(event.hash)) is not None:
                self._move(event.hash, own, maps[key], target)
                return
            self.orphans.move(key, event.hash, to)

    def _move(
        self, name: EngineHash, own: int, blocks: EngineBlocks, to: EngineBlocks
    ) -> None:
        if self._charges.admits(to, name, own, announced=True):
            self._refuse(not self._names.move(name, blocks, to))
        else:
            self._names.remove(blocks, name)
            self.refuse(1)
        self._charges.account()

    def suspect(self) -> None:
        """All that is held is in doubt."""
        self._missed = False
        self.shelf.index.suspect(self.shelf.owner)

    def miss(self) -> None:
        """A batch was missed: copies, and what orphans there are, is not known."""
        self._missed = True
        self._names.doubt()
        self.forget_orphans()

    def forget_orphans(self) -> None:
        """Whether they are still held nobody knows."""
        self.adoption.clear()
        self.shelf.index.waste.add(*self.orphans.clear())
        self._charges.account()

    def trust(self) -> None:
        """Nothing is in doubt any more."""
        self.shelf.index.trust(self.shelf.owner)

    def settle_all(self) -> None:
        """What is in doubt counts no more; `settle` is to walk names from before it."""
        if not self._missed:
            self.miss()
        self.shelf.index.settle(self.shelf.owner)

    def settle(self, budget: int) -> int:
        """Walk blocks from before the doubt; how many of `budget` are left.

        Those in doubt are dropped: where there are any, call `settle_all` first.
        """
        left = self._names.settle(budget)
        self._charges.account()
        return left

    def gather(self, budget: int) -> bool:
        """Make look-ups cheap again after doubts; True while there is more to do."""
        return self._names.gather(budget)

    def confirm(self, hashes: Sequence[int], delivered_blocks: int) -> bool:
        """The worker found `delivered_blocks` of these cached; were others dropped?"""
        index, owner = self.shelf.index, self.shelf.owner
        index.confirm(owner, hashes[:delivered_blocks])
        before = owner.blocks
        for block_hash in hashes[delivered_blocks:]:
            index.drop_suspect(owner, block_hash)
        self._charges.account()
        return owner.blocks < before

    def clear(self) -> None:
        """Nothing is held any more; memory is given back by sweeps."""
        self._names.clear()
        self.incomplete = False
        self.forget_orphans()
        self.shelf.clear()

    def retire(self) -> None:
        """The owner is gone."""
        self._names.discard()
        self.forget_orphans()
        self.shelf.retire()
