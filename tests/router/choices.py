"""Candidates made by hand, for tests of what is chosen among them."""

import random

from router import (
    POLICIES,
    Candidate,
    Policy,
    Rendering,
    RouteRequest,
    Worker,
    WorkerSpec,
)
from router.rate import PrefillRate
from tests.router.fleet import Clock

SIZE = 10
HASHES = tuple(range(100, 200))


def candidate(
    url: str = "w",
    *,
    uncached: int = 1_000,
    inflight: int = 0,
    decode: int = 0,
    rate: float = 20_000,
    last_turn: int = 0,
    room: int | None = None,
    late_s: float = 0.0,
) -> Candidate:
    """A candidate for a prompt of 1,000 tokens: 100 blocks of 10."""
    spec = WorkerSpec(url=url)
    worker = Worker(spec, clock=Clock(), rate=PrefillRate(rate))
    return Candidate(
        worker=worker,
        rank=0,
        rendering=Rendering(
            profile="vllm", block_size=SIZE, hashes=HASHES, token_count=1_000
        ),
        prompt_tokens=1_000,
        held_tokens=1_000 - uncached,
        history_tokens=0,
        hit_tokens=1_000 - uncached,
        uncached_tokens=uncached,
        inflight_tokens=inflight,
        inflight_requests=0,
        decode_tokens=decode,
        tokens_per_s=rate,
        last_turn=last_turn,
        room_tokens=room,
        late_s=late_s,
    )


def policy(name: str, *, seed: int = 1, clock: Clock | None = None) -> Policy:
    """A policy with seeded chance and a clock moved by hand."""
    return POLICIES[name](random.Random(seed), clock or Clock())


def choose(name: str, *candidates: Candidate, session: str | None = None) -> int:
    """The index a policy chooses."""
    return policy(name).choose(RouteRequest(session=session), candidates)
