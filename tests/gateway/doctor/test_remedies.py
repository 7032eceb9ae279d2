"""What mends events that are left out."""

from gateway.doctor.remedies import for_events_left_out
from gateway.events.owners import STRAY
from kvindex.engine_blocks import NO_TOKENS


def test_events_that_are_left_out() -> None:
    """Where a setting lets them count it is named."""
    assert "self_describing_kv_events" in for_events_left_out(NO_TOKENS)
    assert "--kv-events-topic" in for_events_left_out(STRAY)
    assert "newer gateway" in for_events_left_out("length")
