"""Whose key it is, and a file of keys that changes while requests run."""

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import cast

import pytest

from gateway.access.api_keys import ApiKey, as_toml, hash_of
from gateway.access.door import Access
from gateway.access.keyring import MOST_LABELS, Keyring
from gateway.background import running
from gateway.files import state
from gateway.metrics.registry import Metrics
from gateway.settings.config import Config
from tests.running import until


def record(name: str, key: str, **limits: int) -> ApiKey:
    """The record of a key."""
    return ApiKey(name=name, hash=hash_of(key), **limits)


def test_only_the_whole_key_opens() -> None:
    """Not its hash, not a part of it, not another case."""
    ring = Keyring([record("a", "kvg-secret")])
    holder = ring.holder("kvg-secret")
    assert holder is not None
    assert holder.name == "a"
    for wrong in ("", "kvg-secre", "KVG-SECRET", "kvg-secret ", hash_of("kvg-secret")):
        assert ring.holder(wrong) is None
    assert ring.holder("\udcff") is None


def test_who_stays_goes_on_as_it_was() -> None:
    """Requests in flight are still known; a key that is gone opens nothing."""
    ring = Keyring([record("a", "1", max_inflight=2), record("b", "2")])
    client = ring.holder("1")
    assert client is not None
    client.limits.take(0.0)
    ring.replace([record("a", "3", max_inflight=5)])  # a new key for the same client
    assert ring.holder("1") is None
    assert ring.holder("2") is None
    assert ring.holder("3") is client
    assert (client.limits.inflight, client.limits.max_inflight) == (1, 5)


def test_labels_are_bounded_for_good() -> None:
    """However many keys there are, and however often they change."""
    ring = Keyring(record(f"n{i}", str(i)) for i in range(MOST_LABELS + 50))
    labels = [client.label for client in ring.clients]
    assert labels[:MOST_LABELS] == [f"n{i}" for i in range(MOST_LABELS)]
    assert set(labels[MOST_LABELS:]) == {"other"}
    ring.replace([record("new", "new")])
    assert [client.label for client in ring.clients] == ["other"]


async def test_the_file_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """New keys open, old ones no more; a mistake changes nothing, and is said."""
    monkeypatch.setattr("gateway.files.LOOK_S", 0.02)
    caplog.set_level(logging.INFO)
    path = tmp_path / "keys.toml"
    path.write_text(as_toml(record("a", "1")))
    ring = Keyring([record("a", "1")])
    task = asyncio.create_task(ring.watch(path, state((path,))))
    try:
        await asyncio.sleep(0.05)
        path.write_text(as_toml(record("b", "2")))
        await until(lambda: ring.holder("2") is not None)
        assert ring.holder("1") is None
        path.write_text("[[keys]]\nname = 3")
        await until(lambda: "all stays as it was" in caplog.text)
        assert ring.holder("2") is not None
        path.unlink()
        await until(lambda: "No such file" in caplog.text)
        assert ring.holder("2") is not None
        path.write_text("")
        await until(lambda: ring.holder("2") is None)
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_change_before_it_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that is taken out while models are loaded opens nothing for long."""
    monkeypatch.setattr("gateway.files.LOOK_S", 0.02)
    path = tmp_path / "keys.toml"
    path.write_text(as_toml(record("gone", "1")))
    access = Access(Config(api_keys_file=path), Metrics())
    path.write_text(as_toml(record("new", "2")))
    ring = access._keyring
    assert ring is not None
    (watch,) = access.work().values()
    async with running(cast(Coroutine[None, None, None], watch())):
        await until(lambda: ring.holder("2") is not None)
    assert ring.holder("1") is None
