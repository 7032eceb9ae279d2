"""Peeking at bodies: the fields, and nothing ever raised."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.request.peek import FIELD_LIMIT, SMALL, Peeked, peek, peek_small

CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": 'a "quoted" \\ text'}],
    "model": "m",
    "stream": True,
    "max_tokens": 7,
    "tools": [],
    "cache_salt": "s",
}

GIVEN_UP = Peeked(problem="too_complex")


def large(body: dict[str, Any]) -> bytes:
    """The same object, over the size that is skimmed in one go."""
    return json.dumps({"padding": "x" * SMALL + '\\"{' * 999, **body}).encode()


@pytest.mark.parametrize("encode", [lambda b: json.dumps(b).encode(), large])
async def test_fields(encode: Any) -> None:
    """Small and large bodies read the same."""
    peeked = await peek(encode(CHAT))
    assert peeked.problem is None
    assert (peeked.model, peeked.stream, peeked.max_tokens) == ("m", True, 7)
    assert peeked.cache_salt == "s"
    assert peeked.messages is not None
    assert json.loads(bytes(peeked.messages)) == CHAT["messages"]
    assert len(peeked.content) == 2
    assert peeked.prompt is None


@pytest.mark.parametrize("encode", [lambda b: json.dumps(b).encode(), large])
async def test_wrong_types_are_none(encode: Any) -> None:
    """One odd field says nothing of the others."""
    odd = {"model": 1, "stream": "yes", "max_tokens": 1.5, "messages": None}
    peeked = await peek(encode({**odd, "cache_salt": "s"}))
    assert peeked == Peeked(cache_salt="s")


@pytest.mark.parametrize("pad", [b"", b" " * 2000 + b'"p":"' + b"x" * SMALL + b'",'])
async def test_the_last_of_repeated_fields_counts(pad: bytes) -> None:
    """As JSON readers in Python have it."""
    assert (await peek(b'{%b"model":"a","model":"b"}' % pad)).model == "b"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "empty"),
        (b"nonsense", "not_json"),
        (b"[1]", "not_object"),
        (b'"text"', "not_object"),
        (b'{"a":1]', "not_json"),
        (b'{"a":1', "not_json"),
        (b'{"a":1} x', "not_json"),
        (b"\xef\xbb\xbf[1]", "not_json"),
        (b'{"a":"' + b"x" * SMALL + b'"]', "not_json"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too_deep"),
        (b'{"a":"' + b"x" * SMALL, "not_json"),
        (b"[" + b"1," * SMALL, "not_object"),
        (b'{"a":' + b"[" * SMALL, "too_deep"),
        (b'{"a":1}' + b"x" * SMALL, "not_json"),
        (b'{"a" 1, "b": "' + b"x" * SMALL + b'"}', "not_json"),
        (b'{"a":"' + b"\\" * SMALL + b'"}', "too_complex"),
    ],
)
async def test_problems(body: bytes, problem: str) -> None:
    """In fixed words, small and large."""
    assert await peek(body) == Peeked(problem=problem)


@pytest.mark.parametrize("pad", [b"", b',"p":"' + b"x" * SMALL + b'"'])
@pytest.mark.parametrize(
    ("start", "odd"),
    [(b"", b"NaN"), (b"", b'"\\ud83d"'), (b"\xef\xbb\xbf", b"1"), (b"", b'"\n"')],
)
async def test_what_only_some_workers_read(
    start: bytes, odd: bytes, pad: bytes
) -> None:
    """It goes to one that has the model, which reads it, or says what is wrong."""
    body = b'%b{"a":%b,"model":"m","stream":true%b}' % (start, odd, pad)
    assert await peek(body) == Peeked(model="m", stream=True)


@given(st.binary(max_size=200))
def test_never_raises(body: bytes) -> None:
    """Whatever it is."""
    peek_small(body)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_never_raises_on_json(value: object) -> None:
    """Also where fields have our names and odd values."""
    peek_small(json.dumps({"model": value, "messages": value}).encode())


async def test_structure_without_end_is_given_up() -> None:
    """A body of millions of tiny values costs a bounded time."""
    begun = time.perf_counter()
    peeked = await peek(b'{"a":[' + b"1," * 20_000_000 + b'1],"model":"m"}')
    assert peeked.problem == "too_complex"
    assert time.perf_counter() - begun < 3


@pytest.mark.parametrize(
    "name",
    [
        "model", "stream", "max_tokens", "max_completion_tokens", "cache_salt",
        "extra_key", "lora_path", "lora_request",
    ],
)  # fmt: skip
@pytest.mark.parametrize("encode", [lambda b: json.dumps(b).encode(), large])
async def test_values_without_end_are_given_up(name: str, encode: Any) -> None:
    """What is decoded whole is short: nothing long is decoded on the event loop."""
    assert await peek(encode({**CHAT, name: "x" * (FIELD_LIMIT - 2)})) != GIVEN_UP
    assert await peek(encode({**CHAT, name: "x" * (FIELD_LIMIT - 1)})) == GIVEN_UP


@pytest.mark.parametrize("encode", [lambda b: json.dumps(b).encode(), large])
@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, None),
        ({"n": 1}, None),
        ({"n": 2}, "several_answers"),
        ({"n": None, "best_of": 3}, "several_answers"),
        ({"n": "2", "best_of": [4]}, None),
        ({"n": 10**40}, None),
        ({"use_beam_search": True}, "several_answers"),
        ({"use_beam_search": False, "n": 1}, None),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"prompt_logprobs": 5}, "prompt_logprobs"),
        ({"prompt_logprobs": None}, None),
        ({"prompt_logprobs": False}, None),
        ({"echo": True}, None),
        ({"logprobs": 1}, None),
        ({"logprobs": True, "echo": False}, None),
        ({"echo": True, "logprobs": 1}, "prompt_logprobs"),
        ({"echo": True, "logprobs": None}, None),
        ({"n": 2, "prompt_logprobs": 1}, "several_answers"),
    ],
)
async def test_answers_that_tell_of_another_look_up(
    encode: Any, fields: dict[str, Any], word: str | None
) -> None:
    """Several samples, and prompts that are computed for their log probabilities."""
    assert (await peek(encode(CHAT | fields))).uncompared == word
