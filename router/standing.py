"""What the gateway holds of a worker's fitness; `states.py` changes it and says how."""

import enum
import math
from collections.abc import Callable

from router.answers import Longest
from router.pulse import Pulse


class WorkerState(enum.StrEnum):
    """Whether a worker gets requests. See `router.states` for how it changes."""

    joining = "joining"
    ready = "ready"
    suspect = "suspect"
    down = "down"
    draining = "draining"


class Standing:
    """A worker's state, and what it hangs on."""

    def __init__(self, clock: Callable[[], float], longest: Longest) -> None:
        self.state = WorkerState.joining
        self.reason = "not contacted yet"
        self.since = clock()
        self.failures = 0
        """In a row."""
        self.retry_at = 0.0
        """When its back-off is over."""
        self.settled_at = math.inf
        """When its failures are forgotten."""
        self.on_probation = False
        """It returned, and has not answered whole since then."""
        self.on_trial = False
        """A request is to show whether it works."""
        self.unheard_trials = 0
        """Requests that were to show it before that one, and nothing has come since."""
        self.beats_at_trial = 0
        self.returns = 0
        """How often it came back from failures."""
        self.error_share = 0.0
        """How many of its latest answers were 5xx, from 0 to 1."""
        self.checks = 0
        """Health checks in a row that passed; below 0: that failed."""
        self.pulse = Pulse(clock, longest)
        self.stalled = False
        """It is suspect because nothing comes from it."""
        self.beats_at_stall = 0
        self.doubted = False
        """Its answers are overdue: it hangs, or they take long."""
        self.busy_until = -math.inf
        """When the rest is over that it asked for."""
