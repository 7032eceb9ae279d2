"""Who names which worker, and what the fleet makes of it."""

import pytest

from gateway.workers.namings import API, Named, Namings
from router.worker import WorkerSpec
from tests.gateway.discovery.found import Found

URL = "http://w1:8000"
SPEC = WorkerSpec(url=URL)
RICH = WorkerSpec(url=URL, engine="sglang")
OTHER = WorkerSpec(url="http://w2:8000")


@pytest.fixture
def found() -> Found:
    """A fleet."""
    return Found()


def named(*specs: WorkerSpec, draining: bool = False) -> dict[str, Named]:
    """Workers as a source names them."""
    return {spec.url: Named(spec=spec, draining=draining) for spec in specs}


def test_the_first_source_says_what_a_worker_is() -> None:
    """The others only that it is there; draining only if all say so."""
    namings = Namings({"file": {}, "line": named(SPEC)})
    assert namings.settle("dns", named(SPEC, OTHER)) == [URL, OTHER.url]
    assert namings.settle("file", named(RICH)) == [URL]
    assert namings.get(URL) == Named(spec=RICH)
    assert namings.sources(URL) == ["file", "line", "dns"]
    assert namings.counts() == {"file": 1, "line": 1, "dns": 2}
    namings.settle("dns", named(SPEC, draining=True))
    assert namings.get(URL) == Named(spec=RICH)
    assert namings.get(OTHER.url) is None
    namings.settle("file", {})
    namings.settle("line", {})
    assert namings.get(URL) == Named(spec=SPEC, draining=True)


def test_what_changes_nothing() -> None:
    """Is not looked at again."""
    namings = Namings()
    assert namings.settle("dns", named(SPEC)) == [URL]
    assert namings.settle("dns", named(SPEC)) == []
    assert namings.settle("dns", {}) == [URL]


def test_one_that_was_dismissed() -> None:
    """Is away until each source that named it has once not named it."""
    namings = Namings({"line": named(SPEC)})
    namings.settle("dns", named(SPEC))
    namings.dismiss(URL)
    assert namings.get(URL) is None
    assert namings.settle("dns", named(SPEC, OTHER)) == [OTHER.url]
    assert namings.settle("dns", {}) == [OTHER.url]
    assert namings.settle("dns", named(SPEC)) == [URL]
    assert namings.sources(URL) == ["dns"]


async def test_a_worker_stays_while_one_source_names_it(found: Found) -> None:
    """And is made anew where it is declared otherwise."""
    fleet = found.fleet
    await fleet.settle("dns", named(SPEC))
    worker = found.worker("w1:8000")
    await fleet.settle("k8s", named(SPEC))
    await fleet.settle("dns", {})
    assert found.worker("w1:8000") is worker
    await fleet.settle("k8s", named(RICH))
    assert found.worker("w1:8000").spec == RICH
    assert found.worker("w1:8000") is not worker
    await fleet.settle("k8s", {})
    assert found.states == {}
    assert found.went == [URL, URL]


async def test_draining_and_back(found: Found) -> None:
    """As its sources say; what was drained by hand is not theirs to end."""
    fleet = found.fleet
    await fleet.settle("k8s", named(SPEC, OTHER))
    await fleet.settle("k8s", named(SPEC, OTHER, draining=True))
    assert set(found.states.values()) == {"draining"}
    await fleet.settle("k8s", named(SPEC, OTHER))
    assert set(found.states.values()) == {"ready"}
    found.pool.drain(found.worker("w1:8000"))
    await fleet.settle("k8s", named(SPEC, OTHER, draining=True))
    await fleet.settle("k8s", named(SPEC, OTHER))
    assert found.states == {"w1:8000": "draining", "w2:8000": "ready"}


async def test_one_that_leaves_before_it_joined(found: Found) -> None:
    """Is taken out, and asked anew when it is back: it never answered."""
    found.fleet._came = lambda worker: None
    await found.fleet.settle("k8s", named(SPEC))
    assert found.states == {"w1:8000": "joining"}
    await found.fleet.settle("k8s", named(SPEC, draining=True))
    assert found.states == {}
    await found.fleet.settle("k8s", named(SPEC))
    assert found.states == {"w1:8000": "joining"}


async def test_by_hand(found: Found) -> None:
    """Added once; a source that names it, too, keeps it when it no longer does."""
    found.fleet.add(SPEC)
    with pytest.raises(ValueError, match="already"):
        found.fleet.add(SPEC)
    await found.fleet.settle("dns", named(SPEC))
    await found.fleet.settle("dns", {})
    assert found.states == {"w1:8000": "ready"}
    assert found.fleet.namings.counts() == {API: 1, "dns": 0}
    assert await found.fleet.remove(URL)
    assert not await found.fleet.remove(URL)
    found.fleet.add(SPEC)
    assert found.states == {"w1:8000": "ready"}


async def test_a_key_that_changed(found: Found) -> None:
    """Is used from then on, for the same worker."""
    await found.fleet.settle("file", {URL: Named(spec=SPEC, api_key="one")})
    worker = found.worker("w1:8000")
    assert worker.api_key == "one"
    await found.fleet.settle("file", {URL: Named(spec=SPEC, api_key="two")})
    assert found.worker("w1:8000") is worker
    assert worker.api_key == "two"
