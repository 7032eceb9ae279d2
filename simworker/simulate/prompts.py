"""Prompts without text: what of one is equal to what of another, and how long it is.

A prompt is a sequence of segments. A segment's `path` names the whole prompt up to its
end: equal paths, equal beginnings. Blocks are cut from the segments' lengths alone, so
replaying a million tokens needs none of them.
"""

from collections.abc import Iterable

import msgspec

from kvindex.blocks import matchable_blocks

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Segment(msgspec.Struct, frozen=True, gc=False):
    """`tokens` tokens of a prompt, and the name of the prompt up to their end."""

    path: int
    tokens: int


Prompt = tuple[Segment, ...]


def mixed(*numbers: int) -> int:
    """A 64-bit number that stands for these, in their order (splitmix64's finish)."""
    value = 0
    for number in numbers:
        value = (value ^ (number + _GOLDEN)) & _MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        value ^= value >> 31
    return value


def extended(prompt: Prompt, name: int, tokens: int) -> Prompt:
    """`prompt` with one more segment; the same `name` after the same prompt is equal.

    Nothing is added where `tokens` is 0.
    """
    if tokens <= 0:
        return prompt
    parent = prompt[-1].path if prompt else 0
    return (*prompt, Segment(mixed(parent, name), tokens))


def length(prompt: Prompt) -> int:
    """Its tokens."""
    return sum(segment.tokens for segment in prompt)


class BlockCutter:
    """Prompts to the hashes of their full blocks; segments seen before are cheap."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._cut: dict[tuple[int, int, int], list[int]] = {}

    def blocks(self, prompt: Prompt) -> list[int]:
        """A hash per full block: equal where the prompts are equal up to its end."""
        hashes: list[int] = []
        start = 0
        for segment in prompt:
            key = (segment.path, start, segment.tokens)
            found = self._cut.get(key)
            if found is None:
                found = self._cut[key] = self._segment(segment, start)
            hashes += found
            start += segment.tokens
        return hashes

    def _segment(self, segment: Segment, start: int) -> list[int]:
        """The blocks that end within a segment."""
        size = self.block_size
        numbers = range(start // size, (start + segment.tokens) // size)
        return [(segment.path + number * _GOLDEN) & _MASK for number in numbers]


def ceiling(asked: Iterable[tuple[Prompt, Prompt]], cutter: BlockCutter) -> int:
    """Prompt tokens that one endless cache would have had, requests in this order.

    Each is a prompt, and the prompt with what of its answer is cached.
    """
    seen: set[int] = set()
    hits = 0
    for prompt, whole in asked:
        blocks = cutter.blocks(prompt)
        limit = matchable_blocks(length(prompt), cutter.block_size)
        held = next((n for n in range(limit) if blocks[n] not in seen), limit)
        hits += held * cutter.block_size
        seen.update(cutter.blocks(whole))
    return hits
