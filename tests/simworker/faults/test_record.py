"""The record of faults: what it takes and what it refuses."""

import pytest

from simworker.faults.record import NONE, BadFaults, Faults, read_faults


def test_what_is_not_named_is_not_wrong() -> None:
    """The default is that nothing is."""
    assert read_faults("{}") == NONE == Faults()
    assert read_faults('{"drop": 2, "replay": "hang"}') == Faults(drop=2, replay="hang")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nothing", "malformed"),
        ('{"dorp": 1}', "unknown field `dorp`"),
        ('{"drop": "all"}', "int"),
        ('{"drop": -1}', "drop must be from 0 to 1000000"),
        ('{"delay_s": 1e12}', "delay_s must be from"),
        ('{"spoil": "rotten"}', "spoil must be one of: malformed, truncated"),
        ('{"replay": "fast"}', "replay must be one of: slow, hang, cut, refuse"),
        ('{"drain": "slow"}', "drain must be one of: hang, error, garbage"),
    ],
)
def test_bad_faults(text: str, why: str) -> None:
    """One line that says why."""
    with pytest.raises(BadFaults, match=why) as caught:
        read_faults(text)
    assert "\n" not in str(caught.value)
