"""KV-cache events as every engine means them: stored, removed, moved, cleared, created.

Engine-neutral records only. What one engine's bytes look like is in `wire/`; what an
event does to the index is in `holder.py`.
"""

from collections.abc import Iterator

import msgspec

from kvindex.blocks import ID_BYTES, Namespace

MEDIA_KEY_BYTES = 4_096
"""Longest extra keys of one block: dozens of images, each a hash and an offset."""

EngineHash = int | bytes
"""A block's name within one worker: unsigned 64-bit integer or digest. Opaque."""

ExtraKeys = tuple[object, ...] | None
"""What besides token ids entered one block's hash, untagged, or nothing."""


class BlockStored(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive blocks that a worker now holds.

    `token_ids` are u32 little-endian bytes of all blocks in `hashes`; `parent` is the
    block before the first one, None where that is block 0. `medium` None is GPU.
    `group` and `group_kind` name the KV cache group of a hybrid model. `lookahead` are,
    per block, the ids behind it that its name covers too, as they are drafted from.
    Unless `tells_salt` a salted block looks like any other. `salt_in_each`: events from
    within a chain tell its salt, too, so where none is told there is none.
    """

    hashes: tuple[EngineHash, ...]
    token_ids: bytes
    block_size: int
    parent: EngineHash | None = None
    medium: str | None = None
    adapter: str | None = None
    adapter_id: int | None = None
    extra_keys: tuple[ExtraKeys, ...] | None = None
    group: int | None = None
    group_kind: str | None = None
    locality: str | None = None
    session_id: str | None = None
    salt: str | None = None
    tells_salt: bool = True
    salt_in_each: bool = False
    lookahead: tuple[tuple[int, ...] | None, ...] | None = None
    window: int | None = None
    foreign: bool = False
    from_root: bool = False

    def ids_of(self, position: int) -> bytes:
        """The token ids of one block."""
        stride = self.block_size * ID_BYTES
        return self.token_ids[position * stride : (position + 1) * stride]

    def parts(self, limit: int) -> Iterator["BlockStored"]:
        """The same as events of at most `limit` blocks each."""
        if len(self.hashes) <= limit:
            yield self
            return
        stride, parent = self.block_size * ID_BYTES, self.parent
        for start in range(0, len(self.hashes), limit):
            end = start + limit
            yield msgspec.structs.replace(
                self,
                hashes=self.hashes[start:end],
                token_ids=self.token_ids[start * stride : end * stride],
                extra_keys=self.extra_keys and self.extra_keys[start:end],
                lookahead=self.lookahead and self.lookahead[start:end],
                parent=parent,
                from_root=self.from_root or self.parent is None,
            )
            parent = self.hashes[min(end, len(self.hashes)) - 1]


class BlockRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """One copy of each named block is gone: from `medium`, or from `any_medium`.

    The latter is for engines that keep a block in one medium at a time and do not say
    in which it was.
    """

    hashes: tuple[EngineHash, ...]
    medium: str | None = None
    group: int | None = None
    locality: str | None = None
    window: int | None = None
    any_medium: bool = False


class BlockUpdated(msgspec.Struct, frozen=True, kw_only=True):
    """A block moved from one medium to another; both None: it stays where it is."""

    hash: EngineHash
    medium_before: str | None = None
    medium: str | None = None
    group: int | None = None
    window: int | None = None


class AllBlocksCleared(msgspec.Struct, frozen=True):
    """The worker's cache is empty, whatever it held.

    Or it is to be taken for that, as events were `lost`: what it has nobody knows.
    """

    lost: bool = False


class CacheCreated(msgspec.Struct, frozen=True, kw_only=True):
    """The worker has just made its cache, of so many blocks per medium."""

    blocks_per_level: tuple[int, ...] = ()
    group: int | None = None
    window: int | None = None


KVEvent = BlockStored | BlockRemoved | BlockUpdated | AllBlocksCleared | CacheCreated


class EventBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What one message of a worker's event stream says.

    `undecodable` has one reason per event that was skipped: `unknown_type`,
    `not_an_event`, or `<type>.<field>`; a small fixed set, fit for a metric label.
    """

    timestamp: float
    events: tuple[KVEvent, ...]
    rank: int | None = None
    undecodable: tuple[str, ...] = ()


class UndecodableBatch(ValueError):
    """A message of which nothing can be read: not a batch at all."""


class BlockKeys(msgspec.Struct, frozen=True, kw_only=True):
    """An event's extra keys, taken apart."""

    namespace: Namespace
    media: dict[int, bytes]


def take_apart(event: BlockStored, model: str) -> BlockKeys:
    """Split an event's untagged extra keys into namespace and media.

    Engines list, per block: the adapter's name, `[media hash, offset]` pairs, on block
    0 of a salted request the salt, and digests of prompt embeddings as bytes. So the
    first string equal to the event's adapter is the adapter; the first other string of
    a block 0 is the salt; everything else is media: it is kept, in its order, as
    msgpack of the list (`media_key`). An adapter known by number only (workers that
    name none) gets a name that no request carries.
    """
    adapter = event.adapter
    if adapter is None and event.adapter_id is not None:
        adapter = f"\x00{event.adapter_id}"
    salt = event.salt
    media: dict[int, bytes] = {}
    for position, keys in enumerate(event.extra_keys or ()):
        if not keys:
            continue
        left = list(keys)
        if event.adapter is not None and event.adapter in left:
            left.remove(event.adapter)
        if position == 0 and event.parent is None and salt is None:
            salt = next((key for key in left if isinstance(key, str)), None)
            if salt is not None:
                left.remove(salt)
        if left:
            media[position] = media_key(left)
    namespace = Namespace(model=model, adapter=adapter, salt=salt)
    return BlockKeys(namespace=namespace, media=media)


def media_key(items: list[object]) -> bytes:
    """The extra key of a block for `blocks.chain`: msgpack of what it carries.

    Raises ValueError where that is more than `MEDIA_KEY_BYTES`.
    """
    key = msgspec.msgpack.encode(items)
    if len(key) > MEDIA_KEY_BYTES:
        raise ValueError(f"extra keys of {len(key)} bytes")
    return key
