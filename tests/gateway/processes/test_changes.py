"""What a process that is started anew has to be told."""

from gateway.processes.changes import Change, Changes

PATH = "/gateway/workers"


def change(method: str, url: str, number: int = 0) -> Change:
    """One; its body tells it from others."""
    return Change(method=method, url=url, target=PATH, body=b"%d" % number)


def told(changes: Changes) -> list[tuple[str, str, bytes]]:
    """Method, worker and body, in order."""
    return [(one.method, one.url, one.body) for one in changes.all]


def test_a_worker_that_was_added() -> None:
    """The configuration may name it otherwise: it is taken out first."""
    changes = Changes()
    changes.note(change("POST", "w1", 1))
    assert told(changes) == [("DELETE", "w1", b'{"url":"w1"}'), ("POST", "w1", b"1")]


def test_states_replace_each_other() -> None:
    """The last one counts, and what came before it stays."""
    changes = Changes()
    changes.note(change("PATCH", "w0", 0))
    changes.note(change("POST", "w1", 1))
    changes.note(change("PATCH", "w1", 2))
    changes.note(change("PATCH", "w1", 3))
    assert told(changes)[0] == ("PATCH", "w0", b"0")
    assert told(changes)[2:] == [("POST", "w1", b"1"), ("PATCH", "w1", b"3")]


def test_a_worker_that_was_taken_out() -> None:
    """Nothing of what was before matters any more; it may come back."""
    changes = Changes()
    for method in ("POST", "PATCH", "DELETE"):
        changes.note(change(method, "w1"))
    assert told(changes) == [("DELETE", "w1", b"0")]
    changes.note(change("POST", "w1", 5))
    assert told(changes)[-1] == ("POST", "w1", b"5")
    assert len(changes.all) == 2


def test_they_do_not_pile_up() -> None:
    """As many as there are workers, whatever happened how often."""
    changes = Changes()
    for number in range(100):
        changes.note(change(("POST", "PATCH", "DELETE")[number % 3], "w1", number))
    assert len(changes.all) <= 3
