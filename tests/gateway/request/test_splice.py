"""Ids in a client's bytes: the body says the same and ids, all else is untouched."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.request.splice import SLICE_IDS, Edit, encoded, place
from kvindex.blocks import pack_ids

TOP = ("input_ids",)
NESTED = ("kv_transfer_params", "prompt_token_ids")
IDS = [1, 151_643, 0]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["messages", "kv_transfer_params", "prompt_token_ids", "a", "{", '"', "}", ",", ":"]
)
OBJECTS = st.dictionaries(st.text() | NAMES, JSON | st.dictionaries(NAMES, JSON))


def spliced(body: bytes, field: tuple[str, ...], ids: list[int] = IDS) -> bytes | None:
    """The body with ids in that field; None where they do not go in."""
    edit = place(body, json.loads(body), field)
    return None if edit is None else edit.apply(body, encoded(pack_ids(ids)))


@st.composite
def written(draw: st.DrawFn, value: Any) -> bytes:
    """JSON of a value, with any white space and any spelling of its strings."""
    space = st.text(" \t\r\n", max_size=3)

    def around(text: str) -> str:
        return draw(space) + text + draw(space)

    def write(value: Any) -> str:
        if isinstance(value, dict):
            members = (f"{write(k)}:{write(v)}" for k, v in value.items())
            text = "{" + (",".join(members) or draw(space)) + "}"
        elif isinstance(value, list):
            text = "[" + ",".join(map(write, value)) + "]"
        else:
            text = json.dumps(value, ensure_ascii=draw(st.booleans()))
        return around(text)

    return write(value).encode("utf-8", "surrogatepass")


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Any JSON object, written in any way."""
    return draw(written(draw(OBJECTS)))


def with_ids(value: dict[str, Any], field: tuple[str, ...]) -> dict[str, Any] | None:
    """What the spliced body is to say."""
    name, *rest = field
    if not rest:
        return None if name in value else {**value, name: IDS}
    inner = value.get(name) or {}
    if value.get(name) is not None and not isinstance(value[name], dict):
        return None
    return None if rest[0] in inner else {**value, name: {**inner, rest[0]: IDS}}


@given(bodies(), st.sampled_from([TOP, ("prompt_token_ids",), NESTED]))
def test_it_says_the_same_and_ids(body: bytes, field: tuple[str, ...]) -> None:
    """Parsed, it is what the client said and the ids; outside the edit, its bytes."""
    value = json.loads(body)
    edit = place(body, value, field)
    expected = with_ids(value, field)
    if expected is None:
        assert edit is None
        return
    assert edit is not None
    result = edit.apply(body, encoded(pack_ids(IDS)))
    assert json.loads(result) == expected
    assert result.startswith(body[: edit.start])
    assert result.endswith(body[edit.end :])
    assert edit.start == edit.end or body[edit.start : edit.end] == b"null"
    # A key that is there keeps its place, with all that is in it.
    assert list(json.loads(result))[: len(value)] == list(value)


@pytest.mark.parametrize(
    ("body", "field", "expected"),
    [
        (b"{}", TOP, b'{"input_ids":[1]}'),
        (b" { \n } \r\n", TOP, b' { \n "input_ids":[1]} \r\n'),
        (b'{"a": 1 }\n', TOP, b'{"a": 1 ,"input_ids":[1]}\n'),
        (b"{}", NESTED, b'{"kv_transfer_params":{"prompt_token_ids":[1]}}'),
        (
            b'{"a":"}","kv_transfer_params": null ,"b":[{}]}',
            NESTED,
            b'{"a":"}","kv_transfer_params": {"prompt_token_ids":[1]} ,"b":[{}]}',
        ),
        (
            b'{"kv_transfer_params":{ }}',
            NESTED,
            b'{"kv_transfer_params":{ "prompt_token_ids":[1]}}',
        ),
        (
            b'{"kv_transfer_params": {"r": {"x": "}"}, "s": "\\\\"} , "z": 0}',
            NESTED,
            b'{"kv_transfer_params": {"r": {"x": "}"}, "s": "\\\\",'
            b'"prompt_token_ids":[1]} , "z": 0}',
        ),
        (
            b'{"m": {"kv_transfer_params": 5}, "input_ids": [[]]}',
            NESTED,
            b'{"m": {"kv_transfer_params": 5}, "input_ids": [[]],'
            b'"kv_transfer_params":{"prompt_token_ids":[1]}}',
        ),
        (
            b'{"s": "\\"kv_transfer_params\\":", "kv_transfer_params": {}, "t": "{"}',
            NESTED,
            b'{"s": "\\"kv_transfer_params\\":", "kv_transfer_params": '
            b'{"prompt_token_ids":[1]}, "t": "{"}',
        ),
    ],
)
def test_where_ids_go(body: bytes, field: tuple[str, ...], expected: bytes) -> None:
    """Last in the object they belong to; an object there is added to, null replaced."""
    assert spliced(body, field, [1]) == expected


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"input_ids": [7]}', TOP),
        (b'{"input_ids": null}', TOP),
        (rb'{"input\u005fids": null}', TOP),
        (b'{"kv_transfer_params": {"prompt_token_ids": [7]}}', NESTED),
        (b'{"kv_transfer_params": {"prompt_token_ids": null}}', NESTED),
        (rb'{"kv_transfer_params": {"prompt_token_id\u0073": [7]}}', NESTED),
        (b'{"kv_transfer_params": "odd"}', NESTED),
        (b'{"kv_transfer_params": []}', NESTED),
        (b'{"kv_transfer_params": 0}', NESTED),
        (b'{"kv_transfer_params": {}, "kv_transfer_params": {}}', NESTED),
        (b'{"kv_transfer_params": 1, "kv_transfer_params": null}', NESTED),
        (rb'{"kv_transfer\u005fparams": {}}', NESTED),
        (rb'{"kv_transfer\u005fparams": {}, "kv_transfer_params": {}}', NESTED),
        (rb'{"kv_transfer_params": {}, "kv_transfer\u005fparams": {}}', NESTED),
    ],
)
def test_where_ids_do_not_go(body: bytes, field: tuple[str, ...]) -> None:
    """What the client says itself is left alone, and so is what can be read twice."""
    assert spliced(body, field) is None


def test_other_keys_may_come_twice() -> None:
    """Duplicates that have nothing to do with it stay; which counts is the worker's."""
    body = b'{"a": 1, "a": 2, "kv_transfer_params": {"b": 1, "b": 2}}'
    result = spliced(body, NESTED)
    assert result is not None
    assert result.startswith(body[:-2])
    pairs = json.loads(result, object_pairs_hook=lambda pairs: pairs)
    assert [name for name, _ in pairs] == ["a", "a", "kv_transfer_params"]


@pytest.mark.parametrize("count", [0, 1, SLICE_IDS, SLICE_IDS + 1, 3 * SLICE_IDS - 1])
def test_ids_are_written_in_slices(count: int) -> None:
    """Every id, in order, whatever the length."""
    ids = [(i * 7919) % 2**32 for i in range(count)]
    assert json.loads(encoded(pack_ids(ids))) == ids


def test_an_edit_copies_nothing_else() -> None:
    """Bytes that are no UTF-8 outside of the edit pass as they are."""
    edit = Edit(start=2, end=2, before=b"<", after=b">")
    assert edit.apply(b"\xff\xfe\xfd", b"[]") == b"\xff\xfe<[]>\xfd"


@pytest.mark.parametrize("item", [b'{"a":1}', b"[]", b'"x"', b"[[[[]]]]"])
def test_a_large_body_of_small_things(item: bytes) -> None:
    """Where the field is takes no longer than reading the body."""
    items = b",".join([item] * (2_000_000 // (len(item) + 1)))
    body = b'{"x":[%b], "kv_transfer_params" :\n{"a": 1 } , "messages":[]}' % items
    decoded = msgspec.json.decode(body)
    begun = time.thread_time()
    edit = place(body, decoded, NESTED)
    assert time.thread_time() - begun < 0.3
    assert edit is not None
    assert body[edit.start - 8 : edit.end + 1] == b'{"a": 1 }'
    # One that may have another name for it would have to be scanned.
    escaped = body.replace(b'"messages"', b'"\\u006dessages"')
    assert place(escaped, msgspec.json.decode(escaped), NESTED) is None


@pytest.mark.parametrize(
    "more",
    [
        b'"a":"\\"kv_transfer_params",',
        b'"a":{"kv_transfer_params":null},',
        b'"kv_transfer_params2":1,"a":"kv_transfer_params",',
        b'"a":"\\u0041",',
    ],
)
def test_what_looks_like_the_field(more: bytes) -> None:
    """In texts, in objects, and at the end of a text; or may be spelled otherwise."""
    body = b"{" + more + b'"kv_transfer_params":{"b":2}}'
    wanted = b"{" + more + b'"kv_transfer_params":{"b":2,"prompt_token_ids":[7]}}'
    edit = place(body, msgspec.json.decode(body), NESTED)
    assert edit is not None
    assert edit.apply(body, b"[7]") == wanted
