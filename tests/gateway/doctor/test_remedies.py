"""What mends events that are left out, or not handed out."""

import time
from pathlib import Path

import pytest

from gateway.doctor.checkup import check
from gateway.doctor.feed_remedies import for_feed
from gateway.doctor.remedies import for_events_left_out
from gateway.events.owners import STRAY
from gateway.settings.values import EventEndpoint
from kvindex.engine_blocks import NO_TOKENS
from kvindex.index import Indexes
from kvindex.knowledge import Knowledge
from tests.gateway.doctor.hurried import hurried
from tests.gateway.doctor.test_diagnosis import known
from tests.gateway.doctor.test_feeds import config
from tests.running import SIM, StartWorker


def test_events_that_are_left_out() -> None:
    """Where a setting lets them count it is named."""
    assert "self_describing_kv_events" in for_events_left_out(NO_TOKENS)
    assert "--kv-events-topic" in for_events_left_out(STRAY)
    assert "newer gateway" in for_events_left_out("length")


@pytest.mark.parametrize("text", ["POST /kv_cache_events", "POST /kv_cache_events:"])
def test_a_drain_that_has_no_list(text: str) -> None:
    """It is up, and keeps none; or it has not that route."""
    worker, _ = known()
    knowledge = Knowledge.open(
        model="m",
        indexes=Indexes(limit_bytes=1 << 20),
        key="w1",
        clock=time.monotonic,
        capacity_blocks=8,
        has_source=True,
    )
    knowledge.feed.disconnected(f"{text} answers no list")
    knowledge.feed.work(10)
    remedy = for_feed(worker, knowledge.feed, None)
    assert "event_buffer_max_size" in remedy
    assert "is it up?" not in remedy


async def test_events_from_another_service(
    start_worker: StartWorker, model_dir: Path
) -> None:
    """What an HTTP server answers to ZMQ is no event that a newer gateway knows.

    Where nothing is to be rendered, that is no fault.
    """
    worker = await start_worker(SIM)
    endpoint = "tcp" + worker.url.removeprefix("http")
    events = (EventEndpoint(worker.url, 0, endpoint),)
    with hurried():
        (found,) = await check(
            config(worker.url, model_dir, kv_events=events, render="never", model=())
        )
    assert [f.problem for f in found.findings if "rendering" in f.problem] == []
    remedies = [f.remedy for f in found.findings if "undecodable" in f.problem]
    assert len(remedies) == 2
    mend = f"--kv-events {worker.url}=tcp://127.0.0.1:PORT as the worker publishes"
    assert all(remedy.startswith(mend) for remedy in remedies)
