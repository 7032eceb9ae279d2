"""Calls that bring ids along: what is read of their bodies."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.request.peek import FIELD_LIMIT, text_of
from gateway.tokens.calls import PATHS, Call, Unreadable, fields_of, read
from kvindex.blocks import unpack_ids

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["image", "n", "offset", "length", "stream", "max_tokens"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
FIELDS = (
    "token_ids", "input_ids", "text", "features", "sampling_params", "stream", "model",
    "schema_version", "kind", "request", "cache_salt", "lora_path", "image_data",
    "extra_key", "lora_request",
)  # fmt: skip


async def call(path: str, body: Any) -> Call:
    """What is read of a body."""
    return read(path, await fields_of(json.dumps(body).encode()))


async def test_vllm() -> None:
    """Ids, sampling parameters, salt and media."""
    features = {
        "mm_hashes": {"image": ["h"]},
        "mm_placeholders": {"image": [{"offset": 1, "length": 2}]},
        "kwargs_data": {"image": ["x"]},
    }
    body = {
        "model": "m",
        "token_ids": [5, 6, 7],
        "sampling_params": {"max_tokens": 9, "n": 2},
        "stream": True,
        "cache_salt": "s",
        "features": features,
    }
    told = await call("/inference/v1/generate", body)
    assert [unpack_ids(ids) for ids in told.prompts] == [[5, 6, 7]]
    assert (told.engine, told.model, told.salt) == ("vllm", "m", "s")
    assert (told.max_tokens, told.stream) == (9, True)
    assert told.uncompared == "several_answers"
    assert [medium.hash for medium in told.media] == ["h"]


async def test_sglang() -> None:
    """One list of ids, several, or text."""
    one = await call("/generate", {"input_ids": [1, 2]})
    assert [unpack_ids(ids) for ids in one.prompts] == [[1, 2]]
    several = await call("/generate", {"input_ids": [[1, 2], [3]]})
    assert [unpack_ids(ids) for ids in several.prompts] == [[1, 2], [3]]
    sampling = {"max_new_tokens": 3}
    text = await call("/generate", {"text": "a", "sampling_params": sampling})
    assert (text.texts, text.max_tokens, text.engine) == (["a"], 3, "sglang")
    assert (await call("/generate", {"text": ["a", "b"]})).texts == ["a", "b"]
    apart = {"lora_path": "a", "extra_key": None}
    told = await call("/generate", {"text": "a"} | apart)
    assert told.lora_path is not None
    assert text_of(told.lora_path) == "a"
    assert told.extra_key is None
    with pytest.raises(Unreadable, match="too_complex"):
        await call("/generate", {"text": "a", "extra_key": "x" * FIELD_LIMIT})


async def test_trtllm() -> None:
    """Told apart by its version and kind; the request within says the rest."""
    request = {"model": "m", "stream": True, "max_tokens": 4, "n": 2}
    body = {"schema_version": 1, "kind": "chat", "token_ids": [1], "request": request}
    told = await call("/generate", body)
    assert (told.engine, told.model, told.stream) == ("trtllm", "m", True)
    assert (told.max_tokens, told.uncompared) == (4, "several_answers")


@given(
    st.sampled_from(sorted(PATHS)),
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6),
)
@example("/generate", {"input_ids": [[]]})
@settings(max_examples=300, deadline=None)
async def test_any_body_is_read_or_not(path: str, body: Any) -> None:
    """Nothing else happens."""
    try:
        told = await call(path, body)
    except Unreadable:
        return
    assert told.prompts or told.texts


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 5000])
async def test_what_is_no_object_is_not_read(body: bytes) -> None:
    """And said so."""
    with pytest.raises(Unreadable):
        await fields_of(body)
