"""Which event sources a worker has: as declared, else as it told. No I/O."""

import re
from collections.abc import Callable, Collection, Mapping
from urllib.parse import urlsplit

import msgspec

from gateway.workers.contact import ENGINES, GENERIC, WorkerFacts
from gateway.workers.engines import vllm
from gateway.workers.engines.facts import EventSource
from kvindex.events import EventBatch
from kvindex.wire import trtllm
from router.worker import WorkerSpec

LAST_PORT = 65_535
CONSUMER = 0
"""Of several processes of one gateway the one that takes what only one may."""
FETCHED = f"process {CONSUMER} alone fetches them, as each event is handed out once"
HEARD = f"process {CONSUMER} alone hears them, as they come to --kv-events-bind"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Bind(msgspec.Struct, frozen=True):
    """Where this gateway listens for publishers that connect.

    Not `mine`: it is another process of it that does, and takes what only one may.
    """

    endpoint: str | None
    topics: Collection[str]
    """The workers that are known to publish there."""
    mine: bool = True

    def hears(self, url: str, told: Mapping[int, EventSource]) -> bool:
        """Whether a worker publishes there: by its topic, or by what it told."""
        known = self.endpoint is not None and url in self.topics
        return known or bool(self.by_port(url, told))

    def by_port(
        self, url: str, told: Mapping[int, EventSource]
    ) -> dict[int, EventSource]:
        """Ports to which it told that its ranks connect: they count up from ours.

        Its own port may have such a number, too, but not on a machine it shares.
        """
        first = _port(self.endpoint or "")
        away = {_host(url)} - LOOPBACK
        return {
            first + rank: source
            for rank, source in told.items()
            if first and _port(source.endpoint) == first + rank
            if _host(source.endpoint) not in away
        }


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Where the events of a worker's ranks come from."""

    ranks: tuple[int, ...]
    """Its ranks, with events or without; at least one."""
    by_rank: Mapping[int, EventSource]
    """The publishers to connect to."""
    drained: bool = False
    """They are fetched, for all ranks at once."""
    listened: bool = False
    """They come to the gateway's own socket, under the worker's topic."""
    ports: Collection[int] = ()
    """The ports to which ranks then connect, as far as the worker told."""
    topics: frozenset[str] = frozenset()
    """The topics of these ranks, as far as the worker told."""
    untold: str = ""
    """Why the worker could not tell of any, if so."""
    elsewhere: str = ""
    """They go to another process of this gateway, as only one may take them: how."""
    replays: Mapping[int, str] = {}
    """Where ranks that come there replay; those of publishers are in `by_rank`."""
    decode: Callable[[bytes], EventBatch] = vllm.DECODE

    def named(self, rank: int) -> str | None:
        """Where a rank's events come from, for the operator."""
        if self.drained:
            return "POST /kv_cache_events"
        if self.listened:
            return "--kv-events-bind"
        source = self.by_rank.get(rank)
        return source.endpoint if source else None

    @property
    def missed_reason(self) -> str:
        """What a hole in the numbers of events means."""
        return trtllm.MISSED if self.drained else "missed batches"

    def has(self, rank: int) -> bool:
        """Whether events of a rank come from anywhere."""
        return self.drained or self.listened or rank in self.by_rank


def sources_of(
    spec: WorkerSpec,
    facts: WorkerFacts | None,
    *,
    seen: Collection[int] = (),
    listened: bool = False,
    bind: Bind | None = None,
) -> Sources:
    """The sources of a worker; `seen` are ranks that its events named.

    They are its ranks only where it does not tell these. `listened`: its topic is one
    of the gateway's own socket, `bind`; so it is where the worker tells that it
    publishes there. What the operator declared wins over all, that socket over what
    else the worker tells.
    """
    engine = ENGINES.get((facts and facts.engine) or GENERIC, vllm)
    told, ranks = (facts.sources or {}, facts.ranks) if facts else ({}, ())
    if spec.kv_events:
        return _declared(spec, ranks, engine.DECODE)
    replays = by_rank(spec.replay, ranks or tuple(told))
    mine = bind is None or bind.mine
    hears = bind is not None and bind.hears(spec.url, told)
    if hears and not mine:
        return Sources(ranks=_ranks(ranks, told), by_rank={}, elsewhere=HEARD)
    if listened or hears:
        there = bind.by_port(spec.url, told) if bind is not None else {}
        known = {rank: source.replay for rank, source in told.items() if source.replay}
        return Sources(
            ranks=_ranks(ranks or seen),
            by_rank={},
            listened=True,
            ports=frozenset(there),
            topics=frozenset(s.topic for s in there.values() if s.topic is not None),
            replays=known | replays,
            decode=engine.DECODE,
        )
    if facts is not None and facts.drained is not None:
        return Sources(
            ranks=_ranks(ranks or seen),
            by_rank={},
            drained=mine,
            elsewhere="" if mine else FETCHED,
            decode=facts.drained,
        )
    sources = {
        rank: msgspec.structs.replace(source, replay=replays.get(rank, source.replay))
        for rank, source in told.items()
    }
    return Sources(
        ranks=_ranks(ranks, told),
        by_rank=sources,
        untold=_untold(facts),
        decode=engine.DECODE,
    )


def _untold(facts: WorkerFacts | None) -> str:
    if facts is None or facts.sources is not None:
        return ""
    return facts.trouble or ""


def _declared(
    spec: WorkerSpec, ranks: tuple[int, ...], decode: Callable[[bytes], EventBatch]
) -> Sources:
    endpoints, replays = by_rank(spec.kv_events, ranks), by_rank(spec.replay, ranks)
    every = set(ranks) if set(endpoints) <= set(ranks) else set(endpoints)
    return Sources(
        ranks=tuple(sorted(every)),
        by_rank={
            rank: EventSource(endpoint=endpoint, replay=replays.get(rank))
            for rank, endpoint in endpoints.items()
        },
        decode=decode,
    )


def by_rank(declared: Mapping[int, str], ranks: tuple[int, ...]) -> dict[int, str]:
    """Endpoints of all ranks: engines publish rank r at the port of rank 0 plus r.

    Only where nothing but rank 0 is declared, of a worker with several.
    """
    match = re.fullmatch(r"(tcp://.+:)(\d{1,5})", declared.get(0, ""))
    if set(declared) != {0} or match is None or len(ranks) < 2:
        return dict(declared)
    base = int(match[2])
    return {r: f"{match[1]}{base + r}" for r in ranks if base + r <= LAST_PORT}


def _port(endpoint: str) -> int:
    """The port of a TCP endpoint, 0 where it has none."""
    found = re.fullmatch(r"tcp://.+:([0-9]{1,5})", endpoint)
    return int(found[1]) if found else 0


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _ranks(*told: Collection[int]) -> tuple[int, ...]:
    return tuple(sorted(set().union(*told))) or (0,)
