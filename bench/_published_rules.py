"""Rules of choice that other routers publish, as policies of ours to compare with.

Each is told from what its authors wrote, with their defaults; none is their code.
"""

from collections.abc import Callable, Mapping, Sequence

from router.candidate import Candidate
from router.policy import Policy
from router.request import RouteRequest

SATURATION_TOKENS = 286_720
"""llm-d's default: 15,928 tokens a second, for 18 seconds."""
WARM = 0.8
SWITCH_REQUESTS = 64
SWITCH_RATIO = 1.5
MATCH_THRESHOLD = 0.5


def _match(candidate: Candidate) -> float:
    return candidate.hit_tokens / max(1, candidate.prompt_tokens)


class _Drawn(Policy):
    """A rule whose ties are broken by chance."""

    def _best(
        self,
        candidates: Sequence[Candidate],
        key: Callable[[Candidate], float],
        among: Sequence[int] | None = None,
    ) -> int:
        """The place of the largest key."""
        places = range(len(candidates)) if among is None else among
        return max(places, key=lambda p: (key(candidates[p]), self.rng.random()))


class LongestPrefix(_Drawn):
    """Whoever holds most of the prompt; then the least loaded."""

    reason = "longest prefix"

    def choose(self, request: RouteRequest, candidates: Sequence[Candidate]) -> int:
        """The largest hit, then the fewest tokens in flight."""
        most = max(candidate.hit_tokens for candidate in candidates)
        among = [n for n, c in enumerate(candidates) if c.hit_tokens == most]
        return self._best(candidates, lambda c: -c.inflight_tokens, among)


class MatchMinusRequests(_Drawn):
    """TensorRT-LLM's older score: matched share less requests over a batch of 64."""

    reason = "match minus requests"

    def choose(self, request: RouteRequest, candidates: Sequence[Candidate]) -> int:
        """The largest score."""
        return self._best(candidates, lambda c: _match(c) - c.inflight_requests / 64)


class ThresholdWithSwitch(_Drawn):
    """SGLang's router: by cache above a threshold, by load once that is uneven."""

    reason = "threshold with imbalance switch"

    def choose(self, request: RouteRequest, candidates: Sequence[Candidate]) -> int:
        """Fewest requests if uneven; else the best match above the threshold."""
        loads = [candidate.inflight_requests for candidate in candidates]
        most, least = max(loads), min(loads)
        if most - least > SWITCH_REQUESTS and most > SWITCH_RATIO * least:
            return self._best(candidates, lambda c: -c.inflight_requests)
        if max(map(_match, candidates)) > MATCH_THRESHOLD:
            return self._best(candidates, _match)
        return self._best(candidates, lambda c: -c.inflight_requests)


class StickyUntilSaturated(_Drawn):
    """llm-d's default: the warm ones, until they are that many tokens behind."""

    reason = "sticky until saturated"

    def choose(self, request: RouteRequest, candidates: Sequence[Candidate]) -> int:
        """Least tokens to prefill among the warm, or among all."""
        among: Sequence[int] = range(len(candidates))
        warm = [n for n in among if _match(candidates[n]) >= WARM]
        if warm:
            behind = min(candidates[n].inflight_tokens for n in warm)
            least = min(candidate.inflight_tokens for candidate in candidates)
            if behind - least <= SATURATION_TOKENS:
                among = warm
        return self._best(
            candidates,
            lambda c: -(c.inflight_tokens + c.prompt_tokens - c.hit_tokens),
            among,
        )


class PredictedFirstToken(_Drawn):
    """The soonest first token for this request alone."""

    reason = "predicted first token"

    def choose(self, request: RouteRequest, candidates: Sequence[Candidate]) -> int:
        """The smallest estimate."""
        return self._best(candidates, lambda c: -c.estimate_s)


PUBLISHED: Mapping[str, type[Policy]] = {
    "longest prefix": LongestPrefix,
    "match minus requests": MatchMinusRequests,
    "threshold with switch": ThresholdWithSwitch,
    "sticky until saturated": StickyUntilSaturated,
    "predicted first token": PredictedFirstToken,
}
"""The rules by the name the report gives them."""
