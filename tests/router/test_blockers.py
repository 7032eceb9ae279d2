"""One line when the set of blockers or a reason changes, and none in between."""

import logging

import pytest

from router.blockers import BlockerLog
from router.forwarding import NOT_ASKED, Blocker, Forwarding, Proof, When
from router.worker import Worker, WorkerState
from tests.router.fleet import Fleet

DIGEST = Proof(by="digest")
TEMPLATE = Blocker(reason="template_differs", detail="templates.server")
NO_FINGERPRINT = Blocker(reason="no_fingerprint")


class Rig:
    """Two workers, w1 and w2, and the lines about them."""

    def __init__(self, caplog: pytest.LogCaptureFixture, when: When = "all") -> None:
        caplog.set_level(logging.INFO, "router.blockers")
        self._caplog = caplog
        self.fleet = Fleet(2, events=False)
        self._log = BlockerLog(self.fleet.pool, Forwarding(self.fleet.pool, when))

    def worker(self, url: str) -> Worker:
        """One of them."""
        return self.fleet.worker(url)

    def look(self, **proofs: Proof | Blocker) -> list[str]:
        """The lines written in two looks after these proofs came in."""
        for url, proof in proofs.items():
            self.worker(url).proof = proof
        self._caplog.clear()
        self._log.look()
        self._log.look()
        return [
            f"{record.levelname} {record.getMessage()}"
            for record in self._caplog.records
            if record.name == "router.blockers"
        ]


@pytest.fixture
def rig(caplog: pytest.LogCaptureFixture) -> Rig:
    """Before any worker was asked."""
    return Rig(caplog)


def test_each_worker_that_blocks_is_named_once(rig: Rig) -> None:
    """With its reason; again when the set changes, or a reason; and when it clears."""
    assert rig.look() == []  # nobody has been asked
    assert rig.look(w1=TEMPLATE) == []  # w2 has not
    assert rig.look(w2=NO_FINGERPRINT) == [
        "WARNING chats go without token ids while these workers may render "
        "differently: w1 template_differs (templates.server); w2 no_fingerprint"
    ]
    assert rig.look() == []
    assert rig.look(w1=Blocker(reason="template_differs", detail="elsewhere")) == []
    (line,) = rig.look(w1=DIGEST)
    assert line.endswith("differently: w2 no_fingerprint")
    (line,) = rig.look(w2=TEMPLATE)
    assert line.endswith("differently: w2 template_differs (templates.server)")
    assert rig.look(w2=DIGEST) == [
        "INFO chats go with their token ids again: every worker renders alike"
    ]
    assert rig.look() == []


def test_a_proven_fleet_is_silent(rig: Rig) -> None:
    """There is nothing to say of what is as it should be."""
    assert rig.look(w1=DIGEST, w2=DIGEST) == []


def test_asking_again_is_no_news(rig: Rig) -> None:
    """A worker that is being asked counts as what it was found to be before."""
    rig.look(w1=TEMPLATE, w2=DIGEST)
    assert rig.look(w1=NOT_ASKED) == []
    assert rig.look(w2=NOT_ASKED) == []
    assert rig.look(w1=TEMPLATE, w2=DIGEST) == []
    assert rig.look(w1=NOT_ASKED) == []
    (line,) = rig.look(w1=DIGEST)
    assert line.startswith("INFO")


def test_a_worker_that_joins_is_not_blamed_before_it_is_asked(rig: Rig) -> None:
    """Then it is."""
    rig.look(w1=DIGEST, w2=DIGEST)
    rig.fleet.add("w3")
    assert rig.look() == []
    (line,) = rig.look(w3=TEMPLATE)
    assert "w3 template_differs" in line


def test_only_workers_that_serve_count(rig: Rig) -> None:
    """One that is down clears what it blocked; back, it is asked before it is named."""
    rig.look(w1=TEMPLATE, w2=DIGEST)
    rig.worker("w1").state = WorkerState.suspect
    assert rig.look() == []
    rig.worker("w1").state = WorkerState.down
    (line,) = rig.look(w1=NOT_ASKED)
    assert line.startswith("INFO")
    rig.worker("w1").state = WorkerState.ready
    assert rig.look() == []
    assert rig.look(w1=DIGEST) == []
    (line,) = rig.look(w1=TEMPLATE)
    assert "w1 template_differs" in line


def test_nothing_is_said_while_nobody_serves(rig: Rig) -> None:
    """A fleet that is down has not cleared anything."""
    rig.look(w1=TEMPLATE, w2=DIGEST)
    for url in ("w1", "w2"):
        rig.worker(url).state = WorkerState.down
    assert rig.look() == []
    for url in ("w1", "w2"):
        rig.worker(url).state = WorkerState.ready
    assert rig.look() == []


def test_the_modes(caplog: pytest.LogCaptureFixture) -> None:
    """With `chosen` the others get theirs; with `never` there is nothing to block."""
    (line,) = Rig(caplog, "chosen").look(w1=TEMPLATE, w2=DIGEST)
    assert "to workers that may render differently: w1 template_differs" in line
    assert Rig(caplog, "never").look(w1=TEMPLATE, w2=DIGEST) == []


def test_a_detail_is_one_short_piece_of_a_line(rig: Rig) -> None:
    """Whatever a worker has put in it."""
    odd = Blocker(reason="no_model", detail="a\nb\r\n c" + "x" * 10_000)
    (line,) = rig.look(w1=odd, w2=DIGEST)
    assert "w1 no_model (a b cxxx" in line
    assert len(line) < 400
