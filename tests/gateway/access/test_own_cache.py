"""Clients that share no cache: salts in their bodies, and what comes of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.access.api_keys import hash_of
from gateway.access.own_cache import LENGTH, salt_of, with_salt
from gateway.app import Gateway
from gateway.errors import ConfigError
from gateway.settings.config import Config
from tests.gateway.access.test_clients import KEY, OTHER_KEY, bearer, keys_file
from tests.proxy.conftest import serve as gateway_for
from tests.proxy.raw import RawClient, RawWorker, answering, json_answer
from tests.running import (
    MODEL,
    WITH_EVENTS,
    Running,
    StartGateway,
    StartWorker,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=50)
@given(
    st.dictionaries(st.text(), JSON, max_size=4),
    st.sampled_from(["", " ", "\n\t ", "\r\n"]),
    st.sampled_from([None, 2]),
)
def test_any_object_with_a_salt(
    body: dict[str, Any], blank: str, indent: int | None
) -> None:
    """All else is as it was, and its bytes are."""
    text = json.dumps(body, indent=indent) + blank
    salted = with_salt(text.encode(), "abc")
    assert json.loads(salted) == body | {"cache_salt": "abc"}
    assert salted.startswith(text.rstrip()[:-1].encode())


def test_the_last_salt_is_the_one() -> None:
    """Whatever the client wrote, once or more often."""
    body = b'{"cache_salt": "a", "messages": [], "cache_salt": "b"}'
    assert json.loads(with_salt(body, "ours"))["cache_salt"] == "ours"
    assert with_salt(b"{}", "x") == b'{"cache_salt":"x"}'
    assert with_salt(b"{ \n}", "x") == b'{ \n"cache_salt":"x"}'


def test_salts_of_clients() -> None:
    """Never equal: not by a salt of a client's own, nor by where one part ends."""
    first, second = hash_of(KEY), hash_of(OTHER_KEY)
    salts = {
        salt_of(key, own)
        for key in (first, second)
        for own in (None, "a", "b", first, second, "\0", "\ud800")
    }
    assert len(salts) == 14
    assert all(len(salt) == LENGTH for salt in salts)
    assert salt_of(first, None) == salt_of(first, None)


async def test_what_reaches_the_worker(tmp_path: Path) -> None:
    """Bodies that some worker reads as objects, at those endpoints; others stay."""
    path = keys_file(tmp_path)
    body = b'{"cache_salt": "x", "n": 1e400}'
    key = f"Authorization: Bearer {KEY}".encode()
    ours = salt_of(hash_of(KEY), "x").encode()
    async with (
        RawWorker(answering(json_answer(b"{}"))) as worker,
        gateway_for(worker, api_keys_file=path, cache_per_client=True) as gateway,
        RawClient(gateway.port) as client,
    ):

        async def reached(sent: bytes, *headers: bytes, path: bytes) -> bytes:
            await client.post(sent, key, *headers, path=path)
            await client.answer()
            return worker.requests[-1].partition(b"\r\n\r\n")[2]

        for route in (b"/v1/chat/completions", b"/v1/completions", b"/v1/responses"):
            got = await reached(body, path=route)
            assert got == body[:-1] + b',"cache_salt":"' + ours + b'"}'
        chat = b"/v1/chat/completions"
        assert await reached(b"[1]", path=chat) == b"[1]"
        assert await reached(b"{}x", path=chat) == b"{}x"
        nobodys = salt_of(hash_of(KEY), None).encode()
        for odd in (b'{"n": NaN}', b'{"a": "\\ud83d"}', b'\xef\xbb\xbf{"n": 1}'):
            got = await reached(odd, path=chat)
            assert got == odd[:-1] + b',"cache_salt":"' + nobodys + b'"}'
        utf16 = '{"n": 1}'.encode("utf-16")
        assert await reached(utf16, path=chat) == utf16
        assert await reached(body, b"Content-Encoding: gzip", path=chat) == body
        assert await reached(body, b"Digest: sha-256=x", path=chat) == body
        assert await reached(body, path=b"/v1/embeddings") == body


async def test_nobody_hits_what_another_sent(
    start_worker: StartWorker, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """The worker does not, and the gateway does not expect it to; one's own is hit."""
    worker = await start_worker(WITH_EVENTS)
    gateway = await start_gateway(
        worker, api_keys_file=keys_file(tmp_path), cache_per_client=True
    )
    cached = []
    for key in (KEY, OTHER_KEY, KEY, OTHER_KEY):
        cached.append(await _cached(gateway, key))
        await gateway.until_events_arrive(worker)
    assert cached[:2] == [0, 0]
    assert cached[2] == cached[3] > 100
    predicted, delivered = await gateway.hits()
    assert predicted == delivered == sum(cached)


async def _cached(gateway: Running, key: str) -> int:
    """The tokens of one and the same long chat that the worker had cached."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "the same long question " * 60}],
        "max_tokens": 1,
    }
    async with gateway.client.post(
        gateway.url + "/v1/chat/completions", json=body, headers=bearer(key)
    ) as response:
        assert response.status == 200, await response.text()
        usage = (await response.json())["usage"]
    return int((usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0)


def test_it_needs_clients() -> None:
    """Without keys there is nobody to keep apart."""
    with pytest.raises(ConfigError, match="--cache-per-client is of no use"):
        Gateway(Config(cache_per_client=True))
