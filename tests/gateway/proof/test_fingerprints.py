"""Fingerprints computed in the background: known after a while, never waited for."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.proof import fingerprints
from gateway.proof.fingerprints import Fingerprints
from gateway.settings.config import Config
from render import Renderer
from render.fingerprint import Difference, Fingerprint
from render.fingerprint_child import NoFingerprint
from tests.gateway.fingerprinting import Waiting, told
from tests.gateway.render_rig import StartRenderServer
from tests.render.models import byte_level, save
from tests.running import until


@asynccontextmanager
async def running(known: Fingerprints) -> AsyncIterator[None]:
    """The background, ended well."""
    task = asyncio.create_task(known.run())
    yield
    known.close()
    task.cancel()
    await asyncio.wait({task})


def of(*renderers: Renderer) -> Fingerprints:
    """The fingerprints of some renderers."""
    by_name = {renderer.model.name: renderer for renderer in renderers}
    return Fingerprints(Config(), loaded=lambda: renderers, find=by_name.get)


@pytest.fixture
def tiny(tmp_path: Path) -> Renderer:
    """A small model."""
    return Renderer.load(save(tmp_path / "tiny", byte_level()))


async def test_known_after_a_while(renderer: Renderer, waiting: Waiting) -> None:
    """None until it is computed; then told, by name, and to whom it concerns."""
    calls: list[None] = []
    known = of(renderer)
    known.on_known = lambda: calls.append(None)
    name = renderer.model.name
    async with running(known):
        await until(lambda: waiting.calls == 1)
        assert (known.current(name), known.problem(name), calls) == (None, None, [])
        waiting.go.set()
        await until(lambda: known.current(name))
        assert (
            known.current(name)
            == known.of(renderer)
            == told(renderer, tool_parser=None, reasoning_parser=None)
        )
        assert known.of(renderer.with_profile("sglang")) == known.of(renderer)
        assert (known.current("other"), known.problem("other")) == (None, None)
        assert calls == [None]


async def test_each_model_once(
    renderer: Renderer, tiny: Renderer, waiting: Waiting,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Also those loaded later; one model under two names is computed once."""
    monkeypatch.setattr(fingerprints, "LOOK_S", 0.01)
    waiting.go.set()
    loaded = [renderer, renderer.with_profile("trtllm")]
    known = Fingerprints(Config(), loaded=lambda: loaded, find=lambda _: None)
    async with running(known):
        await until(lambda: known.of(renderer))
        loaded.append(tiny)
        await until(lambda: known.of(tiny))
        await asyncio.sleep(0.1)
    assert waiting.calls == 2


async def test_a_model_without(
    renderer: Renderer, tiny: Renderer, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """One line, once; the others are computed all the same."""

    def compute(of: Renderer, **more: Any) -> Fingerprint:
        if of is renderer:
            raise NoFingerprint("an odd file")
        return told(of, **more)

    monkeypatch.setattr(fingerprints, "LOOK_S", 0.01)
    monkeypatch.setattr(fingerprints, "compute", compute)
    known = of(renderer, tiny)
    async with running(known):
        await until(lambda: known.of(tiny))
        await asyncio.sleep(0.1)
    warnings = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
    name = renderer.model.name
    assert warnings == [f"model {name} has no fingerprint: an odd file"]
    assert known.problem(name) == "an odd file"
    assert known.current(name) is None


async def test_a_fault_of_ours(
    tiny: Renderer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Logged once; it is not tried again and again."""

    def compute(*_: Any, **__: Any) -> Fingerprint:
        raise KeyError("x")

    monkeypatch.setattr(fingerprints, "LOOK_S", 0.01)
    monkeypatch.setattr(fingerprints, "compute", compute)
    known = of(tiny)
    async with running(known):
        await until(lambda: known.problem(tiny.model.name))
        await asyncio.sleep(0.1)
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


async def test_one_that_proves_nothing(
    tiny: Renderer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told, with a warning that says why it proves nothing."""
    unfit = Difference("not_in_fingerprint", "it encodes otherwise")
    found = Fingerprint(digest="d", compared={}, unfit=unfit)
    monkeypatch.setattr(fingerprints, "compute", lambda *_, **__: found)
    known = of(tiny)
    async with running(known):
        await until(lambda: known.of(tiny))
    warnings = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
    assert warnings == [
        f"the fingerprint of model {tiny.model.name} proves nothing: "
        "it encodes otherwise"
    ]


async def test_it_ends_at_once(
    start_render_server: StartRenderServer, waiting: Waiting
) -> None:
    """A computation that runs does not hold up the end of the server."""
    server = await start_render_server()
    await until(lambda: waiting.calls == 1)
    async with asyncio.timeout(2):
        await server.server.stop()
        await until(lambda: waiting.running == 0)
