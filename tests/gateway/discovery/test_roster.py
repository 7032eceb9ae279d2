"""Whom to use, whom to drain, whom to let go, over time."""

from gateway.discovery.roster import Roster


def test_one_that_was_never_ready_is_not_named() -> None:
    """Until it is."""
    roster = Roster(3.0)
    roster.update({"a": True, "b": False}, 0.0)
    assert roster.wanted(0.0) == {"a": False}
    roster.update({"a": True, "b": True}, 1.0)
    assert roster.wanted(1.0) == {"a": False, "b": False}


def test_one_that_is_ready_no_more_is_drained() -> None:
    """For as long as it is there, and again used when it is ready again."""
    roster = Roster(3.0)
    roster.update({"a": True}, 0.0)
    roster.update({"a": False}, 1.0)
    assert roster.wanted(1000.0) == {"a": True}
    assert roster.due_s(1000.0) is None
    roster.update({"a": True}, 1001.0)
    assert roster.wanted(1001.0) == {"a": False}


def test_one_that_vanished_is_drained_for_a_moment() -> None:
    """Then it is gone; back before, it is as it was, also where it is not ready."""
    roster = Roster(3.0)
    roster.update({"a": True, "b": True}, 0.0)
    roster.update({"b": True}, 1.0)
    assert roster.wanted(2.0) == {"a": True, "b": False}
    assert roster.due_s(2.0) == 2.0
    roster.update({"a": False, "b": True}, 3.0)
    assert roster.wanted(10.0) == {"a": True, "b": False}
    roster.update({"b": True}, 11.0)
    assert roster.wanted(14.0) == {"b": False}
    assert roster.due_s(14.0) is None
    roster.update({"a": False, "b": True}, 15.0)
    assert roster.wanted(15.0) == {"b": False}
