"""A Kubernetes API server, asked for the EndpointSlices of a service: list and watch.

Only reads, of one service in one namespace. What is made of the answers: `slices.py`.
"""

import asyncio
import os
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from gateway.discovery.credentials import Credentials, ServiceAccount
from gateway.discovery.slices import GONE, MALFORMED, STATUS, Event, Expired, Page
from gateway.discovery.standing import SourceFailed
from gateway.errors import ConfigError
from gateway.settings.discovery_config import KubernetesService
from gateway.upstreams.origin import Origin
from gateway.workers.asking import reason

UNREACHABLE = "unreachable"
REFUSED = "refused"
DROPPED = "dropped"

PAGE = 100
MOST_PAGES = 1000
ANSWER_S = 10.0
BODY_S = 30.0
WATCH_S = 300
"""A watch lasts so long to twice that, and is begun anew with the token of then."""
LATE_S = 10.0
"""A server that has not ended a watch so long after its time is not waited for."""
IDLE_S = 90.0
"""A watch without an event for so long is begun anew: bookmarks come every minute."""
MOST_BYTES = 32 * 1024 * 1024
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def in_cluster() -> str:
    """Where the API server of the cluster is that this runs in; ConfigError."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("--k8s-api URL is missing: this is no pod of a cluster")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


class ApiServer:
    """Asks one API server about one service."""

    def __init__(
        self,
        url: str,
        account: ServiceAccount,
        service: KubernetesService,
        session: aiohttp.ClientSession,
        *,
        rng: random.Random,
    ) -> None:
        """`rng` spreads when watches end: many gateways began theirs at one time."""
        self._origin = Origin.parse(url)
        path = f"/apis/discovery.k8s.io/v1/namespaces/{service.namespace}"
        self._url = f"{self._origin}{path}/endpointslices"
        self._selector = f"kubernetes.io/service-name={service.name}"
        self._account = account
        self._session = session
        self._rng = rng

    async def list(self) -> tuple[list[Any], str]:
        """Every slice as it is now, and the version to watch from.

        Raises SourceFailed; Expired where a page came too late.
        """
        items: list[Any] = []
        parameters = {"limit": str(PAGE)}
        left = MOST_BYTES
        for _ in range(MOST_PAGES):
            async with self._get(parameters) as response:
                body = await _whole(response, left)
            left -= len(body)
            page = await asyncio.to_thread(_decoded, body, Page)
            items += page.items or []
            more = page.metadata.get("continue")
            if not more:
                return items, str(page.metadata.get("resourceVersion") or "")
            parameters["continue"] = str(more)
        raise SourceFailed(MALFORMED, f"the list has more than {MOST_PAGES} pages")

    async def watch(self, version: str) -> AsyncGenerator[Event]:
        """What changes after a version, until the server ends it, or its time is up.

        Raises Expired where that is too old, SourceFailed.
        """
        seconds = self._rng.randint(WATCH_S, 2 * WATCH_S)
        parameters = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        async with self._get(parameters) as response:
            async for line in _lines(response.content, seconds + LATE_S):
                yield await asyncio.to_thread(_decoded, line, Event)

    @asynccontextmanager
    async def _get(
        self, parameters: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        credentials = await asyncio.to_thread(self._account.read)
        asked = {"labelSelector": self._selector, **parameters}
        try:
            async with asyncio.timeout(ANSWER_S):
                response = await self._session.get(
                    self._url,
                    params=asked,
                    headers=self._headers(credentials),
                    ssl=credentials.context,
                    timeout=aiohttp.ClientTimeout(),
                    allow_redirects=False,  # the token is for this server alone
                )
            async with response:
                if response.status != 200:
                    await _refuse(response)
                yield response
        except aiohttp.ClientPayloadError:
            raise SourceFailed(DROPPED, "the answer broke off") from None
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one
            text = f"{self._origin}: {reason(error)[:200]}"
            raise SourceFailed(UNREACHABLE, text) from None

    def _headers(self, credentials: Credentials) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "kv-gateway"}
        safe = self._origin.scheme == "https" or self._origin.host in LOOPBACK
        if credentials.token is not None and safe:
            headers["Authorization"] = f"Bearer {credentials.token}"
        return headers


async def _refuse(response: aiohttp.ClientResponse) -> None:
    """Raise what a status other than 200 means."""
    status = response.status
    if status == GONE:
        raise Expired
    text = f"the API server answers {status}: {_message(await _said(response))}"
    if status in (401, 403):
        raise SourceFailed(REFUSED, text)
    after = response.headers.get("Retry-After", "")
    wait_s = float(after) if after.isascii() and after.isdecimal() else 0.0
    raise SourceFailed(STATUS, text, wait_s=wait_s)


async def _said(response: aiohttp.ClientResponse) -> str:
    """The beginning of its body; empty where that does not come."""
    try:
        async with asyncio.timeout(ANSWER_S):
            said = await response.content.read(4096)
    except TimeoutError:
        return ""
    return said.decode("utf-8", "replace")


def _message(said: str) -> str:
    """The message of a Status, or whatever stands there, in one short line."""
    try:
        status = msgspec.json.decode(said, type=dict[str, Any])
        said = str(status.get("message", said))
    except (msgspec.DecodeError, RecursionError):
        pass  # then it is no Status; the text as it is tells as much
    return " ".join(said.split())[:200]


async def _whole(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Its body, of so many bytes at most."""
    body = bytearray()
    async with asyncio.timeout(BODY_S):
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > most:
                text = f"the list has more than {MOST_BYTES} bytes"
                raise SourceFailed(MALFORMED, text)
    return bytes(body)


async def _lines(content: aiohttp.StreamReader, life_s: float) -> AsyncIterator[bytes]:
    """Each whole line, until the end, until none came for long, for so long at most.

    What is no whole line, or an empty one, is no sign of life.
    """
    clock = asyncio.get_running_loop().time
    over, silent = clock() + life_s, clock() + IDLE_S
    rest = bytearray()
    while (left := min(over, silent) - clock()) > 0:
        try:
            async with asyncio.timeout(left):
                piece = await content.readany()
        except TimeoutError:
            return
        if not piece:
            if rest.strip():
                raise SourceFailed(DROPPED, "the watch broke off within an event")
            return
        rest += piece
        if len(rest) > MOST_BYTES:
            raise SourceFailed(MALFORMED, f"an event has more than {MOST_BYTES} bytes")
        if b"\n" in piece:
            *lines, last = rest.split(b"\n")
            rest = last
            for line in filter(bytes.strip, map(bytes, lines)):
                silent = clock() + IDLE_S
                yield line


def _decoded(text: bytes, kind: type[msgspec.Struct]) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text_ = f"an answer is not of the API: {error}"
        raise SourceFailed(MALFORMED, text_) from None
