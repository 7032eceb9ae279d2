"""Cutting event streams: whole events out, whatever the reads were."""

import re
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import UpstreamReset
from gateway.request.sse import KEPT, WholeEvents, data_of, error_event, has_data

LINES = st.sampled_from([b"data: 1", b"data:", b": c", b"event: e", b"\xf0\x9f\x98"])
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
EVENT = st.builds(
    lambda lines, end: b"".join(line + end for line in lines) + end,
    st.lists(LINES, min_size=1, max_size=3),
    ENDS,
)
CUTS = st.lists(st.integers(0, 400), max_size=30)
BLANK = re.compile(rb"(\r\n|\n|\r)(\r\n|\n|\r)$|\r\n\r$")


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """`data` cut at these places."""
    places = sorted({0, len(data), *(a for a in at if a < len(data))})
    return [data[a:b] for a, b in pairwise(places)]


@given(st.lists(EVENT, max_size=5), CUTS, st.sampled_from([b"", b"data: rest"]))
def test_bytes_are_kept_and_events_whole(
    events: list[bytes], at: list[int], rest: bytes
) -> None:
    """Joined, the output is the input; every part ends with a blank line."""
    whole = WholeEvents()
    stream = b"".join(events) + rest
    parts = [whole.feed(piece) for piece in cut(stream, at)]
    assert b"".join(parts) + whole.rest() == stream
    assert all(BLANK.search(part) for part in parts if part)


@given(st.lists(EVENT, min_size=1, max_size=5))
def test_whole_events_pass_at_once(events: list[bytes]) -> None:
    """A read of whole events is passed in one piece, with nothing held."""
    whole = WholeEvents()
    assert whole.feed(b"".join(events)) == b"".join(events)
    assert whole.rest() == b""


@given(CUTS)
def test_a_long_event_passes_as_it_comes(at: list[int]) -> None:
    """What is held stays bounded, and framing recovers after it."""
    whole = WholeEvents(max_held=50)
    stream = b"data: " + b"x" * 300 + b"\n\n" + b"data: [DONE]\n\n"
    got = b""
    for piece in cut(stream, at):
        got += whole.feed(piece)
    assert got + whole.rest() == stream
    assert not whole.inside


def test_memory_is_bounded() -> None:
    """Of an event without end no more than the limit is held."""
    whole = WholeEvents(max_held=1000)
    passed = sum(len(whole.feed(b"x" * 100)) for _ in range(100))
    assert passed >= 10_000 - 1000
    assert whole.inside


@pytest.mark.parametrize(
    ("stream", "done"),
    [
        (b"data: [DONE]\n\n", True),
        (b"data: 1\r\n\r\ndata: [DONE]\r\n\r\n", True),
        (b"data:[DONE]\n\n", True),
        (b"data: 1\n\n", False),
        (b'data: "[DONE]"\n\n', False),
        (b"data: [DONE]\n\ndata: 1\n\n", False),
        (b"xdata: [DONE]\n\n", False),
        (b"data: [DONE]", True),
        (b"data: [DONE", False),
        (b"data: [DONE]\n\n: bye\n\n", True),
        (b"data: [DONE]\n\n: [DONE]\n\ndata: 1\n\n: bye\n\n", False),
        (b"event: done\ndata: [DONE]\nid: 7\n\n", True),
        (b"event: done\r\ndata: [DONE]\r\nid: 7\r\n\r\n: x\r\n\r\n", True),
        (b'event: message_stop\ndata: {"type":"message_stop"}\n\n', True),
        (b'data: {"type":"message_stop"}\n\ndata: [DONE]\n\n', True),
        (b'data: {"type":"message_delta","t":"message_stop"}\n\n', False),
        (b'event: response.completed\ndata: {"response":{}}\n\n', True),
        (b'data: {"response":{},"type":"response.incomplete"}\n\n', True),
        (b'data: {"response":{"type":"response.completed"}}\n\n', False),
        (b"event: message_stop\n\n", False),
        (b'data: {"t":"[DONE]"}\n\n', False),
        (b": [DONE]\n\n", False),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_done(stream: bytes, done: bool, size: int) -> None:
    """Only a last event with data that says so, in any cut."""
    whole = WholeEvents()
    for start in range(0, len(stream), size):
        whole.feed(stream[start : start + size])
    assert whole.done is done


@pytest.mark.parametrize("length", [10, KEPT, 5 * KEPT])
@pytest.mark.parametrize("after", [b"", b": bye\n\n", b"data: [DONE]\n\n"])
@pytest.mark.parametrize("size", [1000, 1_000_000])
def test_done_by_a_long_event(length: int, after: bytes, size: int) -> None:
    """The whole answer may be in it: its name is read, held as a whole or not."""
    big = b'event: response.%%b\ndata: {"x":"%b"}\n\n' % (b"x" * length)
    for name, done, failed in [
        (b"completed", True, False),
        (b"failed", False, True),
        (b"created", False, False),
    ]:
        whole = WholeEvents(max_held=2 * KEPT)
        stream = b"data: 1\n\n" + big % name + after
        for start in range(0, len(stream), size):
            whole.feed(stream[start : start + size])
        said_so = after.startswith(b"data")
        assert whole.done is (done or said_so)
        assert whole.failed is failed or said_so


def test_a_long_event_that_is_not_whole_ends_nothing() -> None:
    """Its name alone does not."""
    whole = WholeEvents(max_held=1000)
    whole.feed(b"event: message_stop\ndata: " + b"x" * 2000)
    assert not whole.done
    whole.feed(b"\n\n")
    assert whole.done


@pytest.mark.parametrize(
    ("reads", "failed"),
    [
        ([b'data: {"error": {"message": "m"}}\n\n'], True),
        ([b'data: {"error": {"message": "%b"}}\n\n' % (b"m" * 9000)], True),
        ([b'data: {"error": "m"}\n\n', b": ping\n\n", b"\r\n"], True),
        ([b'data: {"error": "m"}\n\n: ping\n\n'], True),
        ([b'data: {"error": "m"}\n\ndata: [DONE]\n\n'], True),
        ([b'event: error\ndata: {"type": "error", "message": "m"}\n\n'], True),
        ([b'event: error\ndata: {"type": "error", "error": {}}\n\n'], True),
        ([b"event: error\ndata: out of memory\n\n"], True),
        ([b'data: {"type": "response.failed", "response": {}}\n\n'], True),
        ([b'data: {"type": "response.completed", "response": {}}\n\n'], False),
        ([b'data: {"error": "m"}\n\n', b"data: {}\n\n"], False),
        ([b'data: {"error": null}\n\n'], False),
        ([b'data: {"type": {"name": "error"}}\n\n'], False),
        ([b'data: {"error": "m"}\n'], False),
        ([b'data: {"error": "m"}\n\n', b"x" * 100_001], False),
        ([b'data: {"error": "m"}\n\n', b"x" * 100_001, b"\n\n"], False),
        ([b": ping\n\n"], False),
    ],
)
def test_failed(reads: list[bytes], failed: bool) -> None:
    """Only a last whole event that is an error, whatever the reads were."""
    whole = WholeEvents(max_held=100_000)
    for read in reads:
        whole.feed(read)
    assert whole.failed is failed


@pytest.mark.parametrize(
    ("stream", "broken_off"),
    [
        (b"", False),
        (b"data: 1\n\n", False),
        (b"data: 1\r\n\r\n\r\n", False),
        (b"data: 1\n\ndata", True),
        (b"data: 1\n", True),
        (b"x" * 1001, True),
        (b"x" * 1001 + b"\n\n", False),
        (b"data: [DONE]", False),
        (b"data: [DONE]\n\nd", False),
    ],
)
def test_broken_off(stream: bytes, broken_off: bool) -> None:
    """Where an event has begun; line ends begin none, and [DONE] is the last."""
    whole = WholeEvents(max_held=1000)
    for start in range(0, len(stream), 100):
        whole.feed(stream[start : start + 100])
    assert whole.broken_off is broken_off


def test_error_event_drops_what_is_held() -> None:
    """A half event is never sent; the error is one event of its own."""
    whole = WholeEvents()
    whole.feed(b'data: 1\n\ndata: {"half')
    error = UpstreamReset("the worker closed the connection")
    assert whole.error_event(error) == error_event(error)
    assert whole.rest() == b""
    assert error_event(error) == b"data: %b\n\n" % error.body()


@pytest.mark.parametrize(
    ("last", "number"),
    [
        (b'data: {"sequence_number":6}\n\n: ping\n\n', 7),
        (b'data: {"sequence_number":"6"}\n\n', 0),
        (b"data: 6\n\n", 0),
        (b": ping\n\n", 0),
    ],
)
def test_the_error_of_responses_goes_on_with_their_numbers(
    last: bytes, number: int
) -> None:
    """It is the event that follows the last whole one."""
    whole = WholeEvents()
    whole.feed(last + b'data: {"half')
    event = whole.error_event(UpstreamReset("gone"), "/v1/responses")
    name, _, data = event.partition(b"\ndata: ")
    assert name == b"event: error"
    assert msgspec.json.decode(data)["sequence_number"] == number


@given(st.lists(st.tuples(ENDS, ENDS), max_size=5))
def test_events_are_told_apart_by_any_line_ends(
    ends: list[tuple[bytes, bytes]],
) -> None:
    """Mixed ones, too; but a CR and the LF after it are one."""
    blank = [one + other for one, other in ends if one + other != b"\r\n"]
    events = b"".join(b"data: %d%b" % pair for pair in enumerate(blank))
    assert [*data_of(events)] == [b"%d" % number for number in range(len(blank))]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (b"data: 1\n\n", True),
        (b": ping\n\ndata:1\n\n", True),
        (b"event: x\rdata: 1\r\r", True),
        (b": ping\n\n", False),
        (b": no data: here\n\n", False),
    ],
)
def test_has_data(events: bytes, expected: bool) -> None:
    """Comments are no first token."""
    assert has_data(events) is expected
