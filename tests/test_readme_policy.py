"""The policy that the README shows how to add works as it stands there."""

import random
import re
from collections.abc import Iterator, Sequence

import pytest

from router import POLICIES, Candidate, Policy, RouteRequest
from simworker.simulate.options import SimulateOptions
from simworker.simulate.prompts import BlockCutter
from simworker.simulate.replay import Replay, workload
from tests.documents import ROOT
from tests.router.choices import candidate
from tests.router.fleet import Clock

NAME = "fewest_requests"


@pytest.fixture
def theirs() -> Iterator[type[Policy]]:
    """The class, added as the README adds it."""
    text = (ROOT / "README.md").read_text()
    found = re.search(r"<!-- a policy of your own -->\n```python\n(.*?)```", text, re.S)
    assert found is not None
    names = {
        "Policy": Policy,
        "POLICIES": POLICIES,
        "RouteRequest": RouteRequest,
        "Sequence": Sequence,
        "Candidate": Candidate,
    }
    exec(found[1], names)
    yield POLICIES[NAME]
    del POLICIES[NAME]


def test_it_chooses(theirs: type[Policy]) -> None:
    """The longest held prefix among those with the fewest requests."""
    policy = theirs(random.Random(), Clock())
    candidates = [candidate(uncached=900), candidate(uncached=100), candidate()]
    assert policy.choose(RouteRequest(), candidates) == 1


def test_it_can_be_replayed_and_served(theirs: type[Policy]) -> None:
    """By its name: the simulation and the options of the gateway know it."""
    from gateway.settings.values import policy_name

    assert policy_name(NAME) == NAME
    options = SimulateOptions(block_size=64, limit=50)
    outcome = Replay(options, workload(options), NAME, BlockCutter(64)).run(1.0)
    assert outcome.success_rate == 1.0
    assert outcome.hit_rate > 0.5
