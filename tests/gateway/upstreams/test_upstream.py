"""Upstreams by itself: what it raises, keeps and closes. Faults are in tests/proxy."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from gateway.errors import (
    BadRequest,
    ConnectFailed,
    StaleConnection,
    UpstreamReset,
    UpstreamTimeout,
)
from gateway.upstreams.exchange import Timeouts
from gateway.upstreams.origin import Origin
from gateway.upstreams.upstream import UpstreamRequest, Upstreams
from tests.proxy.raw import (
    WAIT_S,
    RawWorker,
    WorkerConnection,
    answering,
    json_answer,
    resetting,
)


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    """Closed after the test."""
    upstreams = Upstreams()
    yield upstreams
    await upstreams.close()
    assert upstreams.open_connections == 0


def post(body: bytes = b"{}", target: bytes = b"/v1/x") -> UpstreamRequest:
    """A small request."""
    return UpstreamRequest(method="POST", target=target, headers=[], body=body)


async def test_answer_is_read_whole(upstreams: Upstreams) -> None:
    """And the connection is there for the next request."""
    async with RawWorker(answering(json_answer(b'{"a":1}'))) as worker:
        origin = Origin.parse(worker.url)
        for _ in range(3):
            response = await upstreams.send(origin, post())
            assert (response.status, response.reason) == (200, b"OK")
            assert await response.read(100) == b'{"a":1}'
        assert len(worker.connections) == upstreams.open_connections == 1


async def test_origins_path_comes_first(upstreams: Upstreams) -> None:
    """A worker behind a path, and the value of Host."""
    async with RawWorker(answering(json_answer(b"{}"))) as worker:
        await upstreams.send(Origin.parse(worker.url + "/base/"), post())
        head = b"POST /base/v1/x HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % worker.port
        assert worker.requests[0].startswith(head)


@pytest.mark.parametrize(
    "target", [b"*", b"http://h", b"/a b", b"/a\r\nX: 1", b"/\x00"]
)
async def test_target_that_is_no_path(upstreams: Upstreams, target: bytes) -> None:
    """Nothing is sent, not even a connection opened."""
    origin = Origin.parse("http://127.0.0.1:9")
    with pytest.raises(BadRequest):
        await upstreams.send(origin, post(target=target))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://no-such-host.invalid"])
async def test_no_connection(upstreams: Upstreams, url: str) -> None:
    """Refused, or no such name: nothing was sent, so another try is safe."""
    with pytest.raises(ConnectFailed) as failed:
        await upstreams.send(Origin.parse(url), post())
    assert failed.value.retryable


@pytest.mark.usefixtures("stale_at_any_time")
@pytest.mark.parametrize("streamed", [False, True])
async def test_what_may_be_sent_again(upstreams: Upstreams, streamed: bool) -> None:
    """Not what has been read from a client, whatever became of the connection."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"abc"

    async with RawWorker(resetting(json_answer(b"{}"))) as worker:
        origin = Origin.parse(worker.url)
        await (await upstreams.send(origin, post())).read(10)
        again = post()
        if streamed:
            again = msgspec.structs.replace(again, body=pieces(), length=3)
        with pytest.raises(StaleConnection) as stale:
            await upstreams.send(origin, again)
        assert stale.value.retryable is not streamed


async def test_dropping_a_worker_leaves_its_requests(upstreams: Upstreams) -> None:
    """Only free connections are closed."""
    go_on = asyncio.Event()

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            if request.endswith(b"wait"):
                await go_on.wait()
            await connection.send(json_answer(b"{}"))

    async with RawWorker(script) as worker:
        origin = Origin.parse(worker.url)
        waiting = asyncio.ensure_future(upstreams.send(origin, post(b"wait")))
        await (await upstreams.send(origin, post())).read(10)
        assert upstreams.open_connections == 2
        upstreams.drop(origin)
        await asyncio.sleep(0.01)
        assert upstreams.open_connections == 1
        go_on.set()
        assert (await waiting).status == 200


async def test_closing_fails_requests_under_way() -> None:
    """Nobody waits for ever."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.closed_by_peer()

    upstreams = Upstreams()
    async with RawWorker(script) as worker:
        origin = Origin.parse(worker.url)
        waiting = asyncio.ensure_future(upstreams.send(origin, post()))
        await asyncio.sleep(0.05)
        await upstreams.close()
        with pytest.raises(UpstreamReset):
            await waiting


async def test_cancelled_request_closes_its_connection(upstreams: Upstreams) -> None:
    """The worker must not go on computing."""
    took: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        took.set_result(await connection.closed_by_peer())

    async with RawWorker(script) as worker:
        sending = upstreams.send(Origin.parse(worker.url), post())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sending, timeout=0.05)
        await asyncio.wait_for(took, WAIT_S)


async def test_what_is_expected_to_take_long_is_waited_for() -> None:
    """The limit on the first byte grows with the estimate; that on silence does not."""

    async def script(connection: WorkerConnection) -> None:
        while await connection.request():
            await asyncio.sleep(0.6)
            await connection.send(json_answer(b"{}"))

    upstreams = Upstreams(timeouts=Timeouts(first_byte_s=0.2))
    async with RawWorker(script) as worker:
        origin = Origin.parse(worker.url)
        long = msgspec.structs.replace(post(), expected_s=1.0)
        assert (await upstreams.send(origin, long)).status == 200
        with pytest.raises(UpstreamTimeout):
            await upstreams.send(origin, post())
        await upstreams.close()
