"""The policies there are, by the name they are asked for.

Another one is a class with one method (`router.policy.Policy`) and a line in
`POLICIES`.
"""

from collections.abc import Sequence

from router.candidate import DELAY_WEIGHT, Candidate
from router.kv_cache_aware import KvCacheAware
from router.policy import Policy, by_turn, by_wait, least
from router.request import RouteRequest
from router.session import homes


class LeastLoaded(Policy):
    """Fewest uncached prompt tokens in flight, whatever is cached where."""

    reason = "fewest tokens in flight"

    def choose(self, request: RouteRequest, candidates: Sequence[Candidate]) -> int:
        """The candidate with the least prefill time in flight."""
        return least(candidates, by_wait)


class RoundRobin(Policy):
    """Each in its turn: the one chosen longest ago."""

    reason = "its turn"

    def choose(self, request: RouteRequest, candidates: Sequence[Candidate]) -> int:
        """The candidate with the smallest `last_turn`."""
        return least(candidates, by_turn)


class Random(Policy):
    """Any, with equal chances."""

    reason = "drawn at random"

    def choose(self, request: RouteRequest, candidates: Sequence[Candidate]) -> int:
        """A random candidate."""
        return self.rng.randrange(len(candidates))


class PowerOfTwo(Policy):
    """The less loaded of two drawn at random."""

    reason = "the less loaded of two"

    def choose(self, request: RouteRequest, candidates: Sequence[Candidate]) -> int:
        """The one of the two with less prefill time in flight."""
        places = range(len(candidates))
        drawn = self.rng.sample(places, min(2, len(places)))
        return drawn[least([candidates[place] for place in drawn], by_wait)]


class Session(Policy):
    """The home of the request's session, the next one where that is saturated.

    Without a session, fewest tokens in flight. A home is taken to hold the prompt, so
    it is saturated once the prompt would cost less where it is not held.
    """

    reason = "its session's home"

    def choose(self, request: RouteRequest, candidates: Sequence[Candidate]) -> int:
        """The first home that is not saturated; the least loaded never is."""
        idle = least(candidates, by_wait)
        if request.session is None:
            return idle
        other = candidates[idle]
        prefill_s = other.prompt_tokens / other.tokens_per_s
        limit_s = other.wait_s + (1 + DELAY_WEIGHT) * prefill_s
        order = homes(request.session, candidates)
        return next(n for n in order if n == idle or candidates[n].wait_s <= limit_s)


POLICIES: dict[str, type[Policy]] = {
    "kv_cache_aware": KvCacheAware,
    "least_loaded": LeastLoaded,
    "round_robin": RoundRobin,
    "random": Random,
    "power_of_two": PowerOfTwo,
    "session": Session,
}
