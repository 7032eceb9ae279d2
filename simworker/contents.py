"""What a simulated cache holds, block by block, and how one engine tells of it."""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from kvindex.blocks import ID_BYTES
from kvindex.events import EngineHash
from simworker.hashing import Digest, Identity

GPU = "GPU"


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine keeps and announces blocks.

    `extra_keys`: events tell a block's keys one by one (vLLM); `salt`: they tell the
    salt in a field of its own. `copies`: the same content may be held twice (vLLM);
    else the second is given back.
    `host_medium` is what the tier behind the GPU is called; `moves`: a block that goes
    there or back leaves where it was, in one event. `clears`: a reset is one event, not
    a removal of each block. `merges`: removals in a row are one event. `bare_offload`:
    events of the tier behind the GPU name blocks, and tell no tokens of them.
    """

    extra_keys: bool = True
    salt: bool = False
    copies: bool = True
    group: int | None = 0
    group_kind: str | None = "full_attention"
    host_medium: str = "CPU"
    moves: bool = False
    clears: bool = True
    merges: bool = False
    bare_offload: bool = False


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """One block's content: block `number` of a prompt, behind `parent`.

    `token_ids` are u32 little-endian, those of the hash's lookahead at the end too;
    `size` is how many of them are the block's own.
    """

    digest: Digest
    parent: Digest | None
    number: int
    token_ids: bytes
    size: int
    identity: Identity

    @property
    def own_ids(self) -> bytes:
        """The ids without those of the block behind it."""
        return self.token_ids[: self.size * ID_BYTES]


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A block held, and where: the truth behind the events."""

    content: Content
    name: EngineHash
    media: tuple[str, ...]


class HostTier:
    """Blocks kept in the memory behind the GPU, the longest unused one goes first."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._held: OrderedDict[Digest, Content] = OrderedDict()

    def __contains__(self, digest: Digest) -> bool:
        return digest in self._held

    @property
    def contents(self) -> Sequence[Content]:
        """All of them, the longest unused one first."""
        return list(self._held.values())

    def prefix(self, chain: Sequence[Digest]) -> list[Content]:
        """The longest leading part of `chain` that is here; it is used now."""
        found = []
        for digest in chain:
            content = self._held.get(digest)
            if content is None:
                break
            found.append(content)
        for content in reversed(found):  # the end of a chain goes before its start
            self._held.move_to_end(content.digest)
        return found

    def put(self, content: Content) -> tuple[bool, Content | None]:
        """Keep a block: whether it is new here, and the one that had to go."""
        new = content.digest not in self._held
        self._held[content.digest] = content
        self._held.move_to_end(content.digest)
        if len(self._held) <= self._blocks:
            return new, None
        return new, self._held.popitem(last=False)[1]

    def drop(self, digest: Digest) -> None:
        """A block is here no more."""
        self._held.pop(digest, None)

    def clear(self) -> None:
        """Nothing is here any more."""
        self._held.clear()
