"""Asking a worker who it is: models, engine, version, block size, event sources.

One engine's routes and formats are named here once; the answer is neutral
(`WorkerFacts`). vLLM: /v1/models, /version, /metrics (cache_config_info), and
/kv_event_sources (0.31 and later).
"""

import contextlib
import os
import re
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from router.models import ListedModel
from router.worker import WorkerSpec

ANSWER_LIMIT = 8 * 1024 * 1024
LARGEST_COUNT = 1 << 40
"""A block size or a number of blocks above this is none."""
TIMEOUT = aiohttp.ClientTimeout(total=10, connect=3)


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ContactFailed(Exception):
    """The worker did not say who it is; the text names what failed."""


class _ModelList(msgspec.Struct, frozen=True):
    data: list[dict[str, Any]]


class EventSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where one data-parallel rank publishes, as /kv_event_sources tells."""

    enable_kv_cache_events: bool = False
    endpoint: str | None = None


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker told about itself; None where it did not."""

    models: tuple[ListedModel, ...]
    listing: tuple[dict[str, Any], ...]
    """The entries of /v1/models as the worker wrote them."""
    engine: str
    version: str | None = None
    block_size: int | None = None
    cache_blocks: int | None = None
    started_at: float | None = None
    """The worker's process start, seconds since the epoch."""
    event_endpoints: dict[int, str] | None = None
    """Rank to endpoint a SUB can connect to; None where it could not be asked."""


async def ask(
    session: aiohttp.ClientSession, spec: WorkerSpec, api_key: str | None
) -> WorkerFacts:
    """Who the worker is; raises ContactFailed where /v1/models has no answer."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    listing = await _models(session, spec.url, headers)
    models = tuple(_listed(entry) for entry in listing)
    version = await _optional(session, spec.url + "/version", headers)
    page = await _page(session, spec.url + "/metrics", headers)
    numbers = cache_numbers((page or b"").decode("utf-8", "replace"))
    sources = await _optional(session, spec.url + "/kv_event_sources", headers)
    engine = spec.engine or next((e.get("owned_by") for e in listing), None)
    return WorkerFacts(
        models=models,
        listing=tuple(listing),
        engine=engine if engine in ("vllm", "sglang", "trtllm") else "generic",
        version=_string(version or {}, "version"),
        block_size=numbers.get("block_size"),
        cache_blocks=numbers.get("num_gpu_blocks"),
        started_at=numbers.get("started_at"),
        event_endpoints=None if sources is None else _endpoints(sources, spec.url),
    )


async def _get(
    session: aiohttp.ClientSession, url: str, headers: dict[str, str]
) -> tuple[int, bytes]:
    async with session.get(url, headers=headers, timeout=TIMEOUT) as response:
        body = await response.content.read(ANSWER_LIMIT)
        while body and not response.content.at_eof():
            more = await response.content.read(ANSWER_LIMIT)
            if len(body) + len(more) > ANSWER_LIMIT:
                raise ContactFailed(f"{url} answers more than {ANSWER_LIMIT} bytes")
            body += more
        return response.status, body


async def _models(
    session: aiohttp.ClientSession, url: str, headers: dict[str, str]
) -> list[dict[str, Any]]:
    try:
        status, body = await _get(session, url + "/v1/models", headers)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise ContactFailed(_reason(error)) from None
    if status != 200:
        raise ContactFailed(f"/v1/models answers {status}")
    try:
        return msgspec.json.decode(body, type=_ModelList).data
    except _UNREADABLE:
        raise ContactFailed("/v1/models answers no list of models") from None


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        number, said = error.os_error.errno, error.os_error.strerror
        if number is not None and number > 0:  # name resolution has its own numbers
            said = os.strerror(number)
        return f"cannot connect: {said}"
    return f"{type(error).__name__}: {error}"


def _listed(entry: dict[str, Any]) -> ListedModel:
    root, parent = _string(entry, "root"), _string(entry, "parent")
    return ListedModel(id=_string(entry, "id") or "", root=root, parent=parent)


async def _page(
    session: aiohttp.ClientSession, url: str, headers: dict[str, str]
) -> bytes | None:
    """What a route answers: b"" where the worker has none such, None if it failed."""
    try:
        status, body = await _get(session, url, headers)
    except (aiohttp.ClientError, TimeoutError, OSError, ContactFailed):
        return None
    if status >= 500:
        return None
    return body if status == 200 else b""


async def _optional(
    session: aiohttp.ClientSession, url: str, headers: dict[str, str]
) -> dict[str, Any] | None:
    """The JSON object that a route answers, {} where it has none, None as `_page`."""
    page = await _page(session, url, headers)
    if page is None:
        return None
    try:
        answer = msgspec.json.decode(page)
    except _UNREADABLE:
        return {}
    return answer if isinstance(answer, dict) else {}


def _string(answer: dict[str, Any], name: str) -> str | None:
    value = answer.get(name)
    return value if isinstance(value, str) else None


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


def _endpoints(sources: dict[str, Any], url: str) -> dict[int, str]:
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
