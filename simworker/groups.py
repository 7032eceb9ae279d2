"""KV cache groups: a model with several kinds of attention tells each block again.

Group 0 holds every block. A group with a window of tokens holds the last blocks of a
span only; in vLLM its events keep the token ids of the whole span (what is masked has
no hash), in TensorRT-LLM they tell just these blocks.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from kvindex.blocks import ID_BYTES
from kvindex.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    EngineHash,
    KVEvent,
)

WINDOW_KIND = "sliding_window"


class Groups:
    """Repeats the events of a cache for each of its groups.

    `windows` are in tokens, one for each further group; `masks`: a span keeps the ids
    of blocks that are not in the window.
    """

    def __init__(
        self, windows: Sequence[int], *, full: int | None, masks: bool
    ) -> None:
        self._windows = windows
        self._full = full
        self._masks = masks
        self._held: list[dict[EngineHash, int]] = [{} for _ in windows]

    def repeated(self, events: Iterable[KVEvent]) -> Iterator[KVEvent]:
        """Each event, and what the further groups say of the same."""
        for event in events:
            yield self._of_group(event, 0, self._full)
            for number, window in enumerate(self._windows, start=1):
                again = self._again(event, number, window)
                if again is not None:
                    yield self._of_group(again, number, window)

    def _of_group(self, event: KVEvent, group: int, window: int | None) -> KVEvent:
        if isinstance(event, AllBlocksCleared):
            return event
        return msgspec.structs.replace(event, group=group, window=window)

    def _again(self, event: KVEvent, number: int, window: int) -> KVEvent | None:
        held = self._held[number - 1]
        match event:
            case BlockStored():
                return self._windowed(event, held, window)
            case BlockRemoved():
                gone = tuple(name for name in event.hashes if _take(held, name))
                return msgspec.structs.replace(event, hashes=gone) if gone else None
            case BlockUpdated():
                return event if event.hash in held else None
            case CacheCreated():
                held.clear()
                return event
            case _:
                held.clear()
                return None

    def _windowed(
        self, event: BlockStored, held: dict[EngineHash, int], window: int
    ) -> BlockStored:
        kept = event.hashes[-max(1, -(-window // event.block_size)) :]
        for name in kept:
            held[name] = held.get(name, 0) + 1
        left_out = len(event.hashes) - len(kept)
        changes: dict[str, object] = {"hashes": kept}
        if self._masks:
            changes["group_kind"] = WINDOW_KIND
        elif left_out:
            changes["parent"] = event.hashes[left_out - 1]
            skipped = left_out * event.block_size * ID_BYTES
            changes["token_ids"] = event.token_ids[skipped:]
        if self._masks and event.extra_keys is not None:
            changes["extra_keys"] = event.extra_keys[left_out:]
        return msgspec.structs.replace(event, **changes)


def _take(held: dict[EngineHash, int], name: EngineHash) -> bool:
    if name not in held:
        return False
    held[name] -= 1
    if not held[name]:
        del held[name]
    return True
