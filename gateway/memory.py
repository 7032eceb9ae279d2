"""Memory that was freed goes back to the system, as far as the C library lets it.

glibc keeps it otherwise: each burst would keep what it took, and a process seem to grow
for hours. Other C libraries have no such functions, and are left as they are.
"""

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""malloc.h of glibc."""
LARGE_BYTES = 256 * 1024
SPARE_BYTES = 16 * 1024 * 1024
"""What may stay free at the end, for the next burst, until `give_back`."""


def keep_large_apart() -> None:
    """What is large gets pages of its own, that are gone as soon as it is freed.

    By itself glibc takes for small what is as large as anything that was ever freed:
    bodies, tables and renderings, whose holes among small pieces then fill up slowly.
    """
    option = getattr(ctypes.CDLL(None), "mallopt", None)
    if option is not None:
        option(M_MMAP_THRESHOLD, LARGE_BYTES)
        option(M_TRIM_THRESHOLD, SPARE_BYTES)


def give_back() -> None:
    """Return what is free now: after loading a tokenizer 130 of 350 MB.

    Takes 1 to 4 ms in a busy gateway.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
