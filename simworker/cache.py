"""The block cache of a simulated worker: vLLM's block pool without the tensors.

Physical blocks with reference counts, a map from block hash to the copies that hold
it, and one queue of free blocks: its head is reused first. Freed blocks keep their
content until they are reused; then, and only then, their removal is an event. It
knows nothing of time or requests: the engine says when a block is full.
"""

from collections import OrderedDict
from collections.abc import Sequence

from kvindex.blocks import pack_ids
from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent
from simworker.hashing import BlockHasher, Digest, Identity

GROUP = 0
GROUP_KIND = "full_attention"
MEDIUM = "GPU"


class BlockCache:
    """At most `blocks - 1` blocks of content: as in vLLM, block 0 is the null block.

    Events of what changed pile up in order until `take_events`.
    """

    def __init__(self, *, blocks: int, block_size: int, hasher: BlockHasher) -> None:
        if blocks < 2:
            raise ValueError("a block cache needs at least 2 blocks")
        self.block_size = block_size
        self.capacity = blocks - 1
        self._hasher = hasher
        self._references = [0] * blocks
        self._content: list[Digest | None] = [None] * blocks
        self._copies: dict[Digest, OrderedDict[int, None]] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, blocks))
        self._events: list[KVEvent] = []

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
        """The hashes of all blocks held, in use or free."""
        return set(self._copies)

    def lookup(self, chain: Sequence[Digest]) -> list[int]:
        """The blocks that hold the longest prefix of `chain`."""
        found: list[int] = []
        for digest in chain:
            copies = self._copies.get(digest)
            if copies is None:
                break
            found.append(next(iter(copies)))
        return found

    def allocate(self, hits: Sequence[int], new: int) -> list[int] | None:
        """Take hold of `hits` and of `new` more blocks; None if they do not fit.

        Blocks at the head of the free queue are reused; what they held is removed.
        """
        resting = sum(1 for block in hits if not self._references[block])
        if new > len(self._free) - resting:
            return None
        for block in hits:
            if not self._references[block]:
                del self._free[block]
            self._references[block] += 1
        return [*hits, *(self._reuse() for _ in range(new))]

    def _reuse(self) -> int:
        block, _ = self._free.popitem(last=False)
        self._references[block] = 1
        digest = self._content[block]
        if digest is not None:
            self._forget(block, digest)
            value = self._hasher.event_value(digest)
            self._events.append(
                BlockRemoved(hashes=(value,), medium=MEDIUM, group=GROUP)
            )
        return block

    def _forget(self, block: int, digest: Digest) -> None:
        self._content[block] = None
        copies = self._copies[digest]
        del copies[block]
        if not copies:
            del self._copies[digest]

    def store(
        self,
        blocks: Sequence[int],
        chain: Sequence[Digest],
        token_ids: Sequence[int],
        identity: Identity,
        *,
        first: int,
    ) -> None:
        """Blocks number `first` and up of a request are full: remember and announce.

        `blocks`, `chain` and `token_ids` are the whole request's, `chain` up to the
        last full block. A hash that is held already gets one more copy.
        """
        stored = range(first, len(chain))
        if not stored:
            return
        for number in stored:
            block, digest = blocks[number], chain[number]
            self._content[block] = digest
            self._copies.setdefault(digest, OrderedDict())[block] = None
        span = token_ids[first * self.block_size : len(chain) * self.block_size]
        value = self._hasher.event_value
        self._events.append(
            BlockStored(
                hashes=tuple(value(chain[number]) for number in stored),
                parent=value(chain[first - 1]) if first else None,
                token_ids=pack_ids(span),
                block_size=self.block_size,
                medium=MEDIUM,
                adapter=identity.adapter,
                adapter_id=identity.adapter_id,
                extra_keys=tuple(identity.event_keys(number) for number in stored),
                group=GROUP,
                group_kind=GROUP_KIND,
            )
        )

    def release(self, blocks: Sequence[int]) -> None:
        """A request ended: its last blocks will be reused before its first ones.

        Blocks that hold nothing of use go to the head of the queue.
        """
        for block in reversed(blocks):
            self._references[block] -= 1
            if not self._references[block]:
                self._free[block] = None
                if self._content[block] is None:
                    self._free.move_to_end(block, last=False)

    def clear(self) -> bool:
        """Forget everything; refused (False) while requests hold blocks."""
        if self.used:
            return False
        self._content = [None] * len(self._content)
        self._copies.clear()
        self._events.append(AllBlocksCleared())
        return True

    def take_events(self) -> list[KVEvent]:
        """The events since the last call, in the order things happened."""
        events, self._events = self._events, []
        return events
