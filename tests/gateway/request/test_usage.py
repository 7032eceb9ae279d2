"""Finding the usage a worker reports, in any shape and any cut."""

import json
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.request.usage import MAX_OBJECT, UsageScanner
from router.request import Usage

CHAT = (
    b'{"id":"x","choices":[{"message":{"content":"about \\"usage\\": {\\"a\\":1}"}}],'
    b'"usage":{"prompt_tokens":12,"total_tokens":15,"completion_tokens":3,'
    b'"prompt_tokens_details":{"cached_tokens":8}},"prompt_token_ids":null}'
)
FULL = Usage(prompt_tokens=12, completion_tokens=3, cached_tokens=8)


def scan(*pieces: bytes) -> Usage | None:
    """What is found in these pieces."""
    scanner = UsageScanner()
    for piece in pieces:
        scanner.feed(piece)
    return scanner.usage


@given(st.lists(st.integers(1, len(CHAT)), max_size=12))
def test_any_cut(at: list[int]) -> None:
    """The same counts whatever the reads were."""
    places = sorted({0, len(CHAT), *at})
    assert scan(*(CHAT[a:b] for a, b in pairwise(places))) == FULL


def test_byte_by_byte() -> None:
    """The worst cut."""
    assert scan(*(CHAT[i : i + 1] for i in range(len(CHAT)))) == FULL


def test_white_space_and_order() -> None:
    """Pretty-printed, with details first."""
    usage = {
        "prompt_tokens_details": {"cached_tokens": 8, "audio_tokens": None},
        "completion_tokens": 3,
        "prompt_tokens": 12,
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    assert scan(json.dumps({"usage": usage}, indent=4).encode()) == FULL


def test_responses_shape() -> None:
    """input_tokens and output_tokens."""
    body = (
        b'data: {"type":"response.completed","response":{"usage":{"input_tokens":12,'
        b'"input_tokens_details":{"cached_tokens":8},"output_tokens":3,'
        b'"output_tokens_details":{"reasoning_tokens":0},"total_tokens":15}}}\n\n'
    )
    assert scan(body) == FULL


@pytest.mark.parametrize("details", [b"null", b"{}", b'{"cached_tokens":null}', b'"x"'])
def test_cached_tokens_not_reported(details: bytes) -> None:
    """None is not zero."""
    body = b'{"usage":{"prompt_tokens":1,"prompt_tokens_details":%b}}' % details
    assert scan(body) == Usage(prompt_tokens=1, completion_tokens=0, cached_tokens=None)


def test_the_last_one_counts() -> None:
    """Usage in every event, nulls in between, in one read or many."""
    events = [
        b'data: {"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":1}}\n\n',
        b'data: {"choices":[{}],"usage":null}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3}}\n\n',
        b'data: {"choices":[{}],"usage":null}\n\n',
        b"data: [DONE]\n\n",
    ]
    expected = Usage(prompt_tokens=12, completion_tokens=3, cached_tokens=None)
    assert scan(*events) == expected
    assert scan(b"".join(events)) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"choices":[]}',
        b'{"usage":null}',
        b'{"usage":[1]}',
        b'{"usage":{}}',
        b'{"usage":{"prompt_tokens":-1}}',
        b'{"usage":{"prompt_tokens":true}}',
        b'{"usage":{"prompt_tokens":1.5}}',
        b'{"usage":{"prompt_tokens":"12"}}',
        b'{"usage":{"prompt_tokens":12',
        b'{"usage":{"prompt_tokens":12,}}',
        b'{"usage":{"\xff":12}}',
        b'{"content":"usage"}',
        b'{"content":"\\"usage\\":{\\"prompt_tokens\\":1}"}',
        b"\x1f\x8b\x08\x00 compressed",
    ],
)
def test_none(body: bytes) -> None:
    """Nothing that can be read."""
    assert scan(body) is None


def test_memory_is_bounded() -> None:
    """An object without end is let go."""
    scanner = UsageScanner()
    scanner.feed(b'{"usage":{"a":"')
    for _ in range(1000):
        scanner.feed(b"x" * 100)
        assert len(scanner._tail) <= MAX_OBJECT + 100
    assert scanner._tail == b""


def test_later_usage_after_an_endless_one() -> None:
    """Does not spoil what follows."""
    body = b'"usage":{' + b" " * 5000 + b'"usage":{"prompt_tokens":12}'
    found = scan(*(body[i : i + 50] for i in range(0, len(body), 50)))
    assert found is not None
    assert found.prompt_tokens == 12


@pytest.mark.parametrize("number", ["9" * 400, "1099511627777", "-1", "true", "1.5"])
def test_no_number_of_tokens(number: str) -> None:
    """What no prompt can have is not counted with: it would spoil every sum."""
    assert scan(b'{"usage":{"prompt_tokens":%b}}' % number.encode()) is None
    found = scan(
        b'{"usage":{"prompt_tokens":5,"completion_tokens":%b,'
        b'"prompt_tokens_details":{"cached_tokens":%b}}}' % ((number.encode(),) * 2)
    )
    assert found == Usage(prompt_tokens=5, completion_tokens=0, cached_tokens=None)


def test_keys_without_end_cost_little() -> None:
    """Hundreds of objects that are never closed are not each looked at again."""
    scanner, begun = UsageScanner(), time.process_time()
    for _ in range(2_000):
        scanner.feed(b'"usage": {')
    assert scanner.usage is None
    assert time.process_time() - begun < 2
    scanner.feed(b'"usage": {"prompt_tokens": 3}')
    assert scanner.usage is not None
