"""The endpoints of a Kubernetes service are followed, whatever its API server does."""

import asyncio
import logging
from pathlib import Path

import pytest
from aiohttp import web

from gateway.background import running
from gateway.discovery import api_server
from gateway.workers.namings import Named
from router.worker import WorkerSpec
from tests.gateway.discovery.api import ScriptedApi, endpoint, endpoint_slice
from tests.gateway.discovery.conftest import Follow
from tests.gateway.discovery.found import Found
from tests.running import until

A, B, C = (endpoint(f"10.0.0.{n}", uid=str(n)) for n in (1, 2, 3))
LEAVING = {"ready": False, "serving": True, "terminating": True}


async def settled(found: Found, **states: str) -> None:
    """The fleet is exactly that: `a="ready"` is 10.0.0.1:8000."""
    wanted = {f"10.0.0.{'abc'.index(n) + 1}:8000": s for n, s in states.items()}
    try:
        await until(lambda: found.states == wanted, within_s=3)
    except TimeoutError:
        pytest.fail(f"{found.states} is not {wanted}")


async def test_changes_are_followed(
    api: ScriptedApi, found: Found, follow: Follow
) -> None:
    """Endpoints come, go not ready, terminate, and vanish; one list is enough."""
    api.put(endpoint_slice("s1", [A, B]))
    await follow()
    await settled(found, a="ready", b="ready")
    api.put(endpoint_slice("s2", [C]))
    await settled(found, a="ready", b="ready", c="ready")
    api.put(endpoint_slice("s1", [A, endpoint("10.0.0.2", uid="2", **LEAVING)]))
    await settled(found, a="ready", b="draining", c="ready")
    api.put(endpoint_slice("s1", [A]))
    await settled(found, a="ready", c="ready")
    api.delete("s1")
    await settled(found, c="ready")
    assert found.went == ["http://10.0.0.2:8000", "http://10.0.0.1:8000"]
    assert api.lists == 1
    assert api.tokens == ["Bearer first"] * len(api.tokens)


async def test_one_that_is_not_ready_yet_is_not_used(
    api: ScriptedApi, found: Found, follow: Follow
) -> None:
    """Nor is one that was terminating from the first; it comes when it is ready."""
    starting = endpoint("10.0.0.2", uid="2", ready=False)
    leaving = endpoint("10.0.0.3", uid="3", **LEAVING)
    api.put(endpoint_slice("s1", [A, starting, leaving]))
    await follow()
    await settled(found, a="ready")
    api.put(endpoint_slice("s1", [A, B, leaving]))
    await settled(found, a="ready", b="ready")


async def test_a_dropped_watch_goes_on_where_it_was(
    api: ScriptedApi, found: Found, follow: Follow
) -> None:
    """From the version of the last event or bookmark; what was missed comes then."""
    api.put(endpoint_slice("s1", [A]))
    await follow()
    api.put(endpoint_slice("s1", [A, B]))
    await settled(found, a="ready", b="ready")
    api.bookmark()
    api.mute = True
    api.put(endpoint_slice("s1", [B]))
    api.put(endpoint_slice("s2", [C]))
    await asyncio.sleep(0.05)
    bookmarked = str(api.version - 2)
    api.drop()
    await settled(found, b="ready", c="ready")
    assert bookmarked in api.watches
    assert api.lists == 1


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


async def test_an_endpoint_in_two_slices(
    api: ScriptedApi, found: Found, follow: Follow
) -> None:
    """Is one worker, ready if it is so in one of them; gone when it is in none."""
    stale = endpoint("10.0.0.1", uid="1", ready=False)
    api.put(endpoint_slice("s1", [A, B]))
    api.put(endpoint_slice("s2", [stale, B]))
    await follow()
    await settled(found, a="ready", b="ready")
    api.put(endpoint_slice("s1", []))
    await settled(found, a="draining", b="ready")
    api.put(endpoint_slice("s2", [A]))
    await settled(found, a="ready")
    assert found.went == ["http://10.0.0.2:8000"]


async def test_one_that_moves_to_another_slice_stays(
    api: ScriptedApi, found: Found, follow: Follow
) -> None:
    """Out of one slice a moment before it is in the other: what is known is kept."""
    api.put(endpoint_slice("s1", [A, B]))
    await follow(linger_s=5.0)
    await settled(found, a="ready", b="ready")
    worker = found.worker("10.0.0.2:8000")
    api.put(endpoint_slice("s1", [A]))
    await settled(found, a="ready", b="draining")
    api.put(endpoint_slice("s2", [B]))
    await settled(found, a="ready", b="ready")
    assert found.worker("10.0.0.2:8000") is worker
    assert not found.went


async def test_flapping_endpoints(
    api: ScriptedApi, found: Found, follow: Follow
) -> None:
    """Not ready and ready again, fifty times: the same worker, which is ready."""
    api.put(endpoint_slice("s1", [A, B]))
    await follow()
    worker = found.worker("10.0.0.2:8000")
    for turn in range(50):
        ready = turn % 2 == 1
        told = endpoint("10.0.0.2", uid="2", ready=ready)
        api.put(endpoint_slice("s1", [A, told]))
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    await settled(found, a="ready", b="ready")
    assert found.worker("10.0.0.2:8000") is worker


async def test_another_pod_at_the_same_address(
    api: ScriptedApi, found: Found, follow: Follow
) -> None:
    """Is another worker: of what the one before had cached, nothing is true of it."""
    api.put(endpoint_slice("s1", [A, B]))
    await follow()
    await settled(found, a="ready", b="ready")
    first, other = found.worker("10.0.0.1:8000"), found.worker("10.0.0.2:8000")
    api.put(endpoint_slice("s1", [endpoint("10.0.0.1", uid="later"), B]))
    await until(lambda: found.went == [first.url])
    await settled(found, b="ready", a="ready")
    assert found.worker("10.0.0.1:8000") is not first
    assert found.worker("10.0.0.2:8000") is other


async def test_what_was_drained_by_hand_stays_so(
    api: ScriptedApi, found: Found, follow: Follow
) -> None:
    """Whatever its endpoint does."""
    api.put(endpoint_slice("s1", [A, B]))
    await follow()
    found.pool.drain(found.worker("10.0.0.2:8000"))
    api.put(endpoint_slice("s1", [A, endpoint("10.0.0.2", uid="2", ready=False)]))
    api.put(endpoint_slice("s1", [A, B, C]))
    await settled(found, a="ready", b="draining", c="ready")


async def test_500_endpoints(api: ScriptedApi, found: Found, follow: Follow) -> None:
    """In five slices, over pages of two; one that changes, and then all but one go."""

    def of(number: int, ready: bool = True) -> dict[str, object]:
        return endpoint_slice(
            f"s{number}",
            [endpoint(f"10.1.{number}.{n}", ready=ready) for n in range(1, 101)],
        )

    api.page = 2
    for number in range(5):
        api.put(of(number))
    await follow()
    await until(lambda: len(found.ready()) == 500)
    api.put(of(3, ready=False))
    await until(lambda: len(found.ready()) == 400)
    assert len(found.states) == 500
    for number in range(1, 5):
        api.delete(f"s{number}")
    await until(lambda: len(found.states) == 100)
    assert api.lists == 1


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


async def test_a_service_without_endpoints(
    api: ScriptedApi, found: Found, follow: Follow
) -> None:
    """Has no workers; those of before are gone, as the API server says so."""
    await follow()
    assert found.states == {}
    api.put(endpoint_slice("s1", [A]))
    await settled(found, a="ready")
    api.put(endpoint_slice("s1", []))
    await settled(found)


async def test_a_worker_that_another_source_names_stays(
    api: ScriptedApi, found: Found, follow: Follow
) -> None:
    """Until none names it; one that is taken out by hand is away until named anew."""
    spec = WorkerSpec(url="http://10.0.0.1:8000", model="m")
    await found.fleet.settle("workers-file", {spec.url: Named(spec=spec)})
    api.put(endpoint_slice("s1", [A, B]))
    await follow()
    assert found.worker("10.0.0.1:8000").spec == spec
    api.put(endpoint_slice("s1", [B]))
    await asyncio.sleep(0.1)
    await settled(found, a="ready", b="ready")
    await found.fleet.settle("workers-file", {})
    await settled(found, b="ready")
    assert await found.fleet.remove("http://10.0.0.2:8000")
    api.put(endpoint_slice("s1", [B, C]))
    await settled(found, c="ready")
    api.put(endpoint_slice("s1", [C]))
    await asyncio.sleep(0.1)
    api.put(endpoint_slice("s1", [B, C]))
    await settled(found, c="ready", b="ready")
