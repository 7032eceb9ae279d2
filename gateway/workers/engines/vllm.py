"""What vLLM tells of itself, and in which words. No I/O: `contact.py` asks.

/metrics has `vllm:cache_config_info` and the process's start, /kv_event_sources (0.31
and later) where each data-parallel rank publishes its KV events. It does not tell
whether a publisher bound that endpoint or connects to it.
"""

import contextlib
import re
from typing import Any

import msgspec

from gateway.proof.probe_route import CLOSED, ProbeRoute, one_token, only
from gateway.workers.engines.facts import (
    LARGEST_BLOCK,
    LARGEST_COUNT,
    LARGEST_TOTAL,
    MISSING,
    RANKS,
    EngineFacts,
    EventSource,
    Page,
    Pages,
    connectable,
    no_size,
    refused,
    share,
    string,
)
from gateway.workers.engines.prometheus import by_rank
from kvindex.wire import vllm as wire
from router.load import Load, Prefills

ROUTES = ("/version", "/metrics", "/kv_event_sources")
OLDER: dict[str, str] = {}

DECODE = wire.decode_batch
CACHE = "start it without --no-enable-prefix-caching"
TELL_CACHED = "start it with --enable-prompt-tokens-details"
TELL_LOAD = "start it without --disable-log-stats"
HEALTH_ROUTES = ("/health",)
LOAD_ROUTES = ("/metrics",)
SEND_EVENTS = (
    """start it with --kv-events-config '{"enable_kv_cache_events": true, """
    """"publisher": "zmq", "endpoint": "tcp://*:5557", """
    """"replay_endpoint": "tcp://*:6557"}'; before vLLM 0.31 also """
    "--kv-events URL=tcp://HOST:5557 --kv-replay URL=tcp://HOST:6557 here"
)
NO_EVENTS = (
    "--kv-events-config has no enable_kv_cache_events, its endpoint is without a * and "
    "so connects instead of binding, or the port is another"
)
"""The likely cause where no events come."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One data-parallel rank of /kv_event_sources."""

    enable_kv_cache_events: bool = False
    endpoint: str | None = None
    replay_endpoint: str | None = None
    topic: Any = None


def read(pages: Pages, url: str) -> EngineFacts:
    """What the routes in `ROUTES` tell."""
    version = (pages["/version"] or MISSING).object()
    page = (pages["/metrics"] or MISSING).text()
    numbers, listing = cache_numbers(page), pages["/kv_event_sources"]
    entries = listing.object() if listing else {}
    shut = refused("/kv_event_sources", listing)
    closed = shut or refused("/metrics", pages["/metrics"])
    odd = None if "block_size" in numbers else no_size("block_size", _size(page))
    return EngineFacts(
        version=string(version, "version"),
        block_size=numbers.get("block_size"),
        cache_blocks=numbers.get("num_gpu_blocks"),
        started_at=numbers.get("started_at"),
        ranks=_ranks(entries) or metric_ranks(page),
        sources=None if listing is None or shut else event_sources(entries, url),
        trouble=closed or odd,
    )


def is_mine(entries: dict[str, Any]) -> bool:
    """Whether a /kv_event_sources is this engine's."""
    ranks = {name: entry for name, entry in entries.items() if isinstance(entry, dict)}
    return bool(_ranks(ranks))


def cache_numbers(page: str) -> dict[str, Any]:
    """block_size, num_gpu_blocks and started_at of vLLM's Prometheus page."""
    numbers: dict[str, Any] = {}
    info = re.search(r"^vllm:cache_config_info\{(.*)\}", page, re.MULTILINE)
    if info:
        labels = dict(re.findall(r'(\w+)="([^"]*)"', info[1]))
        for name, limit in (
            ("block_size", LARGEST_BLOCK),
            ("num_gpu_blocks", LARGEST_COUNT),
        ):
            count = _whole(labels.get(name, ""), limit)
            if count:
                numbers[name] = count
    start = re.search(r"^process_start_time_seconds ([0-9.e+]+)$", page, re.MULTILINE)
    if start:
        with contextlib.suppress(ValueError):  # such as 1.2.3: a time not told
            numbers["started_at"] = float(start[1])
    return numbers


def _size(page: str) -> str | None:
    """The block size as the page has it, if that is a number."""
    told = re.search(r'^vllm:cache_config_info\{.*\bblock_size="([0-9]+)"', page, re.M)
    return told[1] if told else None


def metric_ranks(page: str) -> tuple[int, ...]:
    """The data-parallel ranks, by the `engine` label of the running requests."""
    lines = re.findall(r"^vllm:num_requests_running\{(.*)\}", page, re.MULTILINE)
    names = [re.search(r'\bengine="([^"]*)"', line) for line in lines]
    ranks = {_whole(name[1], RANKS - 1) for name in names if name}
    return tuple(sorted(rank for rank in ranks if rank is not None))


def _whole(text: str, limit: int) -> int | None:
    """A number of blocks, tokens or a rank."""
    if not re.fullmatch(r"[0-9]{1,15}", text) or int(text) > limit:
        return None
    return int(text)


def _ranks(entries: dict[str, Any]) -> tuple[int, ...]:
    ranks = (_whole(name, RANKS - 1) for name in entries)
    return tuple(sorted(rank for rank in ranks if rank is not None))


def event_sources(entries: dict[str, Any], url: str) -> dict[int, EventSource]:
    """Rank to source, of what /kv_event_sources answers; odd entries are left out."""
    sources = {}
    for name, entry in entries.items():
        try:
            told = msgspec.convert(entry, Entry)
        except msgspec.ValidationError:
            continue
        rank = _whole(name, RANKS - 1)
        if rank is None or not told.enable_kv_cache_events or not told.endpoint:
            continue
        replay = told.replay_endpoint
        sources[rank] = EventSource(
            endpoint=connectable(told.endpoint, url),
            replay=connectable(replay, url) if replay else None,
            topic=told.topic if isinstance(told.topic, str) else None,
        )
    return sources


def load(page: Page) -> dict[int, Load]:
    """The load of each rank by /metrics; prefills are those of finished requests."""
    text = page.text()

    def told(*names: str, limit: int = LARGEST_COUNT) -> dict[int, float]:
        metrics = (f"vllm:{name}" for name in names)
        return by_rank(text, "engine", *metrics, limit=limit)

    def total(name: str) -> dict[int, float]:
        return told(f"request_prefill_{name}", limit=LARGEST_TOTAL)

    running, waiting = told("num_requests_running"), told("num_requests_waiting")
    usage = told("kv_cache_usage_perc", "gpu_cache_usage_perc")
    count = total("time_seconds_count")
    seconds = total("time_seconds_sum")
    tokens = total("kv_computed_tokens_sum")
    prefills = {
        rank: Prefills(tokens[rank], seconds[rank], count[rank])
        for rank in tokens.keys() & seconds.keys() & count.keys()
    }
    return {
        rank: Load(
            running=int(number),
            waiting=int(waiting.get(rank, 0)),
            kv_usage=share(usage.get(rank)),
            prefills=prefills.get(rank),
        )
        for rank, number in running.items()
    }


PUBLISHES_FINGERPRINT = False
TELLS_OF_RENDERING = False
"""/server_info is there in the development mode only, and examines the whole system."""
FIRST_WITH_IDS = (0, 27, 1)
TOKENIZED = frozenset(
    {
        "messages", "tools", "chat_template_kwargs", "add_generation_prompt",
        "continue_final_message", "add_special_tokens",
    }
)  # fmt: skip
"""The fields of a chat that /tokenize reads; it ignores all others."""
PROBE_ROUTES = (
    ProbeRoute(
        path="/v1/chat/completions/render",
        ids=("token_ids",),
        closed=CLOSED | {403},  # what it answers without --enable-scale-out
    ),
    ProbeRoute(path="/tokenize", ids=("tokens",), express=only(TOKENIZED)),
    ProbeRoute(
        path="/v1/chat/completions",
        ids=("prompt_token_ids",),
        express=one_token(return_token_ids=True),
        generates=True,
    ),
)


def ids_refusal(version: str | None) -> str | None:
    """Why a release takes no token ids with a chat, if so."""
    numbers = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version or "")
    if numbers is None:
        return "its version is not known"
    if tuple(int(n or 0) for n in numbers.groups()) < FIRST_WITH_IDS:
        wanted = ".".join(map(str, FIRST_WITH_IDS))
        return f"vLLM {version} takes no ids with a chat; {wanted} does"
    return None
