"""Three endpoints, and what the fleet is to be of them."""

import pytest

from tests.gateway.discovery.api import endpoint
from tests.gateway.discovery.found import Found
from tests.running import until

A, B, C = (endpoint(f"10.0.0.{n}", uid=str(n)) for n in (1, 2, 3))
LEAVING = {"ready": False, "serving": True, "terminating": True}


async def settled(found: Found, **states: str) -> None:
    """The fleet is exactly that: `a="ready"` is 10.0.0.1:8000."""
    wanted = {f"10.0.0.{'abc'.index(n) + 1}:8000": s for n, s in states.items()}
    try:
        await until(lambda: found.states == wanted, within_s=3)
    except TimeoutError:
        pytest.fail(f"{found.states} is not {wanted}")
