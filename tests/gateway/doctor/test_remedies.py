"""What mends events that are left out, or not handed out."""

import time

import pytest

from gateway.doctor.feed_remedies import for_feed
from gateway.doctor.remedies import for_events_left_out
from gateway.events.owners import STRAY
from kvindex.engine_blocks import NO_TOKENS
from kvindex.index import Indexes
from kvindex.knowledge import Knowledge
from tests.gateway.doctor.test_diagnosis import known


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
