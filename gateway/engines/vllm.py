"""What vLLM tells of itself, and in which words. No I/O: `contact.py` asks.

/metrics has `vllm:cache_config_info` and the process's start, /kv_event_sources (0.31
and later) where each data-parallel rank publishes its KV events.
"""

import contextlib
import re
from typing import Any
from urllib.parse import urlsplit

import msgspec

LARGEST_COUNT = 1 << 40
"""A block size or a number of blocks above this is none."""


class EventSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where one data-parallel rank publishes, as /kv_event_sources tells."""

    enable_kv_cache_events: bool = False
    endpoint: str | None = None


def cache_numbers(page: str) -> dict[str, Any]:
    """block_size, num_gpu_blocks and started_at of vLLM's Prometheus page."""
    numbers: dict[str, Any] = {}
    info = re.search(r"^vllm:cache_config_info\{(.*)\}", page, re.MULTILINE)
    if info:
        labels = dict(re.findall(r'(\w+)="([^"]*)"', info[1]))
        for name in ("block_size", "num_gpu_blocks"):
            count = _whole(labels.get(name, ""))
            if count:
                numbers[name] = count
    start = re.search(r"^process_start_time_seconds ([0-9.e+]+)$", page, re.MULTILINE)
    if start:
        with contextlib.suppress(ValueError):  # such as 1.2.3: a time not told
            numbers["started_at"] = float(start[1])
    return numbers


def _whole(text: str) -> int | None:
    """A number of blocks, tokens or a rank."""
    if not re.fullmatch(r"[0-9]{1,15}", text) or int(text) > LARGEST_COUNT:
        return None
    return int(text)


def event_endpoints(sources: dict[str, Any], url: str) -> dict[int, str]:
    """Rank to endpoint, of what /kv_event_sources answers; odd entries are left out."""
    endpoints = {}
    for name, entry in sources.items():
        try:
            source = msgspec.convert(entry, EventSource)
        except msgspec.ValidationError:
            continue
        rank = _whole(name)
        if rank is not None and source.enable_kv_cache_events and source.endpoint:
            endpoints[rank] = connectable(source.endpoint, url)
    return endpoints


def connectable(endpoint: str, worker_url: str) -> str:
    """A published endpoint as a SUB can connect to it: wildcards are the worker."""
    host = urlsplit(worker_url).hostname or ""
    host = f"[{host}]" if ":" in host else host
    return re.sub(r"^tcp://(\*|0\.0\.0\.0|\[::\])(?=:)", f"tcp://{host}", endpoint)
