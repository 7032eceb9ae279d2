"""What happened to blocks -> KV events, as one engine words them."""

from collections.abc import Sequence
from itertools import pairwise

from kvindex.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    EngineHash,
    KVEvent,
)
from simworker.contents import GPU, Content, Held, Style
from simworker.hashing import Hasher


class Announcer:
    """Gathers the events of one cache until they are taken."""

    def __init__(self, hasher: Hasher, style: Style) -> None:
        self._name = hasher.event_value
        self._style = style
        self._events: list[KVEvent] = []

    def take(self) -> list[KVEvent]:
        """The events since the last call, in the order things happened."""
        events, self._events = self._events, []
        return events

    def stored(self, contents: Sequence[Content], medium: str = GPU) -> None:
        """Blocks are held: one event for each run of blocks that follow each other."""
        run: list[Content] = []
        for before, content in pairwise([None, *contents]):
            assert content is not None  # noqa: S101 - only the first is none
            follows = (
                before is not None
                and content.parent == before.digest
                and content.size == before.size
            )
            if run and not follows:
                self._store(run, medium)
                run = []
            run.append(content)
        if run:
            self._store(run, medium)

    def _store(self, run: Sequence[Content], medium: str) -> None:
        first, name, style = run[0], self._name, self._style
        identity = first.identity
        keys = tuple([identity.event_keys(each.number, each.size) for each in run])
        # Whoever hashes with the tokens behind a block tells these, too.
        ids = [content.own_ids for content in run[:-1]] + [run[-1].token_ids]
        bare = style.bare_offload and medium != GPU
        self._events.append(
            BlockStored(
                hashes=tuple([name(content.digest) for content in run]),
                parent=None if first.parent is None else name(first.parent),
                token_ids=b"" if bare else b"".join(ids),
                block_size=0 if bare else first.size,
                medium=medium,
                adapter=identity.adapter,
                adapter_id=identity.adapter_id,
                extra_keys=keys if style.extra_keys else None,
                salt=identity.salt if style.salt else None,
                group=style.group,
                group_kind=style.group_kind,
            )
        )

    def removed(self, content: Content, medium: str) -> None:
        """A block left `medium`."""
        names: tuple[EngineHash, ...] = (self._name(content.digest),)
        last = self._events[-1] if self._events else None
        if (
            self._style.merges
            and isinstance(last, BlockRemoved)
            and last.medium == medium
        ):
            self._events.pop()
            names = (*last.hashes, *names)
        removal = BlockRemoved(hashes=names, medium=medium, group=self._style.group)
        self._events.append(removal)

    def offloaded(self, content: Content, *, new: bool) -> None:
        """A block left the GPU for the tier behind it; `new`: it was not there yet."""
        host = self._style.host_medium
        if self._style.moves:
            self._moved(content, GPU, host)
            return
        if new:
            self.stored([content], host)
        self.removed(content, GPU)

    def loaded(self, contents: Sequence[Content]) -> None:
        """Blocks came back to the GPU."""
        if not self._style.moves:
            self.stored(contents)
            return
        for content in contents:
            self._moved(content, self._style.host_medium, GPU)

    def _moved(self, content: Content, before: str, after: str) -> None:
        name = self._name(content.digest)
        self._events.append(BlockUpdated(hash=name, medium_before=before, medium=after))

    def cleared(self, held: Sequence[Held]) -> None:
        """The cache is empty; `held` is what it held, in any order."""
        if self._style.clears:
            self._events.append(AllBlocksCleared())
            return
        for each in sorted(held, key=lambda each: -each.content.number):
            self.removed(each.content, each.media[0])
