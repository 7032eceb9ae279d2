"""Block hashes of prompts that have no tokens, against prompts that have."""

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kvindex.blocks import chain, pack_ids
from simworker.simulate.prompts import (
    BlockCutter,
    Prompt,
    Segment,
    ceiling,
    extended,
    length,
    mixed,
)

SIZE = 4
Names = Sequence[tuple[int, int]]
"""(name, tokens) of each segment; the same name is of the same length."""
NAMED = st.lists(
    st.integers(0, 3).map(lambda name: (name, 1 + 3 * name)), min_size=1, max_size=6
)


def prompt_of(names: Names) -> Prompt:
    """The prompt made of these segments."""
    prompt: Prompt = ()
    for name, tokens in names:
        prompt = extended(prompt, name, tokens)
    return prompt


def ids_of(names: Names) -> list[int]:
    """Token ids that are equal where the prompts are, and only there."""
    ids: list[int] = []
    before = 0
    for name, tokens in names:
        before = before * 5 + name + 1
        ids += [before * 100 + position for position in range(tokens)]
    return ids


@given(st.lists(NAMED, min_size=2, max_size=5))
def test_blocks_are_equal_where_those_of_tokens_are(many: list[Names]) -> None:
    """Cut from lengths alone, as many as real ones, and shared by the same prompts."""
    cutter = BlockCutter(SIZE)
    cut = [cutter.blocks(prompt_of(names)) for names in many]
    real = [chain(pack_ids(ids_of(names)), SIZE, 0) for names in many]
    for blocks, hashes, names in zip(cut, real, many, strict=True):
        assert len(blocks) == len(hashes) == length(prompt_of(names)) // SIZE
    for one, other in itertools.combinations(range(len(many)), 2):
        ours = [a == b for a, b in zip(cut[one], cut[other], strict=False)]
        theirs = [a == b for a, b in zip(real[one], real[other], strict=False)]
        assert ours == theirs


def test_a_prompt_and_its_continuation_share_blocks() -> None:
    """All the full ones before the point where it goes on."""
    cutter = BlockCutter(16)
    first = extended((), 1, 100)
    longer = extended(first, 2, 60)
    assert cutter.blocks(longer)[:6] == cutter.blocks(first)
    assert len(cutter.blocks(longer)) == 10
    other = extended(first, 3, 60)
    assert cutter.blocks(other)[6:] != cutter.blocks(longer)[6:]


def test_nothing_is_added_by_no_tokens() -> None:
    """Nor by fewer."""
    assert extended((), 1, 0) == ()
    assert extended((Segment(1, 2),), 1, -1) == (Segment(1, 2),)


def test_numbers_are_mixed_by_order() -> None:
    """Any integers, to 64 bits."""
    assert mixed(1, 2) != mixed(2, 1)
    assert len({mixed(n) for n in range(10_000)}) == 10_000
    assert 0 <= mixed(-1, 1 << 80) < 1 << 64


@given(st.lists(st.tuples(NAMED, st.integers(0, 9)), max_size=8))
def test_the_ceiling_is_that_of_an_endless_cache(
    many: list[tuple[Names, int]],
) -> None:
    """Block by block, answers included, never the whole prompt."""
    cutter = BlockCutter(SIZE)
    pairs = [
        (prompt_of(names), extended(prompt_of(names), -number, answer))
        for number, (names, answer) in enumerate(many)
    ]
    cached: set[int] = set()
    expected = 0
    for prompt, whole in pairs:
        usable = max(0, length(prompt) - 1) // SIZE
        for block in cutter.blocks(prompt)[:usable]:
            if block not in cached:
                break
            expected += SIZE
        cached |= set(cutter.blocks(whole))
    assert ceiling(pairs, cutter) == expected
