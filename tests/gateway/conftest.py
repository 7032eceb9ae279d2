"""The gateway's tests run on its own loop, and may forbid blocking calls."""

import asyncio
from collections.abc import Callable, Iterator, Mapping

import blockbuster
import pytest
import uvloop

OUR_ROOMS = ["gateway", "router", "render", "kvindex"]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the gateway serves on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def never_blocks() -> Iterator[None]:
    """Blocking calls of the gateway's rooms on the event loop raise."""
    with blockbuster.blockbuster_ctx(OUR_ROOMS):
        yield
