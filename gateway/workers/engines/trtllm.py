"""What TensorRT-LLM tells of itself, and in which words. No I/O: `contact.py` asks.

/server_info has the block size that is in use. KV events are no stream: they wait to be
fetched with POST /kv_cache_events (`gateway/events/drain.py`), once each, so nothing
is said about where they are, nor how many attention data-parallel ranks there are.
/metrics is left alone: reading it takes away what it tells. The load is on
/prometheus/metrics, that of all ranks as one.
"""

from typing import Any

import msgspec

from gateway.proof.probe_route import ProbeRoute
from gateway.workers.engines.facts import (
    LARGEST_BLOCK,
    MISSING,
    EngineFacts,
    Page,
    Pages,
    count,
    no_size,
    refused,
    share,
    string,
)
from gateway.workers.engines.prometheus import by_rank
from kvindex.events import EventBatch
from kvindex.wire import trtllm as wire
from router.load import Load

ROUTES = ("/version", "/server_info")
OLDER: dict[str, str] = {}

OWN_FIELDS = {"tokens_per_block", "kv_cache_hash_algo", "disaggregated_params"}
"""Fields of /server_info that only this engine has."""
DECODE = wire.decode_batch
"""The ZMQ stream of some releases has maps as vLLM's."""
CACHE = "kv_cache_config: {enable_block_reuse: true} in its --config FILE"
TELL_CACHED = "newer releases do"
TELL_LOAD = "return_perf_metrics: true in its --config FILE"
HEALTH_ROUTES = ("/health",)
LOAD_ROUTES = ("/prometheus/metrics",)
SEND_EVENTS = (
    "start it with --config FILE (before: --extra_llm_api_options FILE) that has "
    "kv_cache_config: {enable_block_reuse: true, event_buffer_max_size: 32768}"
)
NO_EVENTS = (
    "kv_cache_config.event_buffer_max_size is 0 (its default), "
    "or enable_block_reuse is off"
)
"""The likely cause where no events come."""


class EventDecoder(msgspec.Struct, frozen=True):
    """Decodes fetched events of a worker that hashes blocks by `algorithm`."""

    algorithm: str | None = None

    def __call__(self, payload: bytes) -> EventBatch:
        """One event; raises UndecodableBatch."""
        return wire.decode_event(payload, self.algorithm)


def read(pages: Pages, url: str) -> EngineFacts:
    """What the routes in `ROUTES` tell."""
    version = (pages["/version"] or MISSING).object()
    info = (pages["/server_info"] or MISSING).object()
    algorithm = string(info, "kv_cache_hash_algo")
    size = count(info, "tokens_per_block", LARGEST_BLOCK)
    odd = None if size else no_size("tokens_per_block", info.get("tokens_per_block"))
    return EngineFacts(
        version=string(version, "version"),
        block_size=size or None,
        sources={} if info else None,
        # Fetched events are gone: not before it is known how to read them.
        drained=EventDecoder(algorithm) if pages["/server_info"] else None,
        trouble=refused("/server_info", pages["/server_info"]) or odd,
    )


def is_mine(info: dict[str, Any]) -> bool:
    """Whether a /server_info is this engine's."""
    return not OWN_FIELDS.isdisjoint(info)


def load(page: Page) -> dict[int, Load]:
    """The load of the whole worker, as rank 0's."""
    text = page.text()

    def told(name: str) -> float | None:
        return by_rank(text, "rank", f"trtllm_{name}").get(0)

    running = told("num_requests_running")
    if running is None:
        return {}
    waiting, usage = told("num_requests_waiting"), told("kv_cache_utilization")
    report = Load(
        running=int(running), waiting=int(waiting or 0), kv_usage=share(usage)
    )
    return {0: report}


PUBLISHES_FINGERPRINT = True
TELLS_OF_RENDERING = True
PROBE_ROUTES = (ProbeRoute(path="/v1/chat/completions/render", ids=("token_ids",)),)
"""Only there with TRTLLM_ENABLE_RENDER_ENDPOINTS=1."""


def ids_refusal(version: str | None) -> str | None:
    """Why a release takes no token ids with a chat: each known one does."""
    return None
