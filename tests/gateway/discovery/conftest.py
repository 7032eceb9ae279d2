"""A scripted API server, and fleets of workers that nobody contacts."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from gateway.background import running
from gateway.discovery import dns, kubernetes, standing
from gateway.discovery.api_server import ApiServer
from gateway.discovery.credentials import ServiceAccount
from gateway.discovery.kubernetes import KubernetesSource
from gateway.discovery.settling import Settling
from gateway.settings.discovery_config import KubernetesService
from tests.gateway.discovery.api import ScriptedApi
from tests.gateway.discovery.found import Found

Follow = Callable[..., Awaitable[KubernetesSource]]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds takes a moment."""
    monkeypatch.setattr(standing, "FIRST_BACK_OFF_S", 0.02)
    monkeypatch.setattr(kubernetes, "AGAIN_S", 0.02)
    monkeypatch.setattr(dns, "LOOK_S", 0.02)


@pytest.fixture
def found() -> Found:
    """A fleet."""
    return Found()


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    """An API server that serves."""
    api = ScriptedApi()
    await api.start()
    yield api
    await api.stop()


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """The directory of a service account, with a token."""
    (tmp_path / "token").write_text("first\n")
    return tmp_path


@pytest.fixture
async def follow(
    api: ScriptedApi, found: Found, account: Path, client: aiohttp.ClientSession
) -> AsyncIterator[Follow]:
    """Have the fleet follow the service `llm/vllm` of that server."""
    async with AsyncExitStack() as stack:

        async def start(
            port: str | int | None = None, linger_s: float = 0.05
        ) -> KubernetesSource:
            service = KubernetesService("llm", "vllm", port)
            source = KubernetesSource(
                service,
                ApiServer(
                    api.url,
                    ServiceAccount(account),
                    service,
                    client,
                    rng=random.Random(1),
                ),
                Settling(f"k8s/{service}", found.fleet, linger_s=linger_s),
                rng=random.Random(1),
            )
            await stack.enter_async_context(running(source.watch()))
            await source.settling.begun.wait()
            return source

        yield start
