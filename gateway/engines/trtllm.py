"""What TensorRT-LLM tells of itself, and in which words. No I/O: `contact.py` asks.

/server_info has the block size that is in use. KV events are no stream: they wait to be
fetched with POST /kv_cache_events (`gateway/drain.py`), each by one consumer, so nothing
is said about where they are, nor how many attention data-parallel ranks there are.
/metrics is left alone: reading it takes away what it tells.
"""

from typing import Any

from gateway.engines.facts import (
    LARGEST_BLOCK,
    MISSING,
    EngineFacts,
    Pages,
    count,
    refused,
    string,
)

ROUTES = ("/version", "/server_info")

OWN_FIELDS = {"tokens_per_block", "kv_cache_hash_algo", "disaggregated_params"}
"""Fields of /server_info that only this engine has."""
NO_EVENTS = (
    "kv_cache_config.event_buffer_max_size is 0 (its default), "
    "or enable_block_reuse is off"
)
"""The likely cause where no events come."""


def read(pages: Pages, url: str) -> EngineFacts:
    """What the routes in `ROUTES` tell."""
    version = (pages["/version"] or MISSING).object()
    info = (pages["/server_info"] or MISSING).object()
    return EngineFacts(
        version=string(version, "version"),
        block_size=count(info, "tokens_per_block", LARGEST_BLOCK) or None,
        sources={},
        drained=True,
        trouble=refused("/server_info", pages["/server_info"]),
    )


def is_mine(info: dict[str, Any]) -> bool:
    """Whether a /server_info is this engine's."""
    return not OWN_FIELDS.isdisjoint(info)
