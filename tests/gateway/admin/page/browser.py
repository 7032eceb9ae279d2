"""Headless Chromium by its DevTools protocol: a page, its faults, its picture."""

import asyncio
import base64
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

BINARY = shutil.which("chromium")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--host-resolver-rules=MAP gateway.example 127.0.0.1",
)
ANSWER_S = 20.0


class Tab:
    """One tab: what it asked for, what went wrong in it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.asked: list[str] = []
        self.faults: list[str] = []
        self._loaded = asyncio.Event()

    async def listen(self) -> None:
        """Take in what the browser says, until cancelled."""
        async for message in self._socket:
            said = message.json()
            waiting = self._answers.pop(said.get("id", 0), None)
            if waiting is not None:
                waiting.set_result(said)
            else:
                self._note(said.get("method"), said.get("params", {}))

    def _note(self, method: str | None, told: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Network.requestWillBeSent":
            self.asked.append(told["request"]["url"])
        elif method == "Log.entryAdded":
            self.faults.append(told["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.faults.append(str(details.get("exception", details)))
        elif method == "Runtime.consoleAPICalled":
            self.faults.append(str(told["args"]))

    async def do(self, method: str, **parameters: Any) -> Any:
        """The result of a command."""
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        await self._socket.send_json(
            {"id": number, "method": method, "params": parameters}
        )
        said = await asyncio.wait_for(answer, ANSWER_S)
        assert "error" not in said, said
        return said["result"]

    async def open(self, url: str) -> None:
        """Go there, and wait until it is loaded."""
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self.do(f"{domain}.enable")
        self._loaded.clear()
        await self.do("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), ANSWER_S)

    async def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = await self.do(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def look(self, *, width: int, height: int, scheme: str) -> None:
        """Show it at a size, in `light` or `dark`."""
        await self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await self.do("Emulation.setEmulatedMedia", features=[feature])

    async def picture(self) -> bytes:
        """The whole page as a WebP."""
        shot = await self.do(
            "Page.captureScreenshot",
            captureBeyondViewport=True,
            format="webp",
            quality=85,
        )
        return base64.b64decode(shot["data"])


@asynccontextmanager
async def chromium(
    directory: Path, client: aiohttp.ClientSession
) -> AsyncIterator[Tab]:
    """A tab of a browser that lives as long as the context."""
    process = await asyncio.create_subprocess_exec(
        str(BINARY),
        *FLAGS,
        f"--user-data-dir={directory}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port = await _port(directory / "DevToolsActivePort")
        url = f"http://127.0.0.1:{port}/json/list"
        async with client.get(url) as response:
            pages = await response.json()
        (address,) = [p["webSocketDebuggerUrl"] for p in pages if p["type"] == "page"]
        async with client.ws_connect(address, max_msg_size=0) as socket:
            tab = Tab(socket)
            listening = asyncio.create_task(tab.listen())
            yield tab
            listening.cancel()
            await asyncio.wait({listening})
    finally:
        process.terminate()
        await process.wait()


async def _port(file: Path) -> int:
    """The port that the browser chose."""
    async with asyncio.timeout(ANSWER_S):
        while True:
            text = await asyncio.to_thread(_read, file)
            if "\n" in text:
                return int(text.splitlines()[0])
            await asyncio.sleep(0.05)


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""
