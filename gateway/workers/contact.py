"""Asking a worker who it is: models, engine, version, block size, event sources.

The answer is neutral (`WorkerFacts`); how an engine puts it is in `engines/`.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import aiohttp
import msgspec

from gateway.workers.asking import TIMEOUT, Asker, TooLong, Unanswered
from gateway.workers.engines import sglang, trtllm, vllm
from gateway.workers.engines.facts import (
    Engine,
    EngineFacts,
    Page,
    Pages,
    refused,
    string,
)
from router.models import ListedModel
from router.worker import CHAT, TOKENS, WorkerSpec

ANSWER_LIMIT = 8 * 1024 * 1024

GENERIC = "generic"
NAMES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "trtllm": "trtllm",
    "tensorrt_llm": "trtllm",
}
"""What `owned_by` of /v1/models says -> the engine."""
NOT_FOUND, WANTS_POST, FAULT = 404, 405, 500
ENGINES: Mapping[str, Engine] = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}
NO_NAMES: Mapping[str, str] = {}


class ContactFailed(Exception):
    """The worker did not say who it is; the text names what failed."""


class _ModelList(msgspec.Struct, frozen=True):
    data: list[dict[str, Any]]


class WorkerFacts(EngineFacts, frozen=True, kw_only=True):
    """What a worker told about itself; None where it did not."""

    models: tuple[ListedModel, ...]
    listing: tuple[dict[str, Any], ...]
    """The entries of /v1/models as the worker wrote them."""
    engine: str | None
    """None where it cannot be told now, because a route failed."""
    api: str | None = None
    """What it takes, by its routes; None where they do not tell."""


class Contact:
    """How one worker is asked."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        api_key: str | None,
        until: float | None = None,
    ) -> None:
        """Optional routes are waited for `until` then, by the loop's time."""
        self._asker = Asker(session, url, api_key, timeout=TIMEOUT)
        self._until = until
        self._failed: dict[str, str] = {}

    async def models(self) -> list[dict[str, Any]]:
        """The entries of /v1/models; raises ContactFailed."""
        try:
            page = await self._asker.get("/v1/models", ANSWER_LIMIT)
        except TooLong as error:
            raise ContactFailed(str(error)) from None
        except Unanswered as error:
            raise ContactFailed(error.why) from None
        if page.status != 200:
            raise ContactFailed(f"/v1/models answers {page.status}")
        try:
            return msgspec.json.decode(page.body, type=_ModelList).data
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ContactFailed("/v1/models answers no list of models") from None

    async def pages(self, *routes: str, older: Mapping[str, str] = NO_NAMES) -> Pages:
        """What optional routes answer; None where one failed.

        `older` has names to try for those that the worker does not have.
        """
        answers = await asyncio.gather(*(self._page(r, older.get(r)) for r in routes))
        return dict(zip(routes, answers, strict=True))

    def failed(self, routes: Collection[str]) -> str | None:
        """A line about the first of these that failed, None where none has."""
        whys = (self._failed[r] for r in routes if r in self._failed)
        return next(whys, None)

    async def _page(self, route: str, older: str | None) -> Page | None:
        try:
            async with asyncio.timeout_at(self._until):
                page = await self._asker.get(route, ANSWER_LIMIT)
        except TimeoutError:
            self._failed[route] = f"{route}: no answer in time"
            return None
        except Unanswered as error:
            self._failed[route] = str(error)
            return None
        if page.status == NOT_FOUND and older is not None:
            return await self._page(older, None)
        if page.status >= FAULT:
            self._failed[route] = f"{route} answers {page.status}"
            return None
        return page


async def ask(
    session: aiohttp.ClientSession,
    spec: WorkerSpec,
    api_key: str | None,
    api: str | None = None,
    until: float | None = None,
) -> WorkerFacts:
    """Who the worker is; raises ContactFailed where /v1/models has no answer.

    `api` is what it takes, if that is known already: it is not asked then. Of other
    routes those do not count that have no answer `until` then, by the loop's time.
    """
    contact = Contact(session, spec.url, api_key, until)
    listing = await contact.models()
    engine, told = await _engine(contact, spec, listing)
    if api is None and engine in ("vllm", GENERIC):
        api = await _api(contact)
    return WorkerFacts(
        models=tuple(_listed(entry) for entry in listing),
        listing=tuple(listing),
        engine=engine,
        api=api,
        **{name: getattr(told, name) for name in EngineFacts.__struct_fields__},
    )


async def _engine(
    contact: Contact, spec: WorkerSpec, listing: list[dict[str, Any]]
) -> tuple[str | None, EngineFacts]:
    """The engine as declared, as it calls itself, or by its routes; what it tells."""
    owner = spec.engine or next((entry.get("owned_by") for entry in listing), None)
    name = NAMES.get(str(owner))
    if name is not None:
        engine = ENGINES[name]
        pages = await contact.pages(*engine.ROUTES, older=engine.OLDER)
        told = engine.read(pages, spec.url)
        trouble = told.trouble or contact.failed((*pages, *engine.OLDER.values()))
        return name, msgspec.structs.replace(told, trouble=trouble)
    return await _by_routes(contact, spec.url)


async def _api(contact: Contact) -> str | None:
    """Chats, if there is that route; token ids, if there is the one for these only.

    A GET shows it: a route that wants a POST is there. vLLM has the chat route in any
    case; one with --tokens-only also has /abort_requests, as those for developers do.
    """

    async def status(route: str) -> int:
        page = (await contact.pages(route))[route]
        return page.status if page is not None else 0

    chats = await status("/v1/chat/completions")
    if chats == NOT_FOUND:
        takes_ids = await status("/inference/v1/generate") == WANTS_POST
        return TOKENS if takes_ids else None
    if chats == WANTS_POST and await status("/abort_requests") == WANTS_POST:
        return TOKENS if await status("/server_info") == NOT_FOUND else CHAT
    return CHAT if chats == WANTS_POST else None


async def _by_routes(contact: Contact, url: str) -> tuple[str | None, EngineFacts]:
    """Whose routes they are. /metrics comes last: reading it may empty it."""
    routes = ("/kv_event_sources", "/server_info", "/version")
    pages = dict(await contact.pages(*routes, older=sglang.OLDER))
    sources, info = pages["/kv_event_sources"], pages["/server_info"]
    if sources is not None and vllm.is_mine(sources.object()):
        return "vllm", vllm.read({**pages, **await contact.pages("/metrics")}, url)
    if info is not None and trtllm.is_mine(info.object()):
        return "trtllm", trtllm.read(pages, url)
    if info is not None and sglang.is_mine(info.object()):
        return "sglang", sglang.read(pages, url)
    if sources is None or info is None:
        return None, EngineFacts(trouble=contact.failed(routes))
    # Any other may still have a Prometheus page, with the start of its process.
    pages.update(await contact.pages("/metrics"))
    shut = refused("/server_info", info), refused("/kv_event_sources", sources)
    trouble = shut[0] or shut[1]
    return GENERIC, msgspec.structs.replace(vllm.read(pages, url), trouble=trouble)


def _listed(entry: dict[str, Any]) -> ListedModel:
    root, parent = string(entry, "root"), string(entry, "parent")
    return ListedModel(id=string(entry, "id") or "", root=root, parent=parent)
