"""A doctor that does not wait as long as an operator would have it wait."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.doctor import checkup
from gateway.events import feeds


@contextmanager
def hurried() -> Iterator[None]:
    """For what never comes: no more of it would come in five seconds than in one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checkup, "EVENTS_S", 1.0)
        patched.setattr(feeds, "RENEW_MS", 200)
        yield
