"""What the relay decides before it relays. The rest is in tests/proxy."""

import pytest
from aiohttp.test_utils import make_mocked_request

from gateway.errors import UpstreamReset
from gateway.request.relay import is_event_stream, relay
from gateway.upstreams.upstream_response import UpstreamResponse
from tests.gateway.upstreams.test_upstream_response import Flow


class Nobody:
    """An observer that must not be told anything."""

    def head(self, status: int, headers: object) -> None:
        raise AssertionError

    def first_byte(self) -> None:
        raise AssertionError

    def data(self, data: bytes) -> None:
        raise AssertionError

    def ended(self, error: object) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([(b"Content-Type", b"text/event-stream")], True),
        ([(b"content-type", b"Text/Event-Stream; charset=utf-8")], True),
        ([(b"Content-Type", b"application/json")], False),
        ([], False),
        (
            [(b"Content-Type", b"text/event-stream"), (b"Content-Encoding", b"br")],
            False,
        ),
        (
            [
                (b"Content-Type", b"text/event-stream"),
                (b"Content-Encoding", b"identity"),
            ],
            True,
        ),
    ],
)
def test_what_is_an_event_stream(
    headers: list[tuple[bytes, bytes]], expected: bool
) -> None:
    """By the worker's own words, and only where the events can be read."""
    assert is_event_stream(headers) is expected


async def test_an_answer_that_failed_before_the_relay_is_raised() -> None:
    """Nothing has been written: the handler can still answer something else."""
    response = UpstreamResponse(status=200, reason=b"OK", headers=[], flow=Flow())
    response.push([b"half"])
    response.fail(UpstreamReset("gone"))
    request = make_mocked_request("GET", "/")
    with pytest.raises(UpstreamReset):
        await relay(request, response, request_id=b"r", observer=Nobody())
