"""Workers that are spoken to by TLS: what is told where that fails."""

import ssl
from pathlib import Path

import aiohttp
import pytest

from gateway.settings.config import Config
from gateway.tls import for_workers
from gateway.workers.contact import ContactFailed, ask
from router.worker import WorkerSpec
from tests.proxy.certificates import Authority
from tests.proxy.raw import RawWorker, WorkerConnection, answering, json_answer

LISTING = json_answer(b'{"data": []}')


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    """Who signed for the workers."""
    return Authority(tmp_path, "ours")


async def told(url: str, ca: Path | None) -> str:
    """What is said of a worker that was asked who it is."""
    connector = aiohttp.TCPConnector(ssl=for_workers(Config(worker_ca=ca)))
    async with aiohttp.ClientSession(connector=connector) as session:
        try:
            await ask(session, WorkerSpec(url=url), None)
        except ContactFailed as failure:
            return str(failure)
    return "answered"


async def test_who_it_should_be(ours: Authority) -> None:
    """It is asked, and answers."""
    async with RawWorker(answering(LISTING), tls=ours.server("127.0.0.1")) as worker:
        assert await told(worker.url, ours.file) == "answered"


async def test_certificates_that_do_not_hold(ours: Authority) -> None:
    """The reason is that of the certificate, not one of the system's numbers."""
    async with RawWorker(answering(LISTING), tls=ours.server("127.0.0.1")) as worker:
        said = await told(worker.url, None)
        assert said.startswith("cannot connect: its certificate does not hold (")
        assert "certificate" in said.partition("(")[2]
    async with RawWorker(answering(LISTING), tls=ours.server("w.example")) as worker:
        said = await told(worker.url, ours.file)
        assert "IP address mismatch" in said


async def test_a_worker_that_asks_for_a_certificate(ours: Authority) -> None:
    """The gateway has none: the worker breaks off, and says no more (TLS 1.3)."""
    server: ssl.SSLContext = ours.server("127.0.0.1")
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(ours.file)
    async with RawWorker(answering(LISTING), tls=server) as worker:
        said = await told(worker.url, ours.file)
        assert said == "ServerDisconnectedError: Server disconnected"


async def test_a_worker_without_tls(ours: Authority) -> None:
    """Named as that."""

    async def script(connection: WorkerConnection) -> None:
        await connection.take(5)
        await connection.send(json_answer(b"{}", status=b"400 Bad Request"))

    async with RawWorker(script) as worker:
        url = worker.url.replace("http:", "https:")
        said = await told(url, ours.file)
        assert said.startswith("cannot connect: no TLS (")
