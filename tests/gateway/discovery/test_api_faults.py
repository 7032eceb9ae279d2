"""An API server that lies, is away, forgets or falls silent: the fleet stays whole."""

import asyncio
import logging
from pathlib import Path

import pytest
from aiohttp import web

from gateway.background import running
from gateway.discovery import api_server
from tests.gateway.discovery.api import ScriptedApi, endpoint, endpoint_slice
from tests.gateway.discovery.conftest import Follow
from tests.gateway.discovery.endpoints import A, B, C, settled
from tests.gateway.discovery.found import Found
from tests.running import until


async def test_a_watch_that_breaks_off_within_an_event(
    api: ScriptedApi, found: Found, follow: Follow
) -> None:
    """Half a line is no event; it comes again, whole."""
    api.put(endpoint_slice("s1", [A]))
    source = await follow()
    await until(lambda: bool(api.watches))
    api.mute = True
    api.put(endpoint_slice("s1", [A, B]))
    api.say(b'{"type": "MODIFIED", "object": {"metadata"')
    api.drop()
    await settled(found, a="ready", b="ready")
    assert source.standing.failures["dropped"] == 1
    assert api.lists == 1


@pytest.mark.parametrize("within", [True, False])
async def test_a_version_that_is_too_old(
    api: ScriptedApi, found: Found, follow: Follow, within: bool
) -> None:
    """410, within a watch or as its status: listed anew; the same workers stay."""
    api.put(endpoint_slice("s1", [A, B]))
    await follow()
    await settled(found, a="ready", b="ready")
    worker = found.worker("10.0.0.1:8000")
    await until(lambda: bool(api.watches))
    api.slices["s1"] = endpoint_slice("s1", [A, C])  # of which no event tells
    if within:
        api.expire()
    else:
        api.version += 1
        api.oldest = api.version
        api.drop()
    await settled(found, a="ready", c="ready")
    assert api.lists == 2
    assert found.worker("10.0.0.1:8000") is worker


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "MODIFIED", "object": {"metadata": {"name": "s1"}, "endpoints": 7}},
        {"type": "MODIFIED", "object": {"metadata": {}}},
        {"type": "ADDED", "object": {}},
        {"type": "DELETED", "object": {"metadata": 3}},
        {"type": "NEW-KIND", "object": {"metadata": {"resourceVersion": "5"}}},
        {
            "type": "MODIFIED",
            "object": endpoint_slice(
                "s2", [A, {"addresses": []}, {}, 7, endpoint("no address"), None]
            ),
        },
    ],
)
async def test_objects_that_are_malformed(
    api: ScriptedApi, found: Found, follow: Follow, odd: object
) -> None:
    """Change nothing; the rest of a slice counts, and so does what comes next."""
    api.put(endpoint_slice("s1", [A, B]))
    await follow()
    await until(lambda: bool(api.watches))
    api.say(odd)
    api.put(endpoint_slice("s3", [C]))
    await settled(found, a="ready", b="ready", c="ready")
    assert api.lists == 1


@pytest.mark.parametrize("line", [b"{\n", b"[]\n", b'{"type": 3}\n', b"\xff\n"])
async def test_lines_that_are_no_events(
    api: ScriptedApi, found: Found, follow: Follow, line: bytes
) -> None:
    """Are counted; the watch goes on from before."""
    api.put(endpoint_slice("s1", [A]))
    source = await follow()
    await until(lambda: bool(api.watches))
    api.say(line)
    api.put(endpoint_slice("s1", [B]))
    await settled(found, b="ready")
    assert source.standing.failures["malformed"] == 1


async def test_a_token_that_was_rotated(
    api: ScriptedApi, found: Found, follow: Follow, account: Path
) -> None:
    """401 until the file has the new one: the workers stay, and it is read again."""
    api.needed = "first"
    api.put(endpoint_slice("s1", [A]))
    source = await follow()
    api.put(endpoint_slice("s1", [A, B]))
    await settled(found, a="ready", b="ready")
    await until(lambda: bool(api.watches))
    api.mute, api.needed = True, "second"
    api.drop()
    await until(lambda: source.standing.failures["refused"] >= 2)
    api.put(endpoint_slice("s1", [B]))
    await asyncio.sleep(0.05)
    assert found.states == {"10.0.0.1:8000": "ready", "10.0.0.2:8000": "ready"}
    (account / "token").write_text("second\n")
    await settled(found, b="ready")
    assert api.lists == 1


async def test_an_api_server_that_is_away(
    api: ScriptedApi, found: Found, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    """The fleet is kept, one line says so; what changed meanwhile counts afterwards."""
    caplog.set_level(logging.INFO, logger="gateway.discovery.standing")
    api.put(endpoint_slice("s1", [A, B]))
    source = await follow()
    await settled(found, a="ready", b="ready")
    await api.stop()
    await until(lambda: source.standing.failures["unreachable"] >= 3)
    assert found.ready() == ["10.0.0.1:8000", "10.0.0.2:8000"]
    api.put(endpoint_slice("s1", [B, C]))
    await api.start()
    await settled(found, b="ready", c="ready")
    away = [m for m in caplog.messages if ": cannot connect: Connection refused;" in m]
    assert len(away) == 1
    assert away[0].endswith("the workers stay as they are")
    assert caplog.messages[-1] == "k8s/llm/vllm answers again"


async def test_an_api_server_that_comes_late(
    api: ScriptedApi, found: Found, follow: Follow
) -> None:
    """Errors before the first list: nobody is named; then it is as ever."""
    api.fails = [
        web.json_response({"message": "not yet"}, status=503),
        web.Response(status=429, headers={"Retry-After": "0"}),
        web.Response(status=500, body=b"<html>" * 10_000),
        web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}),
        web.json_response({"items": "none"}),
        web.Response(body=b"no JSON"),
    ]
    api.put(endpoint_slice("s1", [A]))
    source = await follow()
    await settled(found, a="ready")
    assert source.standing.failures["status"] == 4
    assert source.standing.failures["malformed"] == 2


async def test_a_watch_that_says_nothing_is_begun_anew(
    api: ScriptedApi, found: Found, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection may be dead; that is no failure."""
    monkeypatch.setattr(api_server, "IDLE_S", 0.1)
    api.put(endpoint_slice("s1", [A]))
    source = await follow()
    await until(lambda: len(api.watches) >= 3)
    assert set(api.watches) == {str(api.version)}
    assert not source.standing.failures.total()


@pytest.mark.parametrize("bookmarks", [False, True])
async def test_a_watch_that_never_ends_is_begun_anew(
    api: ScriptedApi,
    found: Found,
    follow: Follow,
    monkeypatch: pytest.MonkeyPatch,
    bookmarks: bool,
) -> None:
    """Empty lines are no sign of life, and bookmarks are not for ever."""
    monkeypatch.setattr(api_server, "WATCH_S", 0 if bookmarks else 300)
    monkeypatch.setattr(api_server, "LATE_S", 0.2)
    monkeypatch.setattr(api_server, "IDLE_S", 90.0 if bookmarks else 0.2)
    api.put(endpoint_slice("s1", [A]))
    source = await follow()

    async def dribble() -> None:
        while True:
            api.bookmark() if bookmarks else api.say(b"\n")
            await asyncio.sleep(0.02)

    async with running(dribble()):
        await until(lambda: len(api.watches) >= 3)
    assert found.states == {"10.0.0.1:8000": "ready"}
    assert api.lists == 1
    assert not source.standing.failures.total()


async def test_watches_of_many_gateways_do_not_end_at_one_time(
    api: ScriptedApi, follow: Follow
) -> None:
    """Each asks for another time, of five to ten minutes."""
    await follow()
    for watch in range(1, 9):
        await until(lambda watch=watch: len(api.watches) >= watch)  # type: ignore[misc]
        api.drop()
    times = [int(r["timeoutSeconds"]) for r in api.requests if "watch" in r]
    assert all(300 <= time <= 600 for time in times)
    assert len(set(times)) > 4
