"""What is known of each rank of each worker: opened, sized, started anew, forgotten.

Which ranks there are is told by `sources.py`, and where the worker does not tell it by
events that name one. Requests are sent to a rank by its number only where all ranks of
a worker were told: a request to one that is none fails. How events arrive is not known
here.
"""

import logging
import time
from collections.abc import Callable, Sequence, Set
from functools import partial

import msgspec

from gateway.events.slices import BLOCKS
from gateway.events.sources import Bind, Sources, sources_of
from gateway.workers.contact import WorkerFacts
from gateway.workers.engines.facts import RANKS
from kvindex.counters import count
from kvindex.events import EventBatch
from kvindex.feed import Feed, FeedSettings
from kvindex.index import Indexes
from kvindex.intake import CACHE_BLOCKS
from kvindex.knowledge import Knowledge
from kvindex.pages import indexed_size
from router.worker import DEFAULT_BLOCK_SIZE, Worker

log = logging.getLogger(__name__)

STRAY = "rank"
"""Why events are left out that name a rank which their worker does not have."""
SEEN_RANKS = 128
"""Of ranks that events alone name so many are opened for a worker. An engine tells more
of them itself; what does not has a rank for each GPU of one machine or rack."""
SHOWN = 8
"""Of a worker's ranks so many are named."""
DEFAULT_CACHE_BLOCKS = 8192
"""History of a worker that does not tell the size of its cache."""


class _Opened(msgspec.Struct, frozen=True):
    """For what a Knowledge was opened; for anything else another is."""

    model: str
    has_source: bool
    decode: Callable[[bytes], EventBatch]
    missed_reason: str


class _Start(msgspec.Struct, frozen=True):
    """A worker's process: its start, and the restarts its feeds had noticed by then."""

    at: float | str
    restarts: dict[Feed, int]


class Owners:
    """Opens and closes the Knowledge of every (worker, rank)."""

    def __init__(
        self, indexes: Indexes, settings: FeedSettings, bind: Bind | None = None
    ) -> None:
        """`bind` is where publishers connect to, if they may."""
        self._bind = bind
        self._indexes = indexes
        self._settings = settings
        self._starts: dict[str, _Start] = {}
        self._opened: dict[tuple[str, int], _Opened] = {}
        self._facts: dict[str, WorkerFacts] = {}
        self._seen: dict[str, set[int]] = {}
        self._strays: set[str] = set()
        """Workers whose further ranks were warned of."""
        self._listened: set[str] = set()
        self._elsewhere: dict[str, str] = {}

    def sources(self, worker: Worker) -> Sources:
        """Where a worker's events come from, as far as is known now."""
        url = worker.url
        return sources_of(
            worker.spec,
            self._facts.get(url),
            seen=self._seen.get(url, ()),
            listened=url in self._listened,
            bind=self._bind,
        )

    def learn(self, worker: Worker, facts: WorkerFacts) -> None:
        """What the worker said of itself changes which owners it has."""
        before = self._facts.get(worker.url)
        self._facts[worker.url] = facts
        if facts.started_at is not None:
            self._note_start(worker, facts.started_at)
        told_before = before.block_size if before is not None else None
        changed = facts.block_size not in (None, told_before)
        self._settle(worker, facts.block_size, size_changed=changed)

    def listen(self, worker: Worker) -> None:
        """Its events come to the gateway's own socket, under a topic of its own."""
        if worker.url not in self._listened:
            self._listened.add(worker.url)
            self._settle_known(worker)

    def feed(self, worker: Worker, rank: int) -> Feed | None:
        """The feed of a rank that events named; None where that is none."""
        facts = self._facts.get(worker.url)
        if facts is None:
            return None
        if not 0 <= rank < RANKS or (facts.ranks and rank not in worker.ranks):
            self._stray(worker, rank, f"which it does not have ({_some(worker.ranks)})")
            return None
        seen = self._seen.setdefault(worker.url, set())
        if rank not in seen and rank not in worker.knowledge:
            if len(seen) >= SEEN_RANKS:
                self._stray(worker, rank, f"beyond the {SEEN_RANKS} that events named")
                return None
            seen.add(rank)
            self._settle_known(worker, unchanged=frozenset(worker.knowledge))
        seen.add(rank)
        known = worker.knowledge.get(rank)
        return known.feed if known is not None else None

    def _stray(self, worker: Worker, rank: int, why: str) -> None:
        """An event names a rank that is not known: whose it is is unknown.

        It is counted where it can be seen, at the first rank.
        """
        count(worker.knowledge[worker.ranks[0]].feed.counters.rejected, STRAY)
        if worker.url not in self._strays:
            self._strays.add(worker.url)
            text = "worker %s: KV events of rank %d, %s; such events are left out"
            log.warning(text, worker.url, rank, why)

    def began_anew(self, worker: Worker, rank: int) -> None:
        """Events of a rank told that its worker is another process now.

        Which other ranks that has, events will tell: those named before are forgotten.
        """
        if self._seen.get(worker.url, set()) - {rank}:
            self._seen[worker.url] = {rank}
            self._settle_known(worker)

    def forget(self, worker: Worker) -> None:
        """The worker is gone, and what is known of its cache with it."""
        url = worker.url
        for rank in list(worker.knowledge):
            self._opened.pop((url, rank), None)
            worker.knowledge.pop(rank).feed.retire()
        for known in (self._starts, self._facts, self._seen, self._elsewhere):
            known.pop(url, None)
        self._listened.discard(url)
        self._strays.discard(url)

    def _settle_known(self, worker: Worker, unchanged: Set[int] = frozenset()) -> None:
        facts = self._facts.get(worker.url)
        if facts is not None:
            size = facts.block_size
            self._settle(worker, size, size_changed=False, unchanged=unchanged)

    def _settle(
        self,
        worker: Worker,
        block_size: int | None,
        *,
        size_changed: bool,
        unchanged: Set[int] = frozenset(),
    ) -> None:
        """Open what is to be known of each rank, forget ranks that are gone.

        Those `unchanged` are as they should be.
        """
        sources = self.sources(worker)
        if sources.elsewhere != self._elsewhere.get(worker.url, ""):
            self._elsewhere[worker.url] = sources.elsewhere
            log.info("worker %s: of its KV events %s", worker.url, sources.elsewhere)
        for rank in sources.ranks:
            if rank in unchanged:
                continue
            opened = _Opened(
                model=worker.base_model or "",
                has_source=sources.has(rank),
                decode=sources.decode,
                missed_reason=sources.missed_reason,
            )
            if self._opened.get((worker.url, rank)) != opened:
                self._open(worker, rank, opened, block_size)
            elif size_changed and block_size is not None:
                worker.knowledge[rank].feed.use_block_size(block_size)
            worker.knowledge[rank].feed.unsourced(sources.untold)
        _size_histories(worker, block_size)
        worker.ranks = sources.ranks
        worker.can_pin_ranks = worker.can_pin_ranks and self._told(worker)
        for rank in set(worker.knowledge).difference(sources.ranks):
            del self._opened[worker.url, rank]
            worker.knowledge.pop(rank).feed.retire()

    def _told(self, worker: Worker) -> bool:
        """Whether all ranks of a worker were told, by itself or else the operator."""
        facts = self._facts.get(worker.url)
        told = (facts.ranks or facts.sources) if facts is not None else ()
        return {*worker.ranks} <= {*(told or worker.spec.kv_events or (0,))}

    def _open(
        self, worker: Worker, rank: int, opened: _Opened, block_size: int | None
    ) -> None:
        known = worker.knowledge.get(rank)
        if known is not None:
            known.feed.retire()
        self._opened[worker.url, rank] = opened
        default = None if opened.has_source else DEFAULT_BLOCK_SIZE
        worker.knowledge[rank] = Knowledge.open(
            model=opened.model,
            indexes=self._indexes,
            key=f"{worker.url} rank {rank}",
            clock=time.monotonic,
            capacity_blocks=DEFAULT_CACHE_BLOCKS,
            settings=self._settings,
            block_size=block_size or default,
            has_source=opened.has_source,
            decode=opened.decode,
            missed_reason=opened.missed_reason,
            on_change=partial(self._learn_cache_size, worker),
        )
        worker.knowledge[rank].feed.sliced = opened.has_source

    def _learn_cache_size(self, worker: Worker, feed: Feed) -> None:
        """Some workers tell the size of their cache by events only."""
        if feed.cache_blocks not in (None, worker.cache_blocks):
            worker.cache_blocks = feed.cache_blocks
            facts = self._facts.get(worker.url)
            _size_histories(worker, facts.block_size if facts else None)

    def _note_start(self, worker: Worker, started_at: float | str) -> None:
        """Tell the feeds of a new process, but those that noticed it themselves."""
        feeds = [known.feed for known in worker.knowledge.values()]
        before = self._starts.get(worker.url)
        if before is not None and started_at != before.at:
            for feed in feeds:  # one opened since then had noticed none
                if feed.counters.restarts == before.restarts.get(feed, 0):
                    feed.restarted("the worker's process started anew")
                    feed.work(BLOCKS)
        restarts = {feed: feed.counters.restarts for feed in feeds}
        self._starts[worker.url] = _Start(started_at, restarts)


def _some(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:SHOWN])) + ", ..." * (len(ranks) > SHOWN)


def _size_histories(worker: Worker, block_size: int | None) -> None:
    told = _indexed_blocks(worker.cache_blocks, block_size)
    capacity = min(told, CACHE_BLOCKS)
    for known in worker.knowledge.values():
        known.history.capacity_blocks = capacity


def _indexed_blocks(cache_blocks: int | None, block_size: int | None) -> int:
    """How many blocks of the index a worker's cache holds; small pages make fewer."""
    if cache_blocks is None:
        return DEFAULT_CACHE_BLOCKS
    if block_size is None:
        return cache_blocks
    return max(1, cache_blocks * block_size // indexed_size(block_size))
