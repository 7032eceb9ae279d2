"""What an engine's own routes tell a gateway, in words that are no engine's.

Records only. How an engine puts it is in the file named after it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from kvindex.events import EventBatch
from router.load import Load

KEY = "--worker-api-key"
NO_SIZE = "no block size"
LARGEST_BLOCK = 65_536
"""Tokens of a block; a larger size is none that a cache could be looked up with."""
LARGEST_COUNT = 1 << 40
"""A number of blocks, tokens or requests above this is none."""
LARGEST_TOTAL = 1 << 53
"""What was counted since the engine's start, such as microseconds, above this is none.

A float has all of these numbers."""
RANKS = 1_024
"""Data-parallel ranks of one worker at most."""
LATEST = 1 << 64
"""A start in whatever unit; no later one is told apart."""

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Page(msgspec.Struct, frozen=True):
    """What a route answered."""

    status: int
    body: bytes = b""

    def object(self) -> dict[str, Any]:
        """The JSON object in it; {} where it has none."""
        if self.status != 200:
            return {}
        try:
            answer = msgspec.json.decode(self.body)
        except _UNREADABLE:
            return {}
        return answer if isinstance(answer, dict) else {}

    def text(self) -> str:
        """Its text; "" where there is none."""
        return self.body.decode("utf-8", "replace") if self.status == 200 else ""


MISSING = Page(404)

Pages = Mapping[str, Page | None]
"""Route to page; None for one that failed: no answer, or a fault of the worker's."""


class EventSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where one data-parallel rank publishes its KV events, and replays them."""

    endpoint: str
    replay: str | None = None
    topic: str | None = None
    """Under which it publishes, if that was told; engines ship with ""."""


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the routes of one engine told; None where they did not."""

    version: str | None = None
    block_size: int | None = None
    cache_blocks: int | None = None
    started_at: float | str | None = None
    """Names the worker's process: another value is another process."""
    ranks: tuple[int, ...] = ()
    """Its data-parallel ranks, global numbers; () where it does not say."""
    sources: dict[int, EventSource] | None = None
    """By rank, as a SUB can connect to them; None where it could not be asked: then
    `ranks` and `drained` say nothing, either."""
    drained: Callable[[bytes], EventBatch] | None = None
    """Its events wait to be fetched, at POST /kv_cache_events; this decodes one."""
    trouble: str | None = None
    """What kept it from telling more, as one line for the operator."""


class Engine(Protocol):
    """A file of this package: which routes to ask, and how to read the answers."""

    @property
    def ROUTES(self) -> tuple[str, ...]:
        """What to ask."""
        ...

    @property
    def OLDER(self) -> Mapping[str, str]:
        """Routes under the names they had, asked for where the worker has none."""
        ...

    @property
    def DECODE(self) -> Callable[[bytes], EventBatch]:
        """Decodes a batch of its ZMQ stream."""
        ...

    @property
    def NO_EVENTS(self) -> str:
        """The likely cause where none come."""
        ...

    @property
    def SEND_EVENTS(self) -> str:
        """How it is started so that it sends events."""
        ...

    @property
    def TELL_CACHED(self) -> str:
        """How it is started so that its usage tells the cached tokens."""
        ...

    @property
    def CACHE(self) -> str:
        """How it is started so that it keeps what it computed."""
        ...

    @property
    def TELL_LOAD(self) -> str:
        """How it is started so that it tells its load."""
        ...

    @property
    def HEALTH_ROUTES(self) -> tuple[str, ...]:
        """Where it tells that it lives, the best first; what it lacks answers 404."""
        ...

    @property
    def LOAD_ROUTES(self) -> tuple[str, ...]:
        """Where it tells its load, the best first; what it has not got answers 404."""
        ...

    def read(self, pages: Pages, url: str) -> EngineFacts:
        """What the pages of the worker at `url` tell."""
        ...

    def load(self, page: Page) -> dict[int, Load]:
        """Rank to load, by an answer of one of the `LOAD_ROUTES`; {} if it has none."""
        ...


def refused(route: str, page: Page | None) -> str | None:
    """A line about a route that wants another key, or None."""
    if page is None or page.status not in (401, 403):
        return None
    return f"{route} answers {page.status}: it wants a key, see {KEY}"


def no_size(where: str, value: object) -> str | None:
    """A line about a block size that cannot be, None where none is told."""
    if value is None:
        return None
    return f"{where} is {str(value)[:40]!r}: {NO_SIZE}; its events will tell"


def string(answer: Mapping[str, Any], name: str) -> str | None:
    """A text field."""
    value = answer.get(name)
    return value if isinstance(value, str) else None


def count(answer: Mapping[str, Any], name: str, limit: int = LARGEST_COUNT) -> int:
    """A field that is a whole number from 1 to `limit`, else 0."""
    value = answer.get(name)
    return value if type(value) is int and 0 < value <= limit else 0


def whole(value: object, limit: int = LARGEST_COUNT) -> int | None:
    """A number of requests or tokens, None where it is none."""
    return value if type(value) is int and 0 <= value <= limit else None


def share(value: object) -> float | None:
    """A number from 0 to 1, None where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value <= 1 else None


def stamp(answer: Mapping[str, Any], name: str) -> float | str | None:
    """A field that names a process: its start, in whatever form."""
    value = answer.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str):
        return value
    return float(value) if abs(value) <= LATEST else None


def connectable(endpoint: str, worker_url: str) -> str:
    """A published endpoint as a SUB can connect to it: wildcards are the worker."""
    host = urlsplit(worker_url).hostname or ""
    host = f"[{host}]" if ":" in host else host
    return re.sub(r"^tcp://(\*|0\.0\.0\.0|\[?::\]?)(?=:\d)", f"tcp://{host}", endpoint)
