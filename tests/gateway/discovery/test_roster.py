"""Whom to use, whom to drain, whom to let go, over time."""

from gateway.discovery.roster import Present, Roster

READY, NOT_READY = Present(), Present(False)


def test_one_that_was_never_ready_is_not_named() -> None:
    """Until it is."""
    roster = Roster(3.0)
    roster.update({"a": READY, "b": NOT_READY}, 0.0)
    assert roster.wanted(0.0) == {"a": False}
    roster.update({"a": READY, "b": READY}, 1.0)
    assert roster.wanted(1.0) == {"a": False, "b": False}


def test_one_that_is_ready_no_more_is_drained() -> None:
    """For as long as it is there, and again used when it is ready again."""
    roster = Roster(3.0)
    roster.update({"a": READY}, 0.0)
    roster.update({"a": NOT_READY}, 1.0)
    assert roster.wanted(1000.0) == {"a": True}
    assert roster.due_s(1000.0) is None
    roster.update({"a": READY}, 1001.0)
    assert roster.wanted(1001.0) == {"a": False}


def test_one_that_vanished_is_drained_for_a_moment() -> None:
    """Then it is gone; back before, it is as it was, also where it is not ready."""
    roster = Roster(3.0)
    roster.update({"a": READY, "b": READY}, 0.0)
    roster.update({"b": READY}, 1.0)
    assert roster.wanted(2.0) == {"a": True, "b": False}
    assert roster.due_s(2.0) == 2.0
    roster.update({"a": NOT_READY, "b": READY}, 3.0)
    assert roster.wanted(10.0) == {"a": True, "b": False}
    roster.update({"b": READY}, 11.0)
    assert roster.wanted(14.0) == {"b": False}
    assert roster.due_s(14.0) is None
    roster.update({"a": NOT_READY, "b": READY}, 15.0)
    assert roster.wanted(15.0) == {"b": False}


def test_another_process_at_the_same_place() -> None:
    """Is told: nothing of the one before is true of it; it begins as one that came."""
    roster = Roster(3.0)
    assert roster.update({"a": Present(True, "1")}, 0.0) == set()
    assert roster.update({"a": Present(False, "1")}, 1.0) == set()
    assert roster.update({"a": Present(True, None)}, 2.0) == set()
    assert roster.update({"a": Present(True, "2")}, 3.0) == {"a"}
    assert roster.wanted(3.0) == {"a": False}
    assert roster.update({"a": Present(False, "3")}, 4.0) == {"a"}
    assert roster.wanted(4.0) == {}
    assert roster.update({"a": Present(True, "3")}, 5.0) == set()
    assert roster.update({}, 6.0) == set()
    assert roster.update({"a": Present(True, "4")}, 7.0) == {"a"}
    assert roster.wanted(7.0) == {"a": False}
    assert roster.due_s(7.0) is None
