"""Workloads made up from a seed: what fleets meet, and what they fear.

Lengths are drawn from log-normal distributions given by mean and deviation, as
inference-perf's catalogue describes its presets.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping

from simworker.simulate.prompts import Prompt, extended
from simworker.simulate.workload import Asked

Generator = Callable[[random.Random], list[Asked]]


def _lognormal(rng: random.Random, mean: float, deviation: float) -> float:
    spread = math.log(1 + (deviation / mean) ** 2)
    return rng.lognormvariate(math.log(mean) - spread / 2, math.sqrt(spread))


def _tokens(rng: random.Random, mean: float, share: float = 0.3) -> int:
    """A length around `mean`, deviating by `share` of it."""
    return max(1, round(_lognormal(rng, mean, mean * share)))


def _poisson(rng: random.Random, rate: float, until: float) -> Iterator[float]:
    at = rng.expovariate(rate)
    while at < until:
        yield at
        at += rng.expovariate(rate)


def b2b(rng: random.Random) -> list[Asked]:
    """150 tenants with a prefix of 6,000 tokens each, 5 users each with one question.

    Arrivals in stages from 3 to 60 a second: about 11,000 requests in 320 s. Answers of
    250 tokens: with 1,000 their blocks alone would fill the caches at the end.
    """
    asked = []
    stages = (3, 10, 15, 20, 22, 25, 30, 35, 40, 43, 46, 49, 52, 55, 57, 60)
    for number, rate in enumerate(stages):
        for at in _poisson(rng, rate, 20.0):
            tenant, user = rng.randrange(150), rng.randrange(5)
            prefix = extended((), tenant, 6_000)
            asked.append(
                Asked(
                    at=20.0 * number + at,
                    prompt=extended(prefix, user, 1_200),
                    output_tokens=250,
                )
            )
    return asked


class _Chats:
    """Chats that grow turn by turn, each waiting for the answer before."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.asked: list[Asked] = []
        self._names = itertools.count(1_000_000)

    def name(self) -> int:
        """A name nothing else has."""
        return next(self._names)

    def ask(
        self,
        prompt: Prompt,
        output_tokens: int,
        *,
        at: float = 0.0,
        follows: int | None = None,
        gap_s: float = 0.0,
        session: str | None = None,
    ) -> tuple[int, Prompt]:
        """Add a request; its place, and its prompt with the answer."""
        answer = self.name()
        if follows is not None:
            session = self.asked[follows].session
        place = len(self.asked)
        self.asked.append(
            Asked(
                prompt=prompt,
                output_tokens=output_tokens,
                at=at,
                follows=follows,
                gap_s=gap_s,
                answer=answer,
                session=session,
            )
        )
        return place, extended(prompt, answer, output_tokens)

    def more(self, prompt: Prompt, tokens: int) -> Prompt:
        """`prompt` with so many tokens that nobody else has."""
        return extended(prompt, self.name(), tokens)


def chat4(rng: random.Random) -> list[Asked]:
    """2,500 chats over 4 system prompts of 1,000 tokens, about 4 turns each."""
    chats = _Chats(rng)
    for at in itertools.islice(_poisson(rng, 10.0, math.inf), 2_500):
        prompt = chats.more(extended((), rng.randrange(4), 1_000), _tokens(rng, 1_500))
        _converse(chats, prompt, at, turns=_tokens(rng, 4, 0.5), growth=300, gap=15.0)
    return chats.asked


def _converse(
    chats: _Chats,
    prompt: Prompt,
    at: float,
    *,
    turns: int,
    growth: int,
    gap: float,
    output: int = 300,
) -> None:
    rng = chats.rng
    session = f"chat {chats.name()}"
    place, prompt = chats.ask(prompt, _tokens(rng, output), at=at, session=session)
    for _ in range(turns - 1):
        prompt = chats.more(prompt, _tokens(rng, growth))
        pause = rng.expovariate(1 / gap)
        place, prompt = chats.ask(
            prompt, _tokens(rng, output), follows=place, gap_s=pause
        )


def agents(rng: random.Random) -> list[Asked]:
    """160 sessions that grow beyond 100,000 tokens, with sub-agents on the way.

    Four shared system prompts of 3,000 tokens; about 20 turns, 13 s apart; now and then
    a turn starts a group of sub-agents on what the session knows so far, or drops most
    of its context.
    """
    chats = _Chats(rng)
    for at in itertools.islice(_poisson(rng, 0.5, math.inf), 160):
        system = extended((), rng.randrange(4), 3_000)
        prompt = chats.more(system, _tokens(rng, 17_000, 0.8))
        place, prompt = chats.ask(
            prompt, _tokens(rng, 500), at=at, session=f"agent {chats.name()}"
        )
        for _ in range(_tokens(rng, 20, 0.6)):
            pause = rng.expovariate(1 / 13.0)
            if rng.random() < 0.05:
                prompt = chats.more(system, _tokens(rng, 8_000))
            else:
                prompt = chats.more(prompt, _tokens(rng, 1_500, 1.5))
            if rng.random() < 0.05:
                _fan_out(chats, prompt, place, pause)
            place, prompt = chats.ask(
                prompt, _tokens(rng, 500), follows=place, gap_s=pause
            )
    return chats.asked


def _fan_out(chats: _Chats, prompt: Prompt, place: int, pause: float) -> None:
    """A group of about seven sub-agents that all begin with the session's context."""
    rng = chats.rng
    for _ in range(_tokens(rng, 7, 0.5)):
        task = chats.more(prompt, _tokens(rng, 400))
        chats.ask(task, _tokens(rng, 300), follows=place, gap_s=pause)


def no_sharing(rng: random.Random) -> list[Asked]:
    """6,000 prompts around 4,000 tokens, none like another."""
    chats = _Chats(rng)
    for at in itertools.islice(_poisson(rng, 20.0, math.inf), 6_000):
        chats.ask(chats.more((), _tokens(rng, 4_000, 1.0)), _tokens(rng, 200), at=at)
    return chats.asked


def one_hot_prefix(rng: random.Random) -> list[Asked]:
    """A prefix of 8,000 tokens in four of five requests, 40 a second."""
    chats = _Chats(rng)
    for at in _poisson(rng, 40.0, 150.0):
        prefix = extended((), 0, 8_000) if rng.random() < 0.8 else ()
        prompt = chats.more(prefix, _tokens(rng, 1_500, 0.8))
        chats.ask(prompt, _tokens(rng, 200), at=at)
    return chats.asked


def oversubscribed(rng: random.Random) -> list[Asked]:
    """900 tenants with prefixes of 6,000 tokens: twice what the usual fleet can hold.

    Some tenants ask far more often than others.
    """
    chats = _Chats(rng)
    weights = [1 / (rank + 1) for rank in range(900)]
    tenants = rng.choices(range(900), weights, k=9_000)
    for at, tenant in zip(_poisson(rng, 25.0, math.inf), tenants, strict=False):
        prompt = chats.more(extended((), tenant, 6_000), _tokens(rng, 600))
        chats.ask(prompt, _tokens(rng, 200), at=at)
    return chats.asked


SYNTHETIC: Mapping[str, Generator] = {
    "b2b": b2b,
    "chat4": chat4,
    "agents": agents,
    "no-sharing": no_sharing,
    "one-hot-prefix": one_hot_prefix,
    "oversubscribed": oversubscribed,
}
"""The generators by name."""
