"""Bodies of render requests are read as Python's JSON reader and pydantic do."""

import json
from typing import Any

import pytest

from render.refused import RenderRefused
from render.request import read_request

PLAIN: dict[str, Any] = {"messages": [{"role": "user", "content": "é x"}], "n": 1}
TEXT = json.dumps(PLAIN, ensure_ascii=False)


@pytest.mark.parametrize(
    "body",
    [
        TEXT.encode(),
        TEXT.encode("utf-8-sig"),
        TEXT.encode("utf-16"),
        TEXT.encode("utf-32-le"),
        json.dumps(PLAIN).encode(),
    ],
)
def test_encodings(body: bytes) -> None:
    """With a mark of the byte order, and in other encodings."""
    assert read_request(body) == PLAIN


def test_numbers_beyond_json() -> None:
    """NaN, infinities, and what is out of range; what they may be is checked later."""
    read = read_request(b'{"a": NaN, "b": -Infinity, "c": 1e999, "d": 1}')
    assert repr(read) == "{'a': nan, 'b': -inf, 'c': inf, 'd': 1}"


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (b'{"a": "x\\ud800"}', "string_unicode", "as a unicode string: surrogates"),
        (b'{"\\udc00": 1}', "string_unicode", "as a unicode string: surrogates"),
        (b'{"a": "\xff"}', "json_invalid", "can't decode byte 0xff"),
        (b'{"a": ', "json_invalid", "Expecting value"),
        (b'{"a": 1} x', "json_invalid", "Extra data"),
        (b'{"a": ' + b"1" * 5000 + b"}", "json_invalid", "4300 digits"),
        (b"[" * 100_000, "json_invalid", "recursion"),
        (b"[NaN]", "model_attributes_type", "valid dictionary"),
        (b"\xef\xbb\xbf", "json_invalid", "Expecting value"),
    ],
)
def test_refused(body: bytes, kind: str, words: str) -> None:
    """Each with what is wrong, as a 400."""
    with pytest.raises(RenderRefused) as caught:
        read_request(body)
    assert caught.value.status == 400
    assert f"'type': '{kind}'" in caught.value.message
    assert words in caught.value.message
