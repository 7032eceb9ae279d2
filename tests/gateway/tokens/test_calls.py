"""Calls that bring ids along: what is read of their bodies."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.request.peek import FIELD_LIMIT, SMALL, peek_small, text_of
from gateway.tokens.call_body import Unreadable, fields_of
from gateway.tokens.calls import PATHS, Call, Request, read
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
    assert (text.texts, text.max_tokens, text.engine) == (
        b'{"prompt":"a"}',
        3,
        "sglang",
    )
    several_texts = await call("/generate", {"text": ["a", "b"]})
    assert json.loads(several_texts.texts) == {"prompt": ["a", "b"]}
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


def _cpu_s(work: Callable[[], object]) -> float:
    """Seconds of this thread, the least of some."""
    took = []
    for _ in range(5):
        begun = time.thread_time()
        work()
        took.append(time.thread_time() - begun)
    return min(took)


@pytest.mark.parametrize("path", sorted(PATHS))
async def test_fields_that_nobody_asks_for_are_passed_over(path: str) -> None:
    """Many make no more work than skimming the body for them."""
    many = b",".join(b'"%x":1' % n for n in range(95_000))
    body = b'{"input_ids":[1,2],"token_ids":[1,2],' + many + b"}"
    assert len(body) < SMALL

    def found() -> Call:
        with pytest.raises(StopIteration) as done:
            fields_of(body).send(None)  # in one step: it never waits
        return read(path, done.value.value)

    assert [unpack_ids(ids) for ids in found().prompts] == [[1, 2]]
    skimming = _cpu_s(lambda: peek_small(body))
    assert _cpu_s(found) < 4 * skimming


async def test_a_request_in_a_call_is_skimmed_too() -> None:
    """TensorRT-LLM's: no field that is not asked for is held."""
    request = {"model": "m"} | {f"{n:x}": 1 for n in range(1000)}
    body = {"schema_version": 1, "kind": "chat", "token_ids": [1], "request": request}
    fields = await fields_of(json.dumps(body).encode())
    assert fields.inner("request", Request).size == len('"m"')


async def test_large_features_are_found_where_they_are() -> None:
    """Data of images are neither copied nor kept; too much of the rest is not read."""
    data = "A" * (3 << 20)
    features = {
        "mm_hashes": {"image": ["h"]},
        "kwargs_data": {"image": [data]},
        "mm_placeholders": {"image": [{"offset": 1, "length": 2}]},
    }
    body = {"features": features, "token_ids": [1, 2, 3]}
    raw = json.dumps(body, indent=1).encode()
    fields = await fields_of(raw)
    assert fields.size < 1000
    (medium,) = read("/inference/v1/generate", fields).media
    assert medium.hash == "h"
    features["mm_hashes"] = {"image": [data]}
    with pytest.raises(Unreadable, match="too_complex"):
        await fields_of(json.dumps(body).encode())
