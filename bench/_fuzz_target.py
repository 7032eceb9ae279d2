"""What the fuzzer is told of one decoder."""

import random
from collections.abc import Callable, Sequence

import msgspec

from bench._fuzz_inputs import mutated


def nothing() -> Sequence[str]:
    """No more lines."""
    return ()


class Target(msgspec.Struct, frozen=True):
    """`call` raises where an input does what it must not.

    `told` are lines that end the report, `mutate` breaks an input, with another one.
    """

    seeds: Sequence[bytes]
    call: Callable[[bytes], object]
    told: Callable[[], Sequence[str]] = nothing
    mutate: Callable[[random.Random, bytes, bytes], bytes] = mutated
