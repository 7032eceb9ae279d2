"""What SGLang tells of itself, and in which words. No I/O: `contact.py` asks.

/server_info (before 0.5: /get_server_info) has it all: `kv_events` describes where each
data-parallel rank publishes, at consecutive ports; null where none does.
"""

from typing import Any

import msgspec

from gateway.proof.probe_route import ProbeRoute, one_token, without
from gateway.workers.engines.facts import (
    LARGEST_BLOCK,
    LARGEST_TOTAL,
    MISSING,
    RANKS,
    EngineFacts,
    EventSource,
    Page,
    Pages,
    connectable,
    count,
    no_size,
    refused,
    share,
    stamp,
    string,
    whole,
)
from gateway.workers.engines.prometheus import by_rank
from kvindex.wire import sglang as wire
from router.load import Load, Prefills

ROUTES = ("/server_info",)
OLDER = {"/server_info": "/get_server_info"}

OWN_FIELDS = {"page_size", "kv_events", "internal_states", "max_total_num_tokens"}
"""Fields of /server_info that only this engine has."""
DECODE = wire.decode_batch
CACHE = "start it without --disable-radix-cache"
TELL_CACHED = "start it with --enable-cache-report"
TELL_LOAD = "newer releases do, older ones with --enable-metrics"
HEALTH_ROUTES = ("/ready", "/health")
"""/health generates a token: it waits behind the prefills that are queued."""
LOAD_ROUTES = ("/v1/loads?include=core", "/metrics")
SEND_EVENTS = (
    """start it with --kv-events-config '{"publisher": "zmq", """
    """"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:6557"}'"""
)
NO_EVENTS = "--kv-events-config has no publisher, or its endpoint connects: bind: true"
"""The likely cause where no events come."""
LAST_PORT = 65_535


class Descriptor(msgspec.Struct, frozen=True, kw_only=True):
    """`kv_events` of /server_info; rank r is at each port plus r."""

    publisher: str = "zmq"
    endpoint_host: str = "*"
    endpoint_port_base: int = 0
    replay_endpoint_port_base: int | None = None
    topic: Any = None
    dp_size: int = 1

    def endpoint(self, base: int, rank: int, url: str) -> str:
        """One rank's endpoint, as it can be connected to."""
        return connectable(f"tcp://{self.endpoint_host}:{base + rank}", url)

    def sources(self, url: str) -> dict[int, EventSource]:
        """By rank; none where no port is told."""
        ranks = range(min(self.dp_size, RANKS))
        base, replay = self.endpoint_port_base, self.replay_endpoint_port_base or 0
        if self.publisher != "zmq" or not _are_ports(base, ranks):
            return {}
        replays = _are_ports(replay, ranks)
        return {
            rank: EventSource(
                endpoint=self.endpoint(base, rank, url),
                replay=self.endpoint(replay, rank, url) if replays else None,
                topic=self.topic if isinstance(self.topic, str) else None,
            )
            for rank in ranks
        }


def _are_ports(base: int, ranks: range) -> bool:
    """Whether each rank has a port, counted up from that of rank 0."""
    return 0 < base <= LAST_PORT + 1 - len(ranks)


def read(pages: Pages, url: str) -> EngineFacts:
    """What the routes in `ROUTES` tell."""
    page = pages["/server_info"]
    info = (page or MISSING).object()
    size = _block_size(info)
    odd = None if size else no_size("page_size", info.get("page_size"))
    tokens = count(info, "max_total_num_tokens") or _tokens_of_a_rank(info)
    return EngineFacts(
        version=string(info, "version"),
        block_size=size or None,
        cache_blocks=tokens // size or None if size else None,
        started_at=stamp(info, "startup_time"),
        ranks=tuple(range(count(info, "dp_size", RANKS))),
        sources=_sources(info, url) if info else None,
        trouble=refused("/server_info", page) or odd,
    )


def is_mine(info: dict[str, Any]) -> bool:
    """Whether a /server_info is this engine's."""
    return not OWN_FIELDS.isdisjoint(info)


def _block_size(info: dict[str, Any]) -> int:
    """Tokens per block of the events: a page, on all context-parallel ranks."""
    told = info.get("kv_events")
    size = count(told, "block_size", LARGEST_BLOCK) if isinstance(told, dict) else 0
    pages = count(info, "page_size", LARGEST_BLOCK) * (count(info, "dcp_size") or 1)
    return size or (pages if pages <= LARGEST_BLOCK else 0)


def _tokens_of_a_rank(info: dict[str, Any]) -> int:
    states = info.get("internal_states")
    first = states[0] if isinstance(states, list) and states else None
    return count(first, "max_total_num_tokens") if isinstance(first, dict) else 0


def _sources(info: dict[str, Any], url: str) -> dict[int, EventSource]:
    try:
        descriptor = msgspec.convert(info.get("kv_events"), Descriptor)
    except msgspec.ValidationError:  # null, or of a shape that says nothing
        return {}
    return descriptor.sources(url)


def load(page: Page) -> dict[int, Load]:
    """The load of each rank by /v1/loads, or by the Prometheus page."""
    entries = page.object().get("loads")
    if not isinstance(entries, list):
        return _load_of_metrics(page.text())
    ranks = [entry for entry in entries[:RANKS] if isinstance(entry, dict)]
    found = ((whole(entry.get("dp_rank") or 0, RANKS - 1), entry) for entry in ranks)
    return {rank: _load(entry) for rank, entry in found if rank is not None}


def _load(entry: dict[str, Any]) -> Load:
    took_us = whole(entry.get("total_prefill_busy_us"), LARGEST_TOTAL)
    prefilled = whole(entry.get("total_prefill_uncached_tokens"), LARGEST_TOTAL)
    return Load(
        running=whole(entry.get("num_running_reqs")) or 0,
        waiting=whole(entry.get("num_waiting_reqs")) or 0,
        kv_usage=share(entry.get("token_usage")),
        waiting_tokens=whole(entry.get("num_waiting_uncached_tokens")),
        prefills=Prefills(prefilled or 0, took_us / 1e6) if took_us else None,
    )


def _load_of_metrics(text: str) -> dict[int, Load]:
    def told(name: str) -> dict[int, float]:
        return by_rank(text, "dp_rank", f"sglang:{name}")

    waiting, usage = told("num_queue_reqs"), told("token_usage")
    return {
        rank: Load(
            running=int(number),
            waiting=int(waiting.get(rank, 0)),
            kv_usage=share(usage.get(rank)),
        )
        for rank, number in told("num_running_reqs").items()
    }


PUBLISHES_FINGERPRINT = False
TELLS_OF_RENDERING = True
"""/server_info names its reasoning parser."""
NOT_OF_CHATS = frozenset({"add_generation_prompt", "add_special_tokens"})
"""Fields that SGLang's chats do not have; /tokenize would heed them."""
PROBE_ROUTES = (
    ProbeRoute(path="/tokenize", ids=("tokens",), express=without(NOT_OF_CHATS)),
    ProbeRoute(
        path="/v1/chat/completions",
        ids=("choices", "prompt_token_ids"),
        express=one_token(return_prompt_token_ids=True),
        generates=True,
    ),
)


def ids_refusal(version: str | None) -> str | None:
    """Why a release takes no token ids with a chat: each known one does."""
    return None
