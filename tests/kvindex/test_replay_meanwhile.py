"""What happens while a replay is under way: batches, restarts, clearings, losses."""

from kvindex.replay import HELD_BATCHES
from kvindex.standing import FeedState
from tests.kvindex.engine import CLEARED, payload, stored
from tests.kvindex.recovering import Recovering


def test_waiting_batches_are_bounded() -> None:
    """Beyond the bound the replay is given up, and nothing is lost of what waited."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.lose()
    for block in range(HELD_BATCHES + 1):
        stream.publish(stored(10 + block))
    assert stream.feed.state == "degraded"
    assert stream.owner.blocks == HELD_BATCHES + 2


def test_a_restart_during_a_replay() -> None:
    """The live socket goes back: what waited is gone, the replay means nothing."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.publish(stored(2), lose=True)
    stream.publish(stored(3))
    old = dict(stream.kept)
    stream.feed.replaying(0)
    stream.restart()
    stream.publish(stored(50))
    for sequence, content in old.items():
        stream.feed.replayed(sequence, content)
    stream.feed.replay_ended(True)
    assert (stream.feed.state, stream.feed.complete) == ("live", True)
    assert (stream.owner.blocks, stream.held(50)) == (1, 1)


def test_a_live_batch_unlike_the_replayed_one_is_a_restart() -> None:
    """The same number, other bytes: another process since the replay."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.publish(stored(2), lose=True)
    stream.publish(stored(3))
    stream.publish(stored(4), lose=True)
    stream.replay()
    stream.kept = {3: payload(stored(50))}
    stream.feed.receive(3, stream.kept[3])
    assert (stream.feed.counters.restarts, stream.feed.replay_from) == (1, 0)
    stream.replay()
    assert (stream.held(1), stream.held(50)) == (0, 1)


def test_a_clearing_within_a_replay() -> None:
    """Empty, and complete from there on; it goes on to recover until the end."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.publish(CLEARED, stored(2), lose=True)
    stream.publish(stored(3, parent=2))
    feed = stream.feed
    feed.replaying(0)
    feed.replayed(0, stream.kept[0])
    feed.replayed(1, stream.kept[1])
    assert (feed.state, stream.held(1)) == (FeedState.REPLAYING, 0)
    feed.replay_ended(True)
    assert (feed.state, feed.complete) == ("live", True)
    assert stream.held(2, 3) == 2


def test_replayed_batches_out_of_place_change_nothing() -> None:
    """Without a replay, or before the last one seen."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.publish(stored(2))
    stream.feed.replayed(0, payload(stored(9)))
    stream.feed.replay_ended(True)
    stream.feed.replaying(1)
    stream.feed.replayed(0, payload(stored(9)))
    stream.feed.replayed(1, stream.kept[1])
    stream.feed.replay_ended(True)
    assert (stream.owner.blocks, stream.feed.state) == (2, "live")


def test_a_restart_told_by_its_start_time_asks_from_zero() -> None:
    """The monitor was first: what the new process stored is learnt."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.restart()
    stream.publish(stored(50), lose=True)
    stream.feed.restarted("process start time changed")
    assert stream.feed.replay_from == 0
    stream.replay()
    assert (stream.held(1), stream.held(50)) == (0, 1)
    assert (stream.feed.state, stream.feed.complete) == ("live", True)


def test_the_connection_is_lost_while_replaying() -> None:
    """What waited is applied as it is, and the doubt goes on; the next one may ask."""
    stream = Recovering()
    stream.publish(stored(1))
    stream.publish(stored(2), lose=True)
    stream.publish(stored(3))
    stream.feed.replaying(0)
    stream.feed.disconnected("connection lost")
    assert (stream.feed.state, stream.held(3)) == ("degraded", 1)
    stream.feed.connected()
    assert stream.feed.replay_from == 2
