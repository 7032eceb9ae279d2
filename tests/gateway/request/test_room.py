"""How much of clients' bodies is held, of all of them together."""

import pytest

from gateway.errors import Overloaded
from gateway.request.room import Room


def test_what_is_taken_is_given_back() -> None:
    """At the end of its context, or before; once only."""
    room = Room(100)
    with room.share() as share:
        share.take(40)
        share.take(20)
        assert room.held == 60
        share.release()
        share.release()
        assert room.held == 0
    assert room.held == 0


def test_no_room_for_another() -> None:
    """What does not fit beside the others is refused, and they are not touched."""
    room = Room(100)
    with room.share() as first, room.share() as second:
        first.take(90)
        with pytest.raises(Overloaded) as refused:
            second.take(20)
        assert room.held == 90
    assert dict(refused.value.headers)["Retry-After"] == "1"
    assert room.held == 0


def test_one_that_is_alone_has_room() -> None:
    """However large: its own limit is another."""
    room = Room(100)
    with room.share() as share:
        share.take(80)
        share.take(80)
        assert room.held == 160
