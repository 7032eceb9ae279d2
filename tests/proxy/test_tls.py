"""TLS on both sides of the gateway: who is let in, who is believed, what is renewed."""

import asyncio
import hashlib
import ssl

import pytest

from tests.proxy.certificates import Authority
from tests.proxy.conftest import GatewayFor
from tests.proxy.raw import (
    CHAT,
    RawClient,
    RawWorker,
    WorkerConnection,
    answering,
    json_answer,
)
from tests.proxy.test_slow_client import BIG_EVENT, EVENTS, Flood

HOST = "127.0.0.1"
FINE = json_answer(b'{"fine": true}')


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that gateway, workers and clients of these tests trust."""
    return Authority(tmp_path_factory.mktemp("ours"), "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another, which nobody here trusts."""
    return Authority(tmp_path_factory.mktemp("theirs"), "theirs")


async def status(port: int, tls: ssl.SSLContext | None) -> bytes:
    """The status of a chat on a connection of its own."""
    async with RawClient(port, tls=tls) as client:
        await client.post(CHAT)
        head, _ = await client.answer()
        return head[9:12]


async def test_tls_all_the_way(gateway_for: GatewayFor, ours: Authority) -> None:
    """Client to gateway to worker, several requests on one connection of each."""
    cert, key = ours.issue("gateway", HOST)
    async with (
        RawWorker(answering(FINE), tls=ours.server(HOST)) as worker,
        gateway_for(worker, tls_cert=cert, tls_key=key, worker_ca=ours.file) as gateway,
        RawClient(gateway.port, tls=ours.client()) as client,
    ):
        for _ in range(3):
            await client.post(CHAT)
            head, body = await client.answer()
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert body == b'{"fine": true}'
        assert len(worker.connections) == 1
        assert len(worker.requests) == 3
        session = client.writer.get_extra_info("ssl_object")
        assert session.version() in ("TLSv1.2", "TLSv1.3")


@pytest.mark.parametrize("trusts", [True, False])
async def test_a_worker_that_is_not_who_it_should_be(
    gateway_for: GatewayFor, ours: Authority, theirs: Authority, trusts: bool
) -> None:
    """Of another authority, or for another host: it gets no request and no key."""
    tls = ours.server("worker.example") if trusts else theirs.server(HOST)
    async with (
        RawWorker(answering(FINE), tls=tls) as worker,
        gateway_for(worker, worker_ca=ours.file) as gateway,
    ):
        assert await status(gateway.port, None) == b"502"
        assert worker.requests == []


class Plain(RawWorker):
    """A worker without TLS whose URL says that it has it."""

    @property
    def url(self) -> str:
        return super().url.replace("http:", "https:")


async def test_a_plain_worker_behind_an_https_url(
    gateway_for: GatewayFor, ours: Authority
) -> None:
    """No fall-back to plain HTTP, nor a wait for what will not come."""

    async def script(connection: WorkerConnection) -> None:
        await connection.take(5)
        await connection.send(json_answer(b"{}", status=b"400 Bad Request"))

    async with (
        Plain(script) as worker,
        gateway_for(worker, worker_ca=ours.file) as gateway,
    ):
        assert await status(gateway.port, None) == b"502"


async def test_workers_that_ask_for_a_certificate(
    gateway_for: GatewayFor, ours: Authority, theirs: Authority
) -> None:
    """They get the gateway's; one of another authority is refused by them."""
    server = ours.server(HOST)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(ours.file)
    for authority, wanted in ((ours, b"200"), (theirs, b"502")):
        cert, key = authority.issue("gateway-as-client", "gateway.example")
        async with (
            RawWorker(answering(FINE), tls=server) as worker,
            gateway_for(
                worker, worker_ca=ours.file, worker_cert=cert, worker_key=key
            ) as gateway,
        ):
            assert await status(gateway.port, None) == wanted


async def test_clients_that_have_to_show_a_certificate(
    gateway_for: GatewayFor, ours: Authority, theirs: Authority
) -> None:
    """Without one, or with one of another authority, nothing is answered."""
    cert, key = ours.issue("gateway", HOST)
    async with (
        RawWorker(answering(FINE)) as worker,
        gateway_for(
            worker, tls_cert=cert, tls_key=key, tls_client_ca=ours.file
        ) as gateway,
    ):
        known = ours.client(ours.issue("client", "client.example"))
        assert await status(gateway.port, known) == b"200"
        for stranger in (
            ours.client(),
            ours.client(theirs.issue("stranger", "client.example")),
        ):
            with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
                await status(gateway.port, stranger)
        assert len(worker.requests) == 1


async def test_plain_http_on_a_port_with_tls(
    gateway_for: GatewayFor, ours: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection ends; nothing is answered in the clear, and nothing is logged."""
    cert, key = ours.issue("gateway", HOST)
    async with (
        RawWorker(answering(FINE)) as worker,
        gateway_for(worker, tls_cert=cert, tls_key=key) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        assert b"HTTP" not in await client.rest()
        assert worker.requests == []
    assert not [r for r in caplog.records if r.levelname in ("WARNING", "ERROR")]


async def test_back_pressure_reaches_the_worker_through_tls(
    gateway_for: GatewayFor, ours: Authority
) -> None:
    """A slow client stops its worker; nothing is lost in the end."""
    flood = Flood()
    cert, key = ours.issue("gateway", HOST)
    async with (
        RawWorker(flood.script, tls=ours.server(HOST)) as worker,
        gateway_for(worker, tls_cert=cert, tls_key=key, worker_ca=ours.file) as gateway,
        RawClient(gateway.port, limit=1024, tls=ours.client()) as slow,
    ):
        await slow.post(b'{"slow":1}')
        await slow.head()
        await asyncio.sleep(0.7)
        stopped_at = flood.sent
        assert stopped_at < EVENTS
        await asyncio.sleep(0.3)
        assert flood.sent - stopped_at < 50
        received = 0
        while piece := await slow.chunk():
            received += len(piece)
        assert received == EVENTS * len(BIG_EVENT)


async def test_a_client_with_tls_that_leaves(
    gateway_for: GatewayFor, ours: Authority
) -> None:
    """Its request to the worker ends, as it does without TLS."""
    flood = Flood()
    cert, key = ours.issue("gateway", HOST)
    async with (
        RawWorker(flood.script, tls=ours.server(HOST)) as worker,
        gateway_for(worker, tls_cert=cert, tls_key=key, worker_ca=ours.file) as gateway,
    ):
        async with RawClient(gateway.port, limit=1024, tls=ours.client()) as client:
            await client.post(b'{"slow":1}')
            await client.head()
        async with asyncio.timeout(3):
            await gateway.watches[0].released.wait()
        assert gateway.watches[0].kind == "client"
        await asyncio.sleep(0.1)
        assert gateway.upstreams.open_connections == 0


@pytest.mark.parametrize("kind", [b"application/json", b"application/octet-stream"])
async def test_large_bodies_through_tls(
    gateway_for: GatewayFor, ours: Authority, kind: bytes
) -> None:
    """Held and sent in slices, or passed on while they come: whole in the end."""
    body = b'{"a":"' + bytes(range(0x30, 0x58)) * 100_000 + b'"}'

    async def script(connection: WorkerConnection) -> None:
        head = await connection.head()
        await asyncio.sleep(0.1)  # what comes meanwhile has to wait
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        digest = hashlib.sha256(await connection.take(length)).hexdigest()
        await connection.send(json_answer(digest.encode()))

    cert, key = ours.issue("gateway", HOST)
    async with (
        RawWorker(script, tls=ours.server(HOST)) as worker,
        gateway_for(worker, tls_cert=cert, tls_key=key, worker_ca=ours.file) as gateway,
        RawClient(gateway.port, tls=ours.client()) as client,
    ):
        await client.post(body, path=b"/v1/files", kind=kind)
        _, answer = await client.answer()
        assert answer.decode() == hashlib.sha256(body).hexdigest()
