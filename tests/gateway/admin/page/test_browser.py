"""The live page in a real browser: a fleet with a silent worker and a blocked one.

`make screenshots` writes the pictures of the documents by these tests.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.events import ingest
from kvindex.settings import FeedSettings
from simworker.options import SimOptions
from tests.gateway.admin.page.browser import BINARY, Tab, chromium
from tests.gateway.templates import OTHER
from tests.running import MODEL, WITH_EVENTS, Running, StartGateway, StartWorker, until

pytestmark = pytest.mark.skipif(BINARY is None, reason="chromium is not installed")
PICTURES = os.environ.get("KV_GATEWAY_SCREENSHOTS")
"""The directory that the documents' pictures go to; None: they are only looked at."""
SPEED = 12 if PICTURES else 60
"""How much faster the charts' ten minutes pass: some seconds fill them."""
CLIENTS = 6 if PICTURES else 3
LONG_S = 40.0
SYSTEM = "You are a patient clerk. " * 40
TOPICS = ("my invoice", "the broken lamp", "a parcel that never came", "two refunds")


def options(**changes: Any) -> SimOptions:
    """Of a worker that answers in a pace to be watched."""
    paced = {"speed": 4.0, "blocks": 4096, "prefill_rate": 6000.0}
    return msgspec.structs.replace(WITH_EVENTS, **(paced | changes))


@pytest.fixture
async def fleet(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Running]:
    """Four workers under traffic: two well, one silent, one that renders otherwise."""
    settings = partial(FeedSettings, silent_after_s=1.0)
    monkeypatch.setattr(ingest, "FeedSettings", settings)
    workers = [await start_worker(options()) for _ in range(2)]
    workers.append(await start_worker(options(faults='{"mute": true}')))
    workers.append(await start_worker(options(chat_template=OTHER)))
    # In turns: each gets requests, the silent one too, however little there is to do.
    gateway = await start_gateway(*workers, policy="round_robin")
    begun = time.monotonic()
    gateway.gateway.accounts.recent._clock = lambda: (
        begun + (time.monotonic() - begun) * SPEED
    )
    clients = [asyncio.create_task(chat_on(gateway, n)) for n in range(CLIENTS)]
    yield gateway
    for client in clients:
        client.cancel()
    await asyncio.wait(clients)
    assert all(client.cancelled() for client in clients)


async def chat_on(gateway: Running, number: int) -> None:
    """One client's chats, of eight turns each, until cancelled."""
    count = 0
    while True:
        topic = TOPICS[(number + count) % len(TOPICS)]
        opening = (
            f"Chat {number}.{count}. I write about {topic}. " + "It is late. " * 60
        )
        messages = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": opening},
        ]
        for _ in range(8):
            answer = await streamed(gateway, messages)
            messages.append({"role": "assistant", "content": answer})
            messages.append({"role": "user", "content": "And then? " * 12})
            await asyncio.sleep(0.1)
        count += 1


async def streamed(gateway: Running, messages: list[dict[str, str]]) -> str:
    """A whole streamed answer's text, as far as the next turn needs it."""
    body = {
        "model": MODEL,
        "messages": messages,
        "max_tokens": 16,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    url = gateway.url + "/v1/chat/completions"
    async with gateway.client.post(url, json=body) as response:
        lines = (await response.text()).splitlines()
    events = [line[6:] for line in lines if line.startswith("data: {")]
    choices = [c for event in events for c in msgspec.json.decode(event)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


async def told(tab: Tab) -> bool:
    """Whether the silent worker and the blocked one are on the page."""
    text = await tab.js("document.getElementById('workers').innerText")
    return "silent" in text and "probe_differs" in text


async def explained(tab: Tab) -> bool:
    """Whether the explain box has its answer."""
    found = await tab.js("document.querySelectorAll('#explained tr').length")
    return bool(found == 5)


async def keep(tab: Tab, name: str) -> None:
    """A picture of the page; it shows something, and goes to the documents if asked."""
    picture = await tab.picture()
    assert picture.startswith(b"RIFF")
    assert len(picture) > 20_000
    if PICTURES is not None:
        target = Path(PICTURES, f"page-{name}.webp")
        await asyncio.to_thread(target.write_bytes, picture)


@pytest.mark.timeout(180)
async def test_the_page(
    fleet: Running, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """It shows the fleet as it is, and no fault; other hosts are asked for nothing."""
    async with chromium(tmp_path, client) as tab:
        await tab.look(width=1280, height=1500, scheme="light")
        await tab.open(fleet.url + "/gateway/")
        await until(lambda: told(tab), within_s=LONG_S)
        await asyncio.sleep(45.0 if PICTURES else 1.0)
        assert await tab.js("document.querySelectorAll('.card').length") == 4
        first = await tab.js("document.querySelector('.card').innerText")
        assert "silent" in first  # the worst comes first
        assert await tab.js("document.querySelectorAll('.chart path').length") >= 4
        assert (
            await tab.js("document.querySelectorAll('#decisions tbody tr').length") > 5
        )
        assert await tab.js("document.getElementById('status').innerText") == (
            "4 of 4 workers ready"
        )
        await explain(tab)
        await until(lambda: explained(tab))
        await keep(tab, "light")
        light = await tab.js("getComputedStyle(document.body).backgroundColor")
        await tab.look(width=1280, height=1500, scheme="dark")
        dark = await tab.js("getComputedStyle(document.body).backgroundColor")
        assert light == "rgb(246, 248, 250)" != dark
        await keep(tab, "dark")
        await on_a_phone(tab)
        assert tab.faults == []
        assert {url.startswith(fleet.url + "/gateway/") for url in tab.asked} == {True}


async def explain(tab: Tab) -> None:
    """Ask where a chat would go, as a user does; its text is never taken for markup."""
    system = {"role": "system", "content": SYSTEM}
    user = {"role": "user", "content": "A refund! <img src=x onerror=alert(1)>"}
    text = msgspec.json.encode({"messages": [system, user]}).decode()
    await tab.js(
        "document.getElementById('body').value = "
        f"{msgspec.json.encode(text).decode()};"
        "document.querySelector('form button').click()"
    )


async def on_a_phone(tab: Tab) -> None:
    """Nothing is wider than the screen but what scrolls by itself."""
    await tab.look(width=390, height=844, scheme="dark")
    await asyncio.sleep(0.2)  # the charts are drawn anew
    assert await tab.js("document.documentElement.scrollWidth") == 390
    columns = "getComputedStyle(document.querySelector('.cards')).gridTemplateColumns"
    assert len((await tab.js(columns)).split()) == 1
    await keep(tab, "phone")


async def test_with_the_admin_key(
    start_gateway: StartGateway, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """By a name that needs the key: the browser has it from its user, once."""
    gateway = await start_gateway("http://127.0.0.1:1", render="never", admin_key="key")
    async with chromium(tmp_path, client) as tab:
        url = f"http://any:key@gateway.example:{gateway.port}/gateway"
        await tab.open(url)
        await until(lambda: tab.js("document.body?.dataset.shown === 'yes'"))
        assert await tab.js("location.pathname") == "/gateway/"
        await explain(tab)
        answer = "document.getElementById('explained').innerText"
        await until(lambda: tab.js(f"{answer} !== ''"))
        assert "127.0.0.1:1" in await tab.js(answer)
        assert tab.faults == []


async def test_a_gateway_that_is_gone(
    start_gateway: StartGateway, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """The page says so, and keeps what it showed last."""
    gateway = await start_gateway("http://127.0.0.1:1", render="never")
    async with chromium(tmp_path, client) as tab:
        await tab.open(gateway.url + "/gateway/")
        await until(lambda: tab.js("document.body?.dataset.shown === 'yes'"))
        await tab.do("Network.emulateNetworkConditions", offline=True, latency=0,
                     downloadThroughput=0, uploadThroughput=0)  # fmt: skip
        status = "document.getElementById('status').innerText"

        async def says_so() -> bool:
            return "does not answer" in await tab.js(status)

        await until(says_so)
        assert await tab.js("document.querySelectorAll('.card').length") == 1
