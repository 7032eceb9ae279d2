"""A block in several media, or by several names, after a missed batch."""

import pytest

from kvindex.engine_blocks import Maps
from kvindex.feed import FeedSettings
from kvindex.standing import FeedState
from tests.kvindex.engine import Stream, own, payload, removed, stored
from tests.kvindex.test_by_name import bare
from tests.kvindex.test_namesakes import held, salted


def a_stream() -> Stream:
    """Of a feed whose doubt lasts ten seconds."""
    return Stream(block_size=16, settings=FeedSettings(suspect_ttl_s=10.0))


def settle(stream: Stream) -> None:
    """The doubt ends."""
    stream.clock.now += 20
    while stream.feed.tick():
        pass
    assert stream.feed.state is FeedState.LIVE
    assert not any(b.previous for b in names_of(stream).values())


def names_of(stream: Stream) -> Maps:
    """The maps of names."""
    assert stream.feed._intake.holder is not None
    return stream.feed._intake.holder._names.maps


@pytest.mark.parametrize("others", [(), (3,)])
def test_the_medium_that_was_told_again_is_right(others: tuple[int, ...]) -> None:
    """A removal from the GPU was missed, then the block came to the host."""
    stream = a_stream()
    stream.send(stored(1), *(stored(other) for other in others))
    stream.lose()
    stream.send(stored(1, medium="CPU"))
    settle(stream)
    assert (stream.held(1), stream.owner.gpu_blocks) == (1, 0)
    stream.send(removed(1, medium="CPU"))
    assert stream.owner.blocks == 0


def test_what_the_worker_found_is_on_gpu() -> None:
    """Of two media that were not told again the host's may be stale."""
    stream = a_stream()
    stream.send(stored(1), stored(1, medium="CPU"))
    stream.lose()
    stream.send()
    stream.feed.confirmed(own(1), 1)
    settle(stream)
    assert (stream.held(1), stream.owner.gpu_blocks) == (1, 1)
    stream.send(removed(1))
    assert stream.owner.blocks == 0


def test_what_is_told_after_a_second_doubt_is_apart() -> None:
    """A connection lost in doubt misses nothing; what was known then is in doubt."""
    stream = a_stream()
    stream.send(stored(1), stored(3))
    stream.lose()
    stream.send()
    stream.feed.disconnected("peer closed")
    stream.feed.connected()
    stream.send(stored(1, medium="CPU"))
    settle(stream)
    assert (stream.held(1), stream.owner.gpu_blocks) == (1, 0)


def test_live_is_after_the_walk() -> None:
    """Nothing is in doubt at once, but which medium holds the blocks was not looked."""
    stream = a_stream()
    blocks = tuple(range(1, 3_001))
    stream.send(stored(*blocks))
    stream.lose()
    stream.send(stored(*blocks, medium="CPU"))
    assert stream.owner.suspect_blocks == 0
    stream.feed.tick()
    assert stream.feed.state is FeedState.DEGRADED
    settle(stream)
    assert stream.owner.gpu_blocks == 0


@pytest.mark.parametrize("settled", [False, True])
def test_another_name_told_and_removed(settled: bool) -> None:
    """Before or after the doubt: nothing keeps the block then."""
    stream = a_stream()
    stream.send(stored(1, names=(11,)))
    stream.lose()
    stream.send(stored(1, names=(12,)))
    if settled:
        settle(stream)
    stream.send(removed(12))
    settle(stream)
    assert stream.owner.blocks == 0


def test_a_name_that_was_kept_by_mistake() -> None:
    """It counts no copies once the block was gone."""
    stream = a_stream()
    stream.send(stored(9), stored(1, names=(11,), parent=9))
    stream.lose()
    stream.send(stored(9), stored(1, names=(12,), parent=9))
    settle(stream)
    stream.send(removed(12), stored(1, names=(11,), parent=9), removed(11))
    assert stream.held(9, 1) == 1


def test_another_name_in_another_medium() -> None:
    """The GPU's is what is left in doubt."""
    stream = a_stream()
    stream.send(stored(1, names=(11,)), stored(3))
    stream.lose()
    stream.send(stored(1, names=(12,), medium="CPU"))
    settle(stream)
    assert (stream.held(1), stream.owner.gpu_blocks) == (1, 0)
    stream.send(removed(12, medium="CPU"))
    assert stream.owner.blocks == 0


def test_another_name_on_gpu_does_not_prove_the_hosts() -> None:
    """Once its own is gone nothing holds the block, and the doubt ends."""
    stream = a_stream()
    stream.send(stored(1, names=(11,), medium="CPU"), stored(3))
    stream.lose()
    stream.send(stored(1, names=(12,)), removed(12))
    settle(stream)
    assert stream.owner.blocks == 0


def test_media_beside_the_gpu_are_told_apart() -> None:
    """A removal from the host was missed; then the disk had the block, and dropped."""
    stream = a_stream()
    stream.send(stored(1, medium="CPU"))
    stream.lose()
    stream.send(stored(1, medium="DISK"))
    settle(stream)
    assert stream.held(1) == 1
    stream.send(removed(1, medium="DISK"))
    assert stream.owner.blocks == 0


def test_names_of_several_media_without_a_gap() -> None:
    """A name told again when its block was thought gone holds it alone."""
    stream = a_stream()
    stream.send(stored(1, names=(11,), medium="CPU"))
    stream.send(stored(1, names=(12,), medium="DISK"))
    stream.send(removed(11, medium="CPU"), stored(1, names=(12,), medium="DISK"))
    stream.send(removed(12, medium="DISK"))
    assert stream.owner.blocks == 0


@pytest.mark.parametrize("medium", ["GPU", "CPU", "DISK"])
def test_children_of_namesakes_in_two_media(medium: str) -> None:
    """Nobody knows whose they are."""
    stream = a_stream()
    stream.send(salted("a", 1), salted("b", 1, medium="CPU"))
    stream.send(stored(2, parent=1, medium=medium))
    assert held(stream, 1, 2) == [1, 1]
    # A tier that tells no salts is refused for that already.
    reason = "parent" if medium == "GPU" else "no_keys"
    assert stream.feed.counters.rejected == {reason: 1}
    assert not stream.feed.complete


def test_copies_of_namesakes_in_two_media() -> None:
    """The name does not say of which."""
    stream = a_stream()
    stream.send(salted("a", 1), salted("b", 1, medium="DISK"), bare(1))
    stream.send(removed(1))
    assert held(stream, 1) == [0, 1]
    assert not stream.feed.complete


def test_what_a_replay_tells_in_doubt_is_apart() -> None:
    """A worker that is asked in doubt tells more: kept, in the media it names."""
    stream = a_stream()
    stream.send(stored(1), stored(3))
    stream.lose()
    stream.send()
    stream.feed.can_replay = True
    stream.feed.disconnected("peer closed")
    stream.feed.connected()
    start = stream.next
    stream.feed.replaying(start)
    stream.feed.replayed(start, payload(stored(1, medium="CPU")))
    stream.feed.replay_ended(True)
    stream.next += 1
    stream.send()
    settle(stream)
    assert (stream.held(1), stream.owner.gpu_blocks) == (1, 0)
    stream.send(removed(1, medium="CPU"))
    assert stream.owner.blocks == 0
