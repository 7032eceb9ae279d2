"""What a worker owes and is overdue, while nothing at all comes from it.

First tokens, measured by what its prefills should take, and answers that are not
streamed, by what such answers took lately. What follows from it is in `states.py`.
"""

import msgspec

from router.answers import AVOIDED_S, IN_A_ROW
from router.worker import Worker

STALLED_S, STALLED_TIMES = 10.0, 10.0
"""Silence that is borne: seconds, and multiples of the prefill in flight, or of what
answers take."""
SLOW_S = 1.0
MANY, MANY_SLOW_S = 2, 0.2
"""First tokens owed from which on less is borne: the less, the more there are."""


class Overdue(msgspec.Struct, frozen=True):
    """What is overdue: for a `long` time, or so that its clients `gave_up`, all.

    `doubtful`: the worker hangs, or what it was asked for just takes long.
    """

    reason: str
    long: bool = False
    gave_up: bool = False
    doubtful: bool = False


def overdue(worker: Worker) -> Overdue | None:
    """What is overdue at that worker; None where nothing is."""
    return _first_tokens(worker) or _answers(worker)


def _first_tokens(worker: Worker) -> Overdue | None:
    pulse = worker.pulse
    silent_s = pulse.silent_s(worker.prefill_s if pulse.owed else 0.0)
    waited = pulse.owed + pulse.missed
    borne_s = SLOW_S if waited < MANY else MANY_SLOW_S / waited
    if silent_s <= borne_s:
        return None
    if not pulse.owed:
        late = worker.stalled or pulse.late_s(0.0, worker.rate.cost_s) > borne_s
        return Overdue("first tokens never came", gave_up=True) if late else None
    long = silent_s > STALLED_S + STALLED_TIMES * pulse.expected_s
    if not long and worker.first_token_late_s <= borne_s:
        return None
    return Overdue(f"first tokens are overdue, silent for {silent_s:.0f} s", long=long)


def _answers(worker: Worker) -> Overdue | None:
    """Three of them; of a worker on trial, the one that it got."""
    answers, enough = worker.pulse.answers, 1 if worker.on_trial else IN_A_ROW
    late_s = worker.pulse.answers_late_s(enough)
    if late_s and answers.missed >= enough:
        return Overdue("answers never came", gave_up=True)
    if late_s <= AVOIDED_S:
        return None
    long = late_s > STALLED_S + STALLED_TIMES * answers.usual_s
    reason = f"answers are overdue, by {late_s:.0f} s"
    return Overdue(reason, long=long, doubtful=True)
