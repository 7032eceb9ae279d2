"""What a policy is, and the comparisons policies are made of.

A policy only compares; the router keeps the books. Ties go to the candidate chosen
longest ago, so equal workers take turns.
"""

import random
from collections.abc import Callable, Sequence

from router.candidate import Candidate
from router.request import RouteRequest


class Policy:
    """Chooses among candidates: one method to write, and the words that explain it."""

    reason = "chosen"
    """Why a candidate is chosen, in a few words for `explain`."""

    def __init__(self, rng: random.Random, clock: Callable[[], float]) -> None:
        """`rng` and `clock` are the only chance and time there are for a policy."""
        self.rng = rng
        self.clock = clock

    def choose(self, request: RouteRequest, candidates: Sequence[Candidate]) -> int:
        """The index of the candidate that gets the request; there is at least one.

        It only compares: `explain` asks as well, and nothing comes of it.
        """
        raise NotImplementedError

    def book(self, request: RouteRequest, candidates: Sequence[Candidate]) -> int:
        """As `choose`, for a request that is sent there: the time to learn from it."""
        return self.choose(request, candidates)

    def because(
        self, request: RouteRequest, candidates: Sequence[Candidate], chosen: int
    ) -> str:
        """Why `choose` says so of several candidates, for `explain`."""
        return self.reason


Key = tuple[float, ...] | int


def by_wait(candidate: Candidate) -> Key:
    """The least prefill in flight; then where least is being decoded; then in turns."""
    return candidate.wait_s, candidate.decoding_tokens, candidate.last_turn


def by_calm(candidate: Candidate) -> Key:
    """The least prefill in flight; then the least busy; in turns."""
    return candidate.wait_s, candidate.busy_s, candidate.last_turn


def by_ease(candidate: Candidate) -> Key:
    """The least busy; then where least is being decoded; then in turns."""
    return candidate.busy_s, candidate.decoding_tokens, candidate.last_turn


def by_turn(candidate: Candidate) -> Key:
    """In turns."""
    return candidate.last_turn


def least(candidates: Sequence[Candidate], key: Callable[[Candidate], Key]) -> int:
    """The index of the candidate with the smallest key."""
    keys = [key(candidate) for candidate in candidates]
    return keys.index(min(keys))
