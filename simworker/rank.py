"""One data-parallel rank of a simulated worker: a cache, a scheduler, a stream."""

import time
from collections.abc import Iterator, Sequence

from kvindex.events import KVEvent
from simworker.cache import BlockCache
from simworker.caching import Caching, Stream
from simworker.engine import Engine
from simworker.faults.events import mistaken
from simworker.faults.record import NONE, Faults
from simworker.faults.restart import Restart
from simworker.options import SimOptions
from simworker.publisher import Publisher
from simworker.runner import Runner


class Rank:
    """Rank `number` of a worker; `cache` is another one after a restart."""

    def __init__(self, number: int, options: SimOptions, caching: Caching) -> None:
        self.number = number
        self._options = options
        self._caching = caching
        self.stream: Stream | None = (
            caching.streams[number] if caching.streams else None
        )
        self._groups = caching.groups()
        self._unsaid: Sequence[KVEvent] = ()
        self.cache = self._new_cache(options.tokens_per_block)
        self.engine = Engine(
            options.engine_settings(output_at_end=caching.output_at_end),
            self.cache,
            caching.hasher,
            on_batch=self._publish,
        )
        self.runner = Runner(self.engine)

    def _new_cache(self, block_size: int) -> BlockCache:
        """An empty one, for as many tokens as the options say."""
        options = self._options
        tokens = (options.blocks - 1) * options.tokens_per_block
        return BlockCache(
            blocks=max(tokens // block_size, 1) + 1,
            block_size=block_size,
            hasher=self._caching.hasher,
            style=self._caching.style,
            host_blocks=options.host_blocks,
        )

    def _publish(self, events: Sequence[KVEvent]) -> None:
        if self.stream is None:
            return
        events, self._unsaid = [*self._unsaid, *events], ()
        events = mistaken(events, self.stream.line.count_down)
        if self._groups is not None:
            events = list(self._groups.repeated(events))
        self.stream.publish(events)

    def play(self, faults: Faults) -> None:
        """Play these faults from now on."""
        if self.stream is not None:
            self.stream.line.play(faults)

    def open(self) -> None:
        """Say what a fresh process says: at once, or at the head of its first batch."""
        self._unsaid = self._caching.opening
        if self._caching.buffer is not None:
            self._publish(())

    def restart(self, block_size: int | None, *, unheard: bool) -> None:
        """Another process takes over, with an empty cache; requests start over.

        `unheard`: what it says first is lost, and its numbers are past those of before.
        """
        self.runner.catch_up()
        self._groups = self._caching.groups()
        if self.stream is not None:
            self.stream.begin_anew(unheard=unheard)
        self.cache = self._new_cache(block_size or self.cache.block_size)
        if not unheard:
            self.open()
        self.runner.restart(self.cache)

    def reset(self) -> bool:
        """Empty the cache; refused (False) while requests hold blocks."""
        return self.cache.clear()

    def flush(self) -> None:
        """Publish what no step would, as of a reset of an idle engine."""
        self.engine.flush()


class Ranks:
    """All ranks of a worker; `started` is their process's start in Unix seconds."""

    def __init__(self, options: SimOptions, caching: Caching) -> None:
        self._ranks = [
            Rank(number, options, caching)
            for number in range(options.data_parallel_size)
        ]
        self._buffer = caching.buffer
        self._turn = 0
        self.started = time.time()

    def __len__(self) -> int:
        return len(self._ranks)

    def __getitem__(self, number: int) -> Rank:
        return self._ranks[number]

    def __iter__(self) -> Iterator[Rank]:
        return iter(self._ranks)

    @property
    def publishers(self) -> list[Publisher]:
        """Those of the streams that are sockets."""
        streams = [rank.stream for rank in self._ranks]
        return [stream for stream in streams if isinstance(stream, Publisher)]

    def open(self) -> None:
        """Say what a fresh process says."""
        for rank in self._ranks:
            rank.open()

    @property
    def block_size(self) -> int:
        """Tokens per block; all ranks have the same."""
        return self._ranks[0].cache.block_size

    def pick(self, asked: int | None) -> Rank:
        """The rank that was asked for, or the one with the least to do."""
        if asked is not None:
            return self._ranks[asked]
        self._turn += 1
        order = [*self._ranks[self._turn :], *self._ranks[: self._turn]]
        self._turn %= len(self._ranks)
        return min(order, key=lambda rank: rank.engine.waiting + rank.engine.running)

    def reset(self) -> bool:
        """Empty all caches; False where one was in use."""
        done = [rank.reset() for rank in self._ranks]
        return all(done)

    def flush(self) -> None:
        """Publish what no step would, as of a reset of an idle engine."""
        for rank in self._ranks:
            rank.flush()

    @property
    def faults(self) -> Faults:
        """What rank 0 plays, for what the ranks have in common."""
        stream = self._ranks[0].stream
        return stream.line.faults if stream else NONE

    async def restart(self, how: Restart) -> None:
        """Another process takes over. Raises OSError if a port is taken meanwhile."""
        if how.reconnect:
            for publisher in self.publishers:
                await publisher.reconnect()
        if self._buffer is not None:
            self._buffer.clear()
        for rank in self._ranks:
            rank.restart(how.block_size, unheard=how.unheard)
        if not how.same_start:
            self.started = time.time()

    def stop(self) -> None:
        """Nothing happens any more."""
        for rank in self._ranks:
            rank.runner.stop()
