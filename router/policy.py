"""Policies: which of the candidates gets the request.

A policy only compares; it keeps no books. Ties go to the candidate chosen longest ago,
so equal workers take turns.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

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


class Policy(Protocol):
    """Chooses among candidates; `candidates` is never empty."""

    @property
    def reason(self) -> str:
        """Why a candidate is chosen, in a few words for `explain`."""
        ...

    def choose(self, candidates: Sequence[Candidate]) -> int:
        """The index of the candidate that gets the request."""
        ...


class KvCacheAware:
    """Where the prefill costs least; then where least is being decoded."""

    reason = "least prefill cost"

    def choose(self, candidates: Sequence[Candidate]) -> int:
        """The candidate of least `cost_s`."""
        return _least(candidates, _by_cost)


class LeastLoaded:
    """Fewest uncached prompt tokens in flight, whatever is cached where."""

    reason = "fewest tokens in flight"

    def choose(self, candidates: Sequence[Candidate]) -> int:
        """The candidate with the least prefill time in flight."""
        return _least(candidates, _by_load)


class RoundRobin:
    """Each in its turn: the one chosen longest ago."""

    reason = "its turn"

    def choose(self, candidates: Sequence[Candidate]) -> int:
        """The candidate with the smallest `last_turn`."""
        return _least(candidates, _by_turn)


class Random:
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
