"""The default policy: where the prefill costs least, all things considered.

No weights to tune: all it compares is seconds. What it remembers are prefixes that
many wait for, or that keep one worker busy while others idle (`router.regret`).
"""

import random
from collections.abc import Callable, Sequence

import msgspec

from router.candidate import Candidate
from router.cheapest import cheapest
from router.policy import Policy, by_calm, least
from router.regret import Regrets
from router.request import RouteRequest
from router.session import homes

MORE_ROOM = "about the least prefill cost, and more room in its KV cache"


class KvCacheAware(Policy):
    """Where the prefill costs least; of about equal ones, where least is going on.

    But for a prefix that crowds its worker, where one more copy of it is used soonest;
    and where no worker is known to hold any of it, at its session's home.
    """

    reason = "least prefill cost"

    def __init__(self, rng: random.Random, clock: Callable[[], float]) -> None:
        super().__init__(rng, clock)
        self._regrets = Regrets(clock)

    def choose(self, request: RouteRequest, candidates: Sequence[Candidate]) -> int:
        """The candidate of least `cost_s`, but for copies and sessions."""
        return self._weigh(request, candidates)[0]

    def book(self, request: RouteRequest, candidates: Sequence[Candidate]) -> int:
        """Note what the request waits longer than it had to, or that it paid a copy."""
        chosen, wait = self._weigh(request, candidates)
        if wait is not None and chosen == wait.idle:
            self._regrets.paid(wait.prefix)
        elif wait is not None:
            self._regrets.waited(wait.prefix, wait.longer_s, wait.copy_s)
        return chosen

    def _weigh(
        self, request: RouteRequest, candidates: Sequence[Candidate]
    ) -> "tuple[int, _Wait | None]":
        """What to choose, and what is lost by waiting where the prefix is."""
        best = cheapest(candidates)
        if request.session and not any(map(_knows, candidates)):
            return _at_home(request.session, candidates, best), None
        wait = _wait(candidates, best)
        if wait is None:
            return best, None
        copy = self._regrets.due(wait.prefix, wait.longer_s, wait.copy_s)
        return wait.idle if copy else best, wait

    def because(
        self, request: RouteRequest, candidates: Sequence[Candidate], chosen: int
    ) -> str:
        """Why it is the cheapest, or why not."""
        if chosen == cheapest(candidates):
            least_s = min(candidate.cost_s for candidate in candidates)
            return self.reason if candidates[chosen].cost_s == least_s else MORE_ROOM
        if request.session and not any(map(_knows, candidates)):
            return "its session's home, as none of it is held anywhere"
        return "one more copy of a prefix that crowds its worker"


def _knows(candidate: Candidate) -> int:
    return candidate.hit_tokens or candidate.guessed_tokens


def _at_home(session: str, candidates: Sequence[Candidate], best: int) -> int:
    """The session's home, unless it waits there for longer than elsewhere in all."""
    home = homes(session, candidates)[0]
    saturated = candidates[home].wait_s > candidates[best].estimate_s
    return best if saturated else home


class _Wait(msgspec.Struct, frozen=True, gc=False):
    """What a request loses where its prefix is, and what a copy would take."""

    idle: int
    prefix: int
    longer_s: float
    copy_s: float


def _wait(candidates: Sequence[Candidate], chosen: int) -> _Wait | None:
    """None where nobody would gain, or no prefix is held there.

    Waiting alone is no reason for a copy that pushes out something else: that may be
    asked for again as well, and is held nowhere then. Crowding is. All that is booked
    there counts: by what is left of it copies of a new prefix came too late.
    """
    best = candidates[chosen]
    if not best.hit_tokens or best.rendering is None:
        return None
    index = least(candidates, by_calm)
    idle = candidates[index]
    longer_s = _crowding_s(best, idle, candidates)
    if not idle.pushes_out:
        longer_s += best.booked_s - idle.booked_s
    copy_s = idle.prefill_s - best.prefill_s
    if index == chosen or longer_s <= 0:
        return None
    prefix = best.rendering.hashes[best.hit_tokens // best.rendering.block_size - 1]
    return _Wait(index, prefix, longer_s, copy_s)


def _crowding_s(
    best: Candidate, idle: Candidate, candidates: Sequence[Candidate]
) -> float:
    """What the request adds to the load of a worker that has more than its share.

    Where nobody waits nothing else would keep a prefix from staying on one worker,
    whose cache and decoding then serve all its requests while the others' stand idle.
    What there is to prefill and to decode counts, up to once, in the measure that the
    worker got more lately than the idle one: by a mean share, that is no matter, by
    two, in full. A token decoded slows those beside it about as one prefilled does.
    """
    mean = sum(candidate.busy_s for candidate in candidates) / len(candidates)
    ahead = best.busy_s - idle.busy_s
    if ahead <= mean:
        return 0.0
    work_s = best.prefill_s + best.output_tokens / best.tokens_per_s
    return min(1.0, ahead / mean - 1) * work_s
