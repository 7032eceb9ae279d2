"""An answer between its connection and whoever takes it."""

import asyncio

import pytest

from gateway.errors import GatewayError, UpstreamFailed, UpstreamReset
from gateway.upstreams.upstream_response import EARLY_LIMIT, UpstreamResponse


class Flow:
    """Records what the answer asked of its connection."""

    def __init__(self) -> None:
        self.paused = False
        self.aborted = False

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def abort(self) -> None:
        self.aborted = True

    async def settled(self) -> None:
        return


class Sink:
    """Records what was pushed."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.ends = 0
        self.errors: list[GatewayError] = []

    def data(self, pieces: list[bytes]) -> None:
        self.got += pieces

    def end(self) -> None:
        self.ends += 1

    def failed(self, error: GatewayError) -> None:
        self.errors.append(error)


@pytest.fixture
def flow() -> Flow:
    """A connection."""
    return Flow()


@pytest.fixture
def response(flow: Flow) -> UpstreamResponse:
    """An answer whose head has come."""
    return UpstreamResponse(status=200, reason=b"OK", headers=[], flow=flow)


def test_what_came_early_is_pushed_first(response: UpstreamResponse) -> None:
    """In order, and the end once."""
    sink = Sink()
    response.push([b"a", b"b"])
    response.attach(sink)
    response.push([b"c"])
    response.finish()
    assert sink.got == [b"a", b"b", b"c"]
    assert (sink.ends, sink.errors) == (1, [])


def test_complete_before_it_is_attached(response: UpstreamResponse) -> None:
    """The common small answer."""
    sink = Sink()
    response.push([b"a"])
    response.finish()
    response.attach(sink)
    assert (sink.got, sink.ends) == ([b"a"], 1)
    assert not response.open


def test_early_body_is_bounded(response: UpstreamResponse, flow: Flow) -> None:
    """The connection is paused until somebody takes it."""
    response.push([b"x" * EARLY_LIMIT])
    assert not flow.paused
    response.push([b"x"])
    assert flow.paused
    response.attach(Sink())
    assert not flow.paused


def test_failure_is_told_once(response: UpstreamResponse) -> None:
    """Whoever comes later finds it in `error`."""
    sink = Sink()
    error = UpstreamReset("gone")
    response.attach(sink)
    response.fail(error)
    response.fail(UpstreamReset("again"))
    assert sink.errors == [error]
    assert response.error is error


def test_abort_is_idempotent_and_silent(response: UpstreamResponse, flow: Flow) -> None:
    """It does nothing to a complete answer."""
    sink = Sink()
    response.attach(sink)
    response.abort()
    response.abort()
    assert flow.aborted
    assert (sink.ends, sink.errors) == (0, [])
    flow.aborted = False
    response.abort()
    assert not flow.aborted


async def test_read(response: UpstreamResponse) -> None:
    """The whole body."""
    reading = asyncio.ensure_future(response.read(100))
    await asyncio.sleep(0)
    response.push([b"ab"])
    await asyncio.sleep(0)
    response.push([b"c"])
    response.finish()
    assert await reading == b"abc"


async def test_read_is_bounded(response: UpstreamResponse, flow: Flow) -> None:
    """A longer body is given up."""
    response.push([b"x" * 101])
    with pytest.raises(UpstreamFailed):
        await response.read(100)
    assert flow.aborted


async def test_iteration_pulls(response: UpstreamResponse, flow: Flow) -> None:
    """Nothing is asked for while nobody takes what has come."""
    response.push([b"a"])
    pieces = aiter(response)
    assert await anext(pieces) == b"a"
    assert flow.paused
    waiting = asyncio.ensure_future(anext(pieces))
    await asyncio.sleep(0)
    assert not flow.paused
    response.fail(UpstreamReset("gone"))
    with pytest.raises(UpstreamReset):
        await waiting
