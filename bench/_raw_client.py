"""A client that costs next to nothing: one request at a time on each connection."""

import asyncio
import time
from urllib.parse import urlsplit

END = b"0\r\n\r\n"


def request(url: str, path: str, body: bytes) -> bytes:
    """A POST as bytes."""
    host = urlsplit(url).netloc
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection:
    """One keep-alive connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> "Connection":
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def exchange(self, message: bytes) -> tuple[int, float]:
        """Send; read the whole answer; its status and the seconds to its first body."""
        begun = time.perf_counter()
        self._writer.write(message)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        lower = head.lower()
        at = lower.find(b"content-length:")
        if at >= 0:
            length = int(lower[at + 15 :].split(b"\r\n", 1)[0])
            await self._reader.readexactly(length)
            return status, time.perf_counter() - begun
        data = await self._reader.read(65536)
        first = time.perf_counter() - begun
        while not data.endswith(END):
            more = await self._reader.read(65536)
            if not more:
                raise ConnectionError("the answer was cut")
            data = data[-8:] + more
        return status, first

    async def answer(self, message: bytes) -> tuple[bytes, float]:
        """Send; the body of a 200 that says its length, and the seconds it took."""
        begun = time.perf_counter()
        self._writer.write(message)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        at = head.find(b"content-length:")
        if head[9:12] != b"200" or at < 0:
            rest = await self._reader.read(1000)
            raise SystemExit(f"answered {head[:12]!r}: {rest!r}")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0])
        body = await self._reader.readexactly(length)
        return body, time.perf_counter() - begun

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def load(url: str, message: bytes, connections: int, requests: int) -> float:
    """Send `requests` over `connections`; the seconds it took. All must be 200."""
    todo = iter(range(requests))

    async def work() -> None:
        connection = await Connection.open(url)
        for _ in todo:
            status, _ = await connection.exchange(message)
            if status != 200:
                raise SystemExit(f"{url} answers {status}")
        await connection.close()

    begun = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(connections)))
    return time.perf_counter() - begun
