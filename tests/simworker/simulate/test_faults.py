"""Faults as an option tells them."""

import pytest

from simworker.simulate.faults import Fault, read_fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("restart:3@12.5", Fault(kind="restart", worker=3, amount=12.5)),
        ("restart:0@0", Fault(kind="restart", worker=0, amount=0.0)),
        ("slow:1=4", Fault(kind="slow", worker=1, amount=4.0)),
        ("slow:1=0.5", Fault(kind="slow", worker=1, amount=0.5)),
        ("lost-events:0.1", Fault(kind="lost-events", amount=0.1)),
        ("lost-events:1", Fault(kind="lost-events", amount=1.0)),
    ],
)
def test_faults(text: str, fault: Fault) -> None:
    """Each kind."""
    assert read_fault(text) == fault


@pytest.mark.parametrize(
    "text",
    [
        "", "restart", "restart:a@1", "restart:1", "restart:-1@1", "slow:1=0",
        "slow:1=nan", "lost-events:2", "lost-events:-0.1", "lost-events:50%", "fire:1",
        "slow:1=" + "9" * 400, "restart:1@" + "9" * 400,
    ],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    """The error lists what there is."""
    with pytest.raises(ValueError, match=r"none of restart:WORKER@SECONDS, lost-"):
        read_fault(text)
