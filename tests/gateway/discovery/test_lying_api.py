"""An API server that hangs within an answer, or whose list has no end."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gateway.discovery import api_server
from gateway.discovery.api_server import ApiServer
from gateway.discovery.credentials import ServiceAccount
from gateway.discovery.standing import SourceFailed
from gateway.settings.discovery_config import KubernetesService

ENDLESS = b'{"metadata": {"continue": "more", "resourceVersion": "1"}, "items": []}'


@asynccontextmanager
async def served(answer: bytes, *, hang: bool) -> AsyncIterator[str]:
    """The URL of a server that answers this, and then nothing, or closes."""
    end = asyncio.Event()

    async def answered(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        if hang:
            await end.wait()
        writer.close()

    server = await asyncio.start_server(answered, "127.0.0.1")
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        end.set()
        server.close()
        await server.wait_closed()


@pytest.fixture
def asking(client: aiohttp.ClientSession, account: Path) -> Callable[[str], ApiServer]:
    """Asks the server at a URL."""
    service = KubernetesService(namespace="llm", name="vllm")
    return lambda url: ApiServer(
        url, ServiceAccount(account), service, client, rng=random.Random(1)
    )


@pytest.mark.parametrize(
    ("status", "reason"), [(403, "refused"), (500, "status"), (302, "status")]
)
@pytest.mark.parametrize("what", ["list", "watch"])
async def test_a_refusal_whose_text_does_not_come(
    asking: Callable[[str], ApiServer],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    reason: str,
    what: str,
) -> None:
    """The status is told without it; nobody waits for good."""
    monkeypatch.setattr(api_server, "ANSWER_S", 0.2)
    head = b"HTTP/1.1 %d No\r\nContent-Length: 100\r\n\r\n" % status
    async with served(head, hang=True) as url:
        api = asking(url)
        asked = api.list() if what == "list" else anext(api.watch("1"))
        with pytest.raises(SourceFailed) as caught:
            await asyncio.wait_for(asked, 5)
    assert caught.value.reason == reason
    assert f"answers {status}" in str(caught.value)


async def test_a_list_without_end(
    asking: Callable[[str], ApiServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many pages are none: it counts as malformed."""
    monkeypatch.setattr(api_server, "MOST_PAGES", 3)
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    async with served(head % len(ENDLESS) + ENDLESS, hang=False) as url:
        with pytest.raises(SourceFailed, match="more than 3 pages") as caught:
            await asking(url).list()
    assert caught.value.reason == "malformed"


async def test_the_bound_is_of_all_pages_together(
    asking: Callable[[str], ApiServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many pages take no more memory than one may."""
    monkeypatch.setattr(api_server, "MOST_BYTES", 5 * len(ENDLESS))
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    async with served(head % len(ENDLESS) + ENDLESS, hang=False) as url:
        with pytest.raises(SourceFailed, match="the list has more than") as caught:
            await asking(url).list()
    assert caught.value.reason == "malformed"
