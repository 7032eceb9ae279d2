"""Work for prefix indexes, the same for each: what workers store and remove, prompts.

A seeded forest of conversations below system prompts that all workers hold. A block is
a pair of 64-bit numbers: the engine's name for it, and its content. Only the standard
library: a peer's interpreter runs this, too.
"""

import random
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

RUN = 16
"""Blocks an event stores or removes at most: 256 tokens at block size 16."""
PROMPTS = 16
PROMPT_BLOCKS = 128
SHORTEST, LONGEST = 128, 1_024
REPLICATED = 0.25
"""Share of the conversations that are at two workers."""
LONG_PROMPT = 2_048
KINDS = ("deep", "shared by all", "miss", "32k prompt")
"""The queries: part of a conversation and 32 blocks more; a system prompt and 512
more; 2,048 unknown blocks; 2,048 blocks, of which a conversation is known."""

Block = tuple[int, int]


class Blocks(NamedTuple):
    """Consecutive blocks: the engine's names, and contents."""

    names: Sequence[int]
    contents: Sequence[int]


class Conversation(NamedTuple):
    """Blocks below one of the system prompts, and the workers that hold them."""

    prompt: int
    blocks: Blocks
    workers: list[int]


class Stored(NamedTuple):
    """A worker stored a run below the named block, or the first of a prompt."""

    worker: int
    parent: int | None
    blocks: list[Block]


class Removed(NamedTuple):
    """A worker removed blocks, the deepest first."""

    worker: int
    names: list[int]


class Work:
    """All of one seed: about `entries` (worker, block) pairs at so many workers."""

    def __init__(self, seed: int, workers: int, entries: int) -> None:
        rng = random.Random(f"radix/{seed}/{workers}/{entries}")
        self._workers = workers
        self._prompts = [_blocks(rng, PROMPT_BLOCKS) for _ in range(PROMPTS)]
        used = PROMPTS
        while used > 1 and workers * used * PROMPT_BLOCKS > entries // 2:
            used //= 2
        self._used = used
        self.entries = workers * used * PROMPT_BLOCKS
        self._conversations: list[Conversation] = []
        while self.entries < entries:
            left = max(1, entries - self.entries)
            talk = self._conversation(rng, min(rng.randint(SHORTEST, LONGEST), left))
            self._conversations.append(talk)
            self.entries += len(talk.blocks.names) * len(talk.workers)
        self._query_seed = f"query/{seed}/{workers}/{entries}"

    def _conversation(self, rng: random.Random, length: int) -> Conversation:
        at = [rng.randrange(self._workers)]
        if self._workers > 1 and rng.random() < REPLICATED:
            second = rng.randrange(self._workers)
            at += [second] if second != at[0] else []
        return Conversation(rng.randrange(self._used), _blocks(rng, length), at)

    def stored(self) -> Iterator[Stored]:
        """All there is, in runs, parents first."""
        for worker in range(self._workers):
            for blocks in self._prompts[: self._used]:
                yield from _runs(worker, None, blocks)
        for prompt, blocks, workers in self._conversations:
            for worker in workers:
                yield from _runs(worker, self._prompts[prompt].names[-1], blocks)

    def removed(self, limit: int) -> Iterator[Removed]:
        """About `limit` blocks of conversations, leaves first."""
        for _, blocks, workers in self._conversations:
            for worker in workers:
                for start in reversed(range(0, len(blocks.names), RUN)):
                    names = list(blocks.names[start : start + RUN])[::-1]
                    yield Removed(worker, names)
                    limit -= len(names)
                    if limit <= 0:
                        return

    def queries(self, count: int) -> dict[str, list[list[int]]]:
        """The contents of prompts by kind, so many of each."""
        rng = random.Random(self._query_seed)
        deep, shared, miss = [], [], []
        for _ in range(count):
            talk = self._conversations[rng.randrange(len(self._conversations))]
            cut = rng.randint(1, len(talk.blocks.contents))
            deep.append(self._known(talk, cut) + _numbers(rng, 32))
            prompt = self._prompts[rng.randrange(self._used)]
            shared.append([*prompt.contents, *_numbers(rng, 512)])
            miss.append(_numbers(rng, LONG_PROMPT))
        longest = sorted(
            self._conversations, key=lambda talk: -len(talk.blocks.contents)
        )[:64]
        long = []
        for number in range(min(count, 200)):
            known = self._known(longest[number % len(longest)])
            long.append(known + _numbers(rng, LONG_PROMPT - len(known)))
        return dict(zip(KINDS, (deep, shared, miss, long), strict=True))

    def _known(self, talk: Conversation, cut: int | None = None) -> list[int]:
        prompt = self._prompts[talk.prompt].contents
        return [*prompt, *talk.blocks.contents[:cut]]


def _numbers(rng: random.Random, count: int) -> list[int]:
    return [rng.getrandbits(64) for _ in range(count)]


def _blocks(rng: random.Random, count: int) -> Blocks:
    names = array("Q", _numbers(rng, count))
    return Blocks(names, array("Q", _numbers(rng, count)))


def _runs(worker: int, parent: int | None, blocks: Blocks) -> Iterator[Stored]:
    for start in range(0, len(blocks.names), RUN):
        end = start + RUN
        pairs = zip(blocks.names[start:end], blocks.contents[start:end], strict=True)
        yield Stored(worker, parent, list(pairs))
        parent = blocks.names[min(end, len(blocks.names)) - 1]


def chains(rng: random.Random, blocks: int, length: int) -> Iterator[Stored]:
    """Random prefixes of so many blocks in all, at one worker, one after another."""
    for _ in range(blocks // length):
        yield from _runs(0, None, _blocks(rng, length))
