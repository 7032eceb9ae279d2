"""The endpoints of a Kubernetes service are followed."""

import asyncio

from gateway.workers.namings import Named
from router.worker import WorkerSpec
from tests.gateway.discovery.api import ScriptedApi, endpoint, endpoint_slice
from tests.gateway.discovery.conftest import Follow
from tests.gateway.discovery.endpoints import LEAVING, A, B, C, settled
from tests.gateway.discovery.found import Found
from tests.running import until


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
