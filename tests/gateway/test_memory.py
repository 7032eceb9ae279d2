"""What was freed is the system's again, large pieces at once."""

import resource
import subprocess
import sys
from pathlib import Path

from gateway import memory

LARGE = """
from gateway import memory
from tests.gateway.test_memory import resident

if {apart}:
    memory.keep_large_apart()
del [bytearray(20_000_000)][:]  # from then on glibc takes that for small
pieces = [bytearray(size) for _ in range(200) for size in (300_000, 900)]
held = resident()
del pieces[::2]
print(held - resident())
"""


def resident() -> int:
    """The bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def freed(*, apart: bool) -> int:
    """What a process of its own has given back of 60 MB in large pieces."""
    words = [sys.executable, "-c", LARGE.format(apart=apart)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
    return int(done.stdout)


def test_large_pieces_are_given_back_at_once() -> None:
    """Whatever small ones stay between them; without our word glibc keeps them."""
    assert freed(apart=True) > 55_000_000
    assert freed(apart=False) < 5_000_000


def test_what_was_freed_is_given_back() -> None:
    """Memory that small objects had between others that stay is the system's again."""
    pieces = [bytearray(60_000) for _ in range(2_000)]
    held = resident()
    del pieces[:-1:1]
    memory.give_back()
    assert held - resident() > 100_000_000
