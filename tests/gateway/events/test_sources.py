"""Which event sources a worker has: as declared, else as it told."""

import msgspec
import pytest

from gateway.events.sources import Bind, by_rank, sources_of
from gateway.workers.contact import WorkerFacts
from gateway.workers.engines import sglang, trtllm, vllm
from gateway.workers.engines.facts import EventSource
from router.worker import WorkerSpec

SPEC = WorkerSpec(url="http://w1:8000")
TWO = {rank: EventSource(endpoint=f"tcp://w1:555{rank}") for rank in (0, 1)}


def facts(engine: str = "vllm", **told: object) -> WorkerFacts:
    """What a worker told."""
    plain = WorkerFacts(models=(), listing=(), engine=engine, sources={})
    return msgspec.structs.replace(plain, **told)


def test_a_worker_that_tells_nothing() -> None:
    """One rank without events."""
    for told in (None, facts(), facts("generic", sources=None)):
        sources = sources_of(SPEC, told)
        assert (sources.ranks, dict(sources.by_rank)) == ((0,), {})
        assert not sources.has(0)


def test_as_the_worker_tells() -> None:
    """Ranks without events are ranks, too; replay may be declared on top."""
    told = facts(sources=TWO, ranks=(0, 1, 2))
    sources = sources_of(SPEC, told)
    assert (sources.ranks, dict(sources.by_rank)) == ((0, 1, 2), TWO)
    assert [sources.has(rank) for rank in range(3)] == [True, True, False]
    spec = msgspec.structs.replace(SPEC, replay={1: "tcp://w1:9"})
    replays = [source.replay for source in sources_of(spec, told).by_rank.values()]
    assert replays == [None, "tcp://w1:9"]


def test_what_is_declared_wins() -> None:
    """Over what the worker tells, what comes to the gateway, and what is fetched."""
    spec = msgspec.structs.replace(SPEC, kv_events={0: "ipc:///events"})
    for told in (facts(sources=TWO), facts("trtllm", drained=trtllm.EventDecoder())):
        sources = sources_of(spec, told, listened=True)
        assert dict(sources.by_rank) == {0: EventSource(endpoint="ipc:///events")}
        assert (sources.drained, sources.listened) == (False, False)


@pytest.mark.parametrize(
    ("declared", "ranks", "expected"),
    [
        ({0: "tcp://w:5557"}, (0, 1, 2), {0: 5557, 1: 5558, 2: 5559}),
        ({0: "tcp://w:5557"}, (4, 5), {4: 5561, 5: 5562}),  # a node further on
        ({0: "tcp://w:5557"}, (3,), {0: 5557}),  # its only rank
        ({0: "tcp://w:5557"}, (), {0: 5557}),
        ({0: "tcp://w:5557", 1: "tcp://w:6000"}, (0, 1), {0: 5557, 1: 6000}),
        ({1: "tcp://w:5557"}, (0, 1), {1: 5557}),
        ({0: "tcp://w:65535"}, (0, 1), {0: 65535}),
    ],
)
def test_ports_of_ranks(
    declared: dict[int, str], ranks: tuple[int, ...], expected: dict[int, int]
) -> None:
    """Rank r is at the port of rank 0 plus r, where only rank 0 is declared."""
    ports = {r: int(e.rpartition(":")[2]) for r, e in by_rank(declared, ranks).items()}
    assert ports == expected


def test_ranks_of_a_worker_that_owns_later_ones() -> None:
    """A declared rank 0 is a base only: the ranks are those that the worker has."""
    spec = msgspec.structs.replace(
        SPEC, kv_events={0: "tcp://w1:5557"}, replay={0: "tcp://w1:6557"}
    )
    sources = sources_of(spec, facts(ranks=(4, 5)))
    assert sources.ranks == (4, 5)
    assert dict(sources.by_rank) == {
        4: EventSource(endpoint="tcp://w1:5561", replay="tcp://w1:6561"),
        5: EventSource(endpoint="tcp://w1:5562", replay="tcp://w1:6562"),
    }


def test_ranks_that_only_events_name() -> None:
    """Of fetched events and of those that come to the gateway."""
    fetched = facts("trtllm", drained=trtllm.EventDecoder("v1_block_key"))
    sources = sources_of(SPEC, fetched, seen={0, 3})
    assert (sources.ranks, sources.drained, sources.has(3)) == ((0, 3), True, True)
    sources = sources_of(SPEC, facts(sources=TWO, ranks=(0, 1)), listened=True)
    assert (sources.ranks, sources.listened) == ((0, 1), True)
    told = facts(sources=TWO, ranks=(0, 1))
    assert sources_of(SPEC, told, seen={5}, listened=True).ranks == (0, 1)
    assert not sources.by_rank


def test_each_engine_is_decoded_by_its_own_rules() -> None:
    """Also where the endpoint is declared; fetched events by the worker's algorithm."""
    spec = msgspec.structs.replace(SPEC, kv_events={0: "tcp://w1:5557"})
    for engine, module in (("vllm", vllm), ("sglang", sglang), ("trtllm", trtllm)):
        assert sources_of(spec, facts(engine)).decode is module.DECODE
        assert sources_of(SPEC, facts(engine)).decode is module.DECODE
    decoder = trtllm.EventDecoder("v2_sha256")
    assert sources_of(SPEC, facts("trtllm", drained=decoder)).decode == decoder


@pytest.mark.parametrize(
    ("url", "endpoint", "heard"),
    [
        ("http://w1:8000", "tcp://gateway:5557", True),
        ("http://w1:8000", "tcp://10.0.0.9:5557", True),
        ("http://127.0.0.1:8000", "tcp://127.0.0.1:5557", True),  # the port is ours
        ("http://w1:8000", "tcp://w1:5557", False),  # its own, of the same number
        ("http://w1:8000", "tcp://gateway:5558", False),
        ("http://w1:8000", "ipc:///events", False),
    ],
)
def test_a_worker_that_tells_that_it_publishes_here(
    url: str, endpoint: str, heard: bool
) -> None:
    """Nobody connects to the gateway's own socket; its replays are asked for."""
    spec = WorkerSpec(url=url)
    source = EventSource(endpoint=endpoint, replay="tcp://w1:6557")
    told = facts(sources={0: source})
    here = Bind("tcp://*:5557", frozenset())
    sources = sources_of(spec, told, bind=here)
    assert sources.listened == heard
    assert dict(sources.by_rank) == ({} if heard else {0: source})
    assert dict(sources.replays) == ({0: "tcp://w1:6557"} if heard else {})
    other = sources_of(spec, told, bind=Bind("tcp://*:5557", frozenset(), mine=False))
    assert bool(other.elsewhere) == heard
    assert not other.listened
    assert not sources_of(spec, told, bind=Bind(None, frozenset())).listened


def test_ranks_connect_to_ports_that_count_up() -> None:
    """Each to that of rank 0 plus its own number."""
    told = {r: EventSource(endpoint=f"tcp://gateway:{5557 + r}") for r in (0, 1, 3)}
    told[2] = EventSource(endpoint="tcp://gateway:9000", topic="elsewhere")
    told[3] = msgspec.structs.replace(told[3], topic="")
    here = Bind("tcp://*:5557", frozenset())
    sources = sources_of(SPEC, facts(sources=told, ranks=(0, 1, 2, 3)), bind=here)
    assert sources.listened
    assert sources.ranks == (0, 1, 2, 3)
    assert sources.ports == {5557, 5558, 5560}
    assert sources.topics == {""}
