"""The block cache of a simulated worker: a block pool without the tensors.

Physical blocks with reference counts, a map from block hash to the copies that hold
it, and one queue of free blocks: its head is reused first, and a request's last blocks
are before its first ones. Freed blocks keep their content until they are reused; then,
and only then, it goes: to the tier behind the GPU where there is one, else for good.
It knows nothing of time or requests: the engine says when a block is full.
"""

from collections import OrderedDict
from collections.abc import Sequence

from kvindex.blocks import pack_ids
from kvindex.events import KVEvent
from simworker.announcer import Announcer
from simworker.contents import GPU, Content, Held, HostTier, Style
from simworker.hashing import Digest, Hasher, Identity


class BlockCache:
    """At most `blocks - 1` blocks of content: as in vLLM, block 0 is the null block.

    Events of what changed pile up in order until `take_events`.
    """

    def __init__(
        self,
        *,
        blocks: int,
        block_size: int,
        hasher: Hasher,
        style: Style | None = None,
        host_blocks: int = 0,
    ) -> None:
        if blocks < 2:
            raise ValueError("a block cache needs at least 2 blocks")
        self.block_size = block_size
        self.capacity = blocks - 1
        self._hasher = hasher
        self._style = style or Style()
        self._references = [0] * blocks
        self._content: list[Content | None] = [None] * blocks
        self._copies: dict[Digest, OrderedDict[int, None]] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, blocks))
        self._host = HostTier(host_blocks) if host_blocks else None
        self._announcer = Announcer(hasher, self._style)

    @property
    def free(self) -> int:
        """Blocks no running request holds; their content may still be a hit."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Blocks that running requests hold."""
        return self.capacity - len(self._free)

    @property
    def held(self) -> int:
        """Blocks with content, in use or free; copies count."""
        return sum(map(len, self._copies.values()))

    def digests(self) -> set[Digest]:
        """The hashes of all blocks held on the GPU, in use or free."""
        return set(self._copies)

    def holdings(self) -> list[Held]:
        """All blocks held, and in which media."""
        found: dict[Digest, tuple[Content, tuple[str, ...]]] = {}
        for content in self._content:
            if content is not None:
                found[content.digest] = content, (GPU,)
        for content in self._host.contents if self._host else ():
            _, media = found.get(content.digest, (content, ()))
            found[content.digest] = content, (*media, self._style.host_medium)
        name = self._hasher.event_value
        return [
            Held(content=content, name=name(digest), media=media)
            for digest, (content, media) in found.items()
        ]

    def lookup(self, chain: Sequence[Digest]) -> list[int]:
        """The blocks that hold the longest prefix of `chain`."""
        found: list[int] = []
        for digest in chain:
            copies = self._copies.get(digest)
            if copies is None:
                break
            found.append(next(iter(copies)))
        return found

    def behind(self, chain: Sequence[Digest]) -> list[Content]:
        """The longest prefix of `chain` that the tier behind the GPU has."""
        return self._host.prefix(chain) if self._host else []

    def allocate(self, hits: Sequence[int], new: int) -> list[int] | None:
        """Take hold of `hits` and of `new` more blocks; None if they do not fit.

        Blocks at the head of the free queue are reused; what they held is removed.
        """
        resting = sum(1 for block in hits if not self._references[block])
        if new > len(self._free) - resting:
            return None
        for block in hits:
            self._take(block)
        return [*hits, *(self._reuse() for _ in range(new))]

    def _take(self, block: int) -> None:
        if not self._references[block]:
            del self._free[block]
        self._references[block] += 1

    def _reuse(self) -> int:
        block, _ = self._free.popitem(last=False)
        self._references[block] = 1
        content = self._content[block]
        if content is not None:
            self._content[block] = None
            self._forget(block, content)
        return block

    def _forget(self, block: int, content: Content) -> None:
        """A block's content goes; the last copy goes to the tier behind."""
        copies = self._copies[content.digest]
        del copies[block]
        if not copies:
            del self._copies[content.digest]
        if copies or self._host is None:
            self._announcer.removed(content, GPU)
            return
        new, gone = self._host.put(content)
        self._announcer.offloaded(content, new=new)
        if gone is not None:
            self._announcer.removed(gone, self._style.host_medium)

    def report(self, blocks: Sequence[int]) -> None:
        """Announce blocks once more, as if they were new."""
        contents = [self._content[block] for block in blocks]
        self._announcer.stored([each for each in contents if each is not None])

    def load(self, blocks: Sequence[int], contents: Sequence[Content]) -> None:
        """Bring blocks back from the tier behind the GPU, in no time."""
        for block, content in zip(blocks, contents, strict=True):
            self._hold(block, content)
            if self._style.moves and self._host is not None:
                self._host.drop(content.digest)
        self._announcer.loaded(contents)

    def store(
        self,
        blocks: list[int],
        chain: Sequence[Digest],
        token_ids: Sequence[int],
        identity: Identity,
        *,
        first: int,
    ) -> None:
        """Blocks number `first` and up of a request are full: remember and announce.

        `blocks`, `chain` and `token_ids` are the whole request's, `chain` up to the
        last full block; it may end in one that is not. A hash that is held already
        gets one more copy, or the block is given back and `blocks` names the other.
        """
        size, lookahead = self.block_size, self._hasher.lookahead
        fresh: list[Content] = []
        for number in range(first, len(chain)):
            ids = token_ids[number * size : (number + 1) * size + lookahead]
            content = Content(
                digest=chain[number],
                parent=chain[number - 1] if number else None,
                number=number,
                token_ids=pack_ids(ids),
                size=min(size, len(ids) - lookahead),
                identity=identity,
            )
            if not self._style.copies and content.digest in self._copies:
                self._share(blocks, number, content.digest)
            else:
                self._hold(blocks[number], content)
                fresh.append(content)
        self._announcer.stored(fresh)

    def _hold(self, block: int, content: Content) -> None:
        self._content[block] = content
        self._copies.setdefault(content.digest, OrderedDict())[block] = None

    def _share(self, blocks: list[int], number: int, digest: Digest) -> None:
        """Use the block that holds this content already, and give back one's own."""
        mine, held = blocks[number], next(iter(self._copies[digest]))
        if mine != held:
            self._take(held)
            self._give_back(mine)
            blocks[number] = held

    def release(self, blocks: Sequence[int]) -> None:
        """A request ended: its last blocks will be reused before its first ones.

        Blocks that hold nothing of use go to the head of the queue.
        """
        for block in reversed(blocks):
            self._give_back(block)

    def _give_back(self, block: int) -> None:
        self._references[block] -= 1
        if not self._references[block]:
            self._free[block] = None
            if self._content[block] is None:
                self._free.move_to_end(block, last=False)

    def clear(self) -> bool:
        """Forget everything; refused (False) while requests hold blocks."""
        if self.used:
            return False
        self._announcer.cleared(self.holdings())
        self._content = [None] * len(self._content)
        self._copies.clear()
        if self._host is not None:
            self._host.clear()
        return True

    def take_events(self) -> list[KVEvent]:
        """The events since the last call, in the order things happened."""
        return self._announcer.take()
