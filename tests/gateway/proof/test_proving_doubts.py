"""What makes a proof doubtful, and when it is asked for anew."""

import pytest

from router.proof import NOT_ASKED, Blocker, Proof
from router.request import RouteRequest
from router.states import DOWN_AFTER
from tests.gateway.proof.rig import AWAY, BY_DIGEST, DIFFERS, PROVEN, Rig, Steps


@pytest.mark.parametrize("kind", ["connect", "reset", "stale"])
async def test_doubts(steps: Steps, kind: str) -> None:
    """A request that met nobody, or a connection that broke, ends the proof at once."""
    rig = Rig(PROVEN, DIFFERS)
    router = rig.router()
    seen: list[Proof | Blocker] = []

    def request() -> None:
        decision = router.decide(RouteRequest(prompt_tokens=1))
        decision.sent()
        decision.failed(kind)
        seen.append(rig.worker.proof)

    rig.at(5.0, request)
    await steps(rig, 6.0)
    assert seen == [NOT_ASKED]
    assert rig.asked == [0.0, 5.0]
    assert rig.worker.proof == DIFFERS


@pytest.mark.parametrize("kind", ["timeout", "client", "status"])
async def test_no_doubts(steps: Steps, kind: str) -> None:
    """What no other process would show leaves it proven."""
    rig = Rig(PROVEN, DIFFERS)
    router = rig.router()

    def request() -> None:
        decision = router.decide(RouteRequest(prompt_tokens=1))
        decision.sent()
        decision.worker.pulse.beats += 1  # another one's answer goes on
        decision.failed(kind)

    rig.at(5.0, request)
    await steps(rig, 6.0)
    assert rig.asked == [0.0]
    assert rig.worker.proof == PROVEN


async def test_ids_rejected_stays(steps: Steps) -> None:
    """A worker that rejected ids is not proven by what it says, until a restart."""
    rejected = Blocker(reason="ids_rejected")
    rig = Rig(BY_DIGEST)
    rig.at(10.0, lambda: setattr(rig.worker, "proof", rejected))
    seen: list[Proof | Blocker] = []
    rig.at(50.0, lambda: seen.append(rig.worker.proof))
    rig.at(50.0, rig.restart)
    await steps(rig, 52.0)
    assert len(rig.asked) > 3
    assert seen == [rejected]
    assert rig.worker.proof == BY_DIGEST


async def test_workers_that_are_away(steps: Steps) -> None:
    """One that is down is not asked, and what was proven of it is forgotten."""
    rig = Rig(PROVEN, DIFFERS)
    seen: list[Proof | Blocker] = []

    def fail() -> None:
        for _ in range(DOWN_AFTER):
            rig.worker.on_trial = True
            rig.pool.failed(rig.worker, "refused")

    rig.at(5.0, fail)
    rig.at(40.0, lambda: seen.append(rig.worker.proof))
    rig.at(40.0, lambda: rig.pool.contacted(rig.worker))
    await steps(rig, 41.0)
    assert seen == [NOT_ASKED]
    assert rig.asked == [0.0, 40.0]
    assert rig.worker.proof == DIFFERS


async def test_suspects(steps: Steps) -> None:
    """One that failed once is pending, quietly; asked, and again when it is back."""
    rig = Rig(BY_DIGEST, AWAY, AWAY, PROVEN)
    seen: list[Proof | Blocker] = []
    rig.at(1.0, lambda: rig.pool.failed(rig.worker, "refused"))
    rig.at(1.0, lambda: seen.append(rig.worker.proof))
    rig.at(2.5, lambda: seen.append(rig.worker.proof))
    rig.at(30.0, lambda: seen.append(rig.worker.proof))
    rig.at(30.0, lambda: rig.pool.contacted(rig.worker))
    rig.at(30.0, lambda: seen.append(rig.worker.proof))
    await steps(rig, 31.0)
    assert seen == [NOT_ASKED, NOT_ASKED, PROVEN, NOT_ASKED]
    assert rig.asked[:2] == [0.0, 1.0]
    assert rig.asked[-1] == 30.0
    assert rig.worker.proof == PROVEN


async def test_no_contact_yet(steps: Steps) -> None:
    """A worker that was never contacted is pending."""
    rig = Rig(PROVEN)
    rig.facts.clear()
    await steps(rig, 30.0)
    assert rig.asked == []
    assert rig.worker.proof == NOT_ASKED
