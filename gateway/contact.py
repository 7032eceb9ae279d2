"""Asking a worker who it is: models, engine, version, block size, event sources.

The answer is neutral (`WorkerFacts`); how an engine puts it is in `engines/`.
"""

import os
from typing import Any

import aiohttp
import msgspec

from gateway.engines import vllm
from router.models import ListedModel
from router.worker import WorkerSpec

ANSWER_LIMIT = 8 * 1024 * 1024
TIMEOUT = aiohttp.ClientTimeout(total=10, connect=3)

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

ENGINES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "trtllm": "trtllm",
    "tensorrt_llm": "trtllm",
}
"""What `owned_by` of /v1/models says -> the engine; any other is generic."""


class ContactFailed(Exception):
    """The worker did not say who it is; the text names what failed."""


class _ModelList(msgspec.Struct, frozen=True):
    data: list[dict[str, Any]]


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
    numbers = vllm.cache_numbers((page or b"").decode("utf-8", "replace"))
    sources = await _optional(session, spec.url + "/kv_event_sources", headers)
    engine = spec.engine or next((e.get("owned_by") for e in listing), None)
    return WorkerFacts(
        models=models,
        listing=tuple(listing),
        engine=ENGINES.get(str(engine), "generic"),
        version=_string(version or {}, "version"),
        block_size=numbers.get("block_size"),
        cache_blocks=numbers.get("num_gpu_blocks"),
        started_at=numbers.get("started_at"),
        event_endpoints=(
            None if sources is None else vllm.event_endpoints(sources, spec.url)
        ),
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
