"""When a worker is asked for proof: at once, after a restart, and again and again."""

import msgspec

from router.proof import NOT_ASKED, Blocker, Proof
from tests.gateway.proof.rig import (
    AWAY,
    BY_DIGEST,
    DIFFERS,
    FACTS,
    PROVEN,
    WIDE,
    Rig,
    Steps,
)


async def test_proven_once(steps: Steps) -> None:
    """A worker is asked at once, and where a day may begin; else left alone."""
    rig = Rig(PROVEN)
    await steps(rig, 880.0)
    assert rig.asked == [0.0]
    assert rig.worker.proof == PROVEN
    rig = Rig(PROVEN)
    await steps(rig, 3620.0)
    assert len(rig.asked) == 5
    begun = [(asked + 10.0) % 900.0 for asked in rig.asked[1:]]
    assert all(0.0 <= after <= 21.0 for after in begun)
    assert rig.seen[1:] == [PROVEN] * 4  # it stays proven meanwhile


async def test_fingerprints_are_read_again(steps: Steps) -> None:
    """A worker proven by its digest may have restarted: within ten seconds it shows."""
    rig = Rig(BY_DIGEST, BY_DIGEST, Blocker(reason="template_differs"))
    await steps(rig, 60.0)
    gaps = [after - at for at, after in zip(rig.asked, rig.asked[1:], strict=False)]
    assert all(5.0 < gap < 9.0 for gap in gaps)
    assert len(set(gaps)) > 1  # not all workers in step
    assert rig.worker.proof == Blocker(reason="template_differs")


async def test_restarts(steps: Steps) -> None:
    """Another process is not what was proven, and asked at once."""
    rig = Rig(PROVEN, DIFFERS)
    rig.at(5.0, rig.restart)
    await steps(rig, 6.0)
    assert rig.asked == [0.0, 5.0]
    assert rig.seen == [NOT_ASKED, NOT_ASKED]
    assert rig.worker.proof == DIFFERS


async def test_pages_that_fail(steps: Steps) -> None:
    """A start that is not told for a while is no restart."""
    rig = Rig(PROVEN, DIFFERS)
    untold = msgspec.structs.replace(FACTS, started_at=None)
    rig.at(5.0, lambda: rig.facts.update({rig.worker.url: untold}))
    rig.at(9.0, lambda: rig.facts.update({rig.worker.url: FACTS}))
    await steps(rig, 20.0)
    assert rig.asked == [0.0]
    assert rig.worker.proof == PROVEN


async def test_a_model_is_loaded_later(steps: Steps) -> None:
    """Nothing was to be compared when the first worker came: it is asked again."""
    rig = Rig(Blocker(reason="no_model"), PROVEN)
    rig.at(20.0, lambda: rig.rendered.append("m"))
    await steps(rig, 30.0)
    assert rig.asked == [0.0, 20.0]
    assert rig.worker.proof == PROVEN


async def test_a_second_model_is_loaded_later(steps: Steps) -> None:
    """What proved one model says nothing of another: all probes are asked."""
    rig = Rig(WIDE, DIFFERS)
    rig.rendered.append("m")
    rig.at(20.0, lambda: rig.rendered.append("n"))
    await steps(rig, 30.0)
    assert (rig.asked, rig.few) == ([0.0, 20.0], [False, False])
    assert rig.worker.proof == DIFFERS


async def test_a_restart_meanwhile(steps: Steps) -> None:
    """What a worker answered before it restarted is not written down."""
    rig = Rig(PROVEN, DIFFERS)

    def restart_once() -> None:
        rig.meanwhile = lambda: None
        rig.restart()

    rig.meanwhile = restart_once
    await steps(rig, 2.0)
    assert rig.asked == [0.0, 0.5]
    assert rig.seen == [NOT_ASKED, NOT_ASKED]
    assert rig.worker.proof == DIFFERS


async def test_back_off(steps: Steps) -> None:
    """A worker that does not answer is asked less and less often."""
    rig = Rig(AWAY)
    await steps(rig, 400.0)
    gaps = [after - at for at, after in zip(rig.asked, rig.asked[1:], strict=False)]
    assert gaps[0] < 2.0 < gaps[2] < gaps[4] < 25.0
    assert all(23.0 < gap < 37.0 for gap in gaps[6:])
    assert rig.worker.proof == AWAY


async def test_no_start_is_told(steps: Steps) -> None:
    """A worker proven by probes is asked a few again: another answer ends the proof."""
    fewer = Proof(by="probes", shapes=frozenset({"system"}))
    rig = Rig(WIDE, fewer, fewer, DIFFERS)
    rig.untold()
    await steps(rig, 30.0)
    gaps = [after - at for at, after in zip(rig.asked, rig.asked[1:], strict=False)]
    assert all(5.0 < gap < 9.0 for gap in gaps)
    assert rig.few[:4] == [False, True, True, True]
    assert rig.seen[:4] == [NOT_ASKED, WIDE, WIDE, WIDE]  # a few prove what all did
    assert rig.worker.proof == DIFFERS
    assert not any(rig.few[4:])  # what may be proven now, all probes tell


async def test_all_probes_where_a_day_may_begin(steps: Steps) -> None:
    """A template may print the date for some shapes only."""
    rig = Rig(WIDE)
    rig.untold()
    await steps(rig, 920.0)
    assert rig.few.count(False) == 2
    assert 880.0 < rig.asked[rig.few.index(False, 1)] < 915.0


async def test_a_fingerprint_instead_of_probes(steps: Steps) -> None:
    """A worker that publishes one now is proven by it."""
    rig = Rig(WIDE, BY_DIGEST)
    rig.untold()
    await steps(rig, 12.0)
    assert rig.worker.proof == BY_DIGEST


async def test_a_failure_ends_the_proof(steps: Steps) -> None:
    """It may be another process; only when it fails again is that more than pending."""
    rig = Rig(BY_DIGEST, AWAY, BY_DIGEST)
    await steps(rig, 60.0)
    assert rig.seen[:4] == [NOT_ASKED, BY_DIGEST, NOT_ASKED, BY_DIGEST]
    assert rig.asked[2] - rig.asked[1] < 2.0
    rig = Rig(BY_DIGEST, AWAY, AWAY, BY_DIGEST)
    await steps(rig, 60.0)
    assert rig.seen[:4] == [NOT_ASKED, BY_DIGEST, NOT_ASKED, AWAY]
    assert rig.worker.proof == BY_DIGEST
