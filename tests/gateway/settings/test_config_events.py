"""Options about KV events: which forms they take, and which mistakes are refused."""

import time

import pytest

from gateway.errors import ConfigError
from gateway.events.ingest import Ingest
from gateway.settings.config import event_topics, worker_specs
from kvindex.index import Indexes
from router.pool import WorkerPool
from tests.gateway.settings.test_config import parse

WORKERS = ("--workers", "w1,w2")
BIND = ("--kv-events-bind", "tcp://*:5557")


def test_replay_endpoints() -> None:
    """By worker and rank, as those of events."""
    config = parse(
        *WORKERS, "--kv-replay", "w1=tcp://e:1", "--kv-replay", "w1#1=tcp://e:2"
    )
    first, second = worker_specs(config)
    assert (first.replay, second.replay) == ({0: "tcp://e:1", 1: "tcp://e:2"}, {})
    assert first.kv_events == {}


@pytest.mark.parametrize("flag", ["--kv-events", "--kv-replay"])
def test_workers_that_are_none(flag: str) -> None:
    """A typing error in a URL is said."""
    with pytest.raises(ConfigError, match=f"{flag} names http://w3:8000"):
        worker_specs(parse(*WORKERS, flag, "w3=tcp://e:1"))
    twice = (flag, "w1=tcp://e:1", flag, "w1=tcp://e:2")
    with pytest.raises(ConfigError, match=f"{flag} names .* more than once"):
        worker_specs(parse(*WORKERS, *twice))


@pytest.mark.parametrize(
    "endpoint", ["tcp://*:5557", "tcp://0.0.0.0:0", "tcp://[::]:1", "tcp://gateway-0:9"]
)
def test_where_to_listen(endpoint: str) -> None:
    """Any address of this machine; port 0 is any."""
    assert parse(*WORKERS, "--kv-events-bind", endpoint).kv_events_bind == endpoint


@pytest.mark.parametrize(
    "endpoint", ["*:5557", "tcp://*", "tcp://*:65536", "udp://*:1", "", "tcp://a b:1"]
)
def test_where_not_to_listen(endpoint: str) -> None:
    """What ZMQ could not bind."""
    with pytest.raises(ConfigError, match="--kv-events-bind"):
        parse(*WORKERS, "--kv-events-bind", endpoint)


def test_topics() -> None:
    """A worker may have several; one may hold an `=`, or be empty, as engines ship."""
    topics = ("w1=kv@10.0.0.1@m", "w1=b", "w2=a=b", "w2=")
    words = [word for topic in topics for word in ("--kv-events-topic", topic)]
    assert event_topics(parse(*WORKERS, *BIND, *words)) == {
        "kv@10.0.0.1@m": "http://w1:8000",
        "b": "http://w1:8000",
        "a=b": "http://w2:8000",
        "": "http://w2:8000",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--kv-events-topic", "w1=a"), "without --kv-events-bind"),
        ((*BIND, "--kv-events-topic", "w3=a"), "names http://w3:8000"),
        (
            (*BIND, "--kv-events-topic", "w1=a", "--kv-events-topic", "w2=a"),
            "'a' twice",
        ),
    ],
)
def test_topics_that_make_no_sense(words: tuple[str, ...], said: str) -> None:
    """Said at the start, also by what is made of the options."""
    config = parse(*WORKERS, *words)
    with pytest.raises(ConfigError, match=said):
        event_topics(config)
    pool = WorkerPool(clock=time.monotonic, prefill_rate=1.0)
    with pytest.raises(ConfigError, match=said):
        Ingest(config, pool, Indexes(limit_bytes=1 << 20))


@pytest.mark.parametrize("topic", ["w1", "=a", "="])
def test_topics_that_are_none(topic: str) -> None:
    """A worker and an equals sign are both needed."""
    with pytest.raises(ConfigError, match="--kv-events-topic"):
        parse(*WORKERS, *BIND, "--kv-events-topic", topic)
