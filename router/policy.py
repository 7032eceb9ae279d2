"""Policies: which of the candidates gets the request.

A policy only compares; it keeps no books. Ties go to the candidate chosen longest ago,
so equal workers take turns.
"""

import random
from collections.abc import Callable, Mapping, Sequence

import msgspec

from router.regret import Regrets
from router.request import Rendering
from router.worker import Worker

OWN_WEIGHT = 2
"""A prefill costs its own time, and as much again to those that wait behind it."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One (worker, rank) a request may go to, with all a policy weighs. Tokens.

    `held_tokens` (by the index) and `history_tokens` are what is known of its cache,
    `hit_tokens` what is taken as held, each block in full; `uncached_tokens` is the
    rest of the prompt, where doubtful and offloaded blocks count as held in part only.
    `tokens_per_s` is the prefill rate. `last_turn` grows with each choice.
    """

    worker: Worker
    rank: int
    rendering: Rendering | None
    prompt_tokens: int
    held_tokens: int
    history_tokens: int
    hit_tokens: int
    uncached_tokens: int
    inflight_tokens: int
    inflight_requests: int
    decode_tokens: int
    tokens_per_s: float
    last_turn: int

    @property
    def cost_s(self) -> float:
        """Seconds of prefill this request costs all here, itself included."""
        tokens = self.inflight_tokens + OWN_WEIGHT * self.uncached_tokens
        return tokens / self.tokens_per_s

    @property
    def estimate_s(self) -> float:
        """Seconds until its prefill would be done, behind what is in flight."""
        return (self.inflight_tokens + self.uncached_tokens) / self.tokens_per_s


class Policy:
    """Chooses among candidates: one method to write, and the words that explain it."""

    reason = "chosen"
    """Why a candidate is chosen, in a few words for `explain`."""

    def choose(self, candidates: Sequence[Candidate]) -> int:
        """The index of the candidate that gets the request; there is at least one.

        It only compares: `explain` asks as well, and nothing comes of it.
        """
        raise NotImplementedError

    def booked(self, candidates: Sequence[Candidate], chosen: int) -> None:
        """A request was sent where `choose` said: the time to learn from it."""


class KvCacheAware(Policy):
    """Where the prefill costs least; then where least is being decoded.

    But for a prefix that many wait for, where one more copy of it costs least.
    """

    reason = "least prefill cost"

    def __init__(self) -> None:
        self._regrets = Regrets()

    def choose(self, candidates: Sequence[Candidate]) -> int:
        """The candidate of least `cost_s`, or the least loaded for one more copy."""
        best, idle = _best_and_idle(candidates)
        wait = _wait(candidates[best], candidates[idle])
        if wait is None or not self._regrets.due(
            wait.prefix, wait.wait_s, wait.price_s
        ):
            return best
        return idle

    def booked(self, candidates: Sequence[Candidate], chosen: int) -> None:
        """Note what the request waits longer than it had to, or that it paid a copy."""
        best, idle = _best_and_idle(candidates)
        wait = _wait(candidates[best], candidates[idle])
        if wait is not None and chosen == best:
            self._regrets.waited(wait.prefix, wait.wait_s, candidates[0].worker._clock(), wait.price_s)
        elif wait is not None:
            self._regrets.paid(wait.prefix)


def _best_and_idle(candidates: Sequence[Candidate]) -> tuple[int, int]:
    """The cheapest, and the least loaded; one with nothing in flight is as good."""
    best = _least(candidates, _by_cost)
    waits = candidates[best].inflight_tokens > 0
    return best, _least(candidates, _by_load) if waits else best


class _Wait(msgspec.Struct, frozen=True, gc=False):
    """What a request waits longer where its prefix is, and what a copy would take."""

    prefix: int
    wait_s: float
    price_s: float


def _wait(best: Candidate, idle: Candidate) -> _Wait | None:
    """None where the least loaded is the cheapest, or no prefix is held anywhere."""
    rendering = best.rendering
    if best is idle or rendering is None or not best.hit_tokens:
        return None
    wait_s = best.inflight_tokens / best.tokens_per_s
    return _Wait(
        rendering.hashes[best.hit_tokens // rendering.block_size - 1],
        wait_s - idle.inflight_tokens / idle.tokens_per_s,
        (idle.uncached_tokens - best.uncached_tokens) / idle.tokens_per_s,
    )


class LeastLoaded(Policy):
    """Fewest uncached prompt tokens in flight, whatever is cached where."""

    reason = "fewest tokens in flight"

    def choose(self, candidates: Sequence[Candidate]) -> int:
        """The candidate with the least prefill time in flight."""
        return _least(candidates, _by_load)


class RoundRobin(Policy):
    """Each in its turn: the one chosen longest ago."""

    reason = "its turn"

    def choose(self, candidates: Sequence[Candidate]) -> int:
        """The candidate with the smallest `last_turn`."""
        return _least(candidates, _by_turn)


class Random(Policy):
    """Any, with equal chances."""

    reason = "drawn at random"

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def choose(self, candidates: Sequence[Candidate]) -> int:
        """A random candidate."""
        return self._rng.randrange(len(candidates))


POLICIES: Mapping[str, Callable[[random.Random], Policy]] = {
    "kv_cache_aware": lambda rng: KvCacheAware(),
    "least_loaded": lambda rng: LeastLoaded(),
    "round_robin": lambda rng: RoundRobin(),
    "random": Random,
}
"""The policies by the name they are asked for."""

Key = tuple[float, int, int] | int


def _by_cost(candidate: Candidate) -> Key:
    return candidate.cost_s, candidate.decode_tokens, candidate.last_turn


def _by_load(candidate: Candidate) -> Key:
    load_s = candidate.inflight_tokens / candidate.tokens_per_s
    return load_s, candidate.decode_tokens, candidate.last_turn


def _by_turn(candidate: Candidate) -> Key:
    return candidate.last_turn


def _least(candidates: Sequence[Candidate], key: Callable[[Candidate], Key]) -> int:
    keys = [key(candidate) for candidate in candidates]
    return keys.index(min(keys))
