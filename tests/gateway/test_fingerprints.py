"""Fingerprints in the background, and what `/server_info` tells of them."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway import fingerprints
from gateway.config import Config
from gateway.fingerprints import Fingerprints
from render import Renderer
from render.fingerprint import Difference, Fingerprint, sha256_json
from render.fingerprint_child import Deadline, NoFingerprint
from tests.gateway.render_rig import StartRenderServer
from tests.render.models import byte_level, save
from tests.running import MODEL, SIM, StartGateway, StartWorker, until


def told(renderer: Renderer, **more: Any) -> Fingerprint:
    """Stands in for the computation."""
    info = {k: v for k, v in more.items() if k.endswith("parser")}
    compared = {"model_type": renderer.model.model_type}
    return Fingerprint(digest=sha256_json(compared), compared=compared, info=info)


class Waiting:
    """A computation that takes until it is let go, or told to stop."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.calls = 0
        self.running = 0

    def __call__(self, renderer: Renderer, **more: Any) -> Fingerprint:
        """As `render.fingerprints.compute`."""
        self.calls += 1
        self.running += 1
        deadline: Deadline = more["deadline"]
        try:
            while not self.go.wait(0.01):
                if deadline.passed():
                    raise NoFingerprint(deadline.reason)
        finally:
            self.running -= 1
        return told(renderer, **more)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    """The computation of this test."""
    waiting = Waiting()
    monkeypatch.setattr(fingerprints, "compute", waiting)
    return waiting


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
    unfit = Difference("tokenizer_differs", "it encodes otherwise")
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


async def test_the_render_server(
    start_render_server: StartRenderServer, waiting: Waiting
) -> None:
    """Ready and rendering without it; then it is told, with profile and parsers."""
    server = await start_render_server(
        tool_call_parser="hermes", reasoning_parser="qwen3"
    )
    assert (await server.get("/server_info"))["render_fingerprint"] is None
    assert await server.get("/ready") == {"status": "ready"}
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    assert (await server.post("/v1/chat/completions/render", body))["token_ids"]
    waiting.go.set()
    found = await _fingerprint(server)
    assert found["compared"] == {"model_type": "qwen3"}
    assert found["info"] == {
        "tool_parser": "hermes", "reasoning_parser": "qwen3", "profile": "vllm",
    }  # fmt: skip


async def _fingerprint(server: Any) -> Any:
    async def there() -> Any:
        return (await server.get("/server_info"))["render_fingerprint"]

    await until(there)
    return await there()


async def test_the_front_door(
    start_worker: StartWorker, start_gateway: StartGateway, waiting: Waiting
) -> None:
    """Open like /health, ready without it; one model as a render server tells it."""
    gateway = await start_gateway(await start_worker())
    assert await gateway.get("/ready") == {"status": "ready"}
    info = await gateway.get("/server_info")
    assert (info["role"], info["model"], info["schema_version"]) == (
        "gateway", MODEL, 1,
    )  # fmt: skip
    assert info["render_fingerprint"] is None
    assert info["models"][MODEL]["render_fingerprint"] is None
    assert info["models"][MODEL]["info"]["profile"] == "vllm"
    waiting.go.set()
    found = await _fingerprint(gateway)
    assert found["digest"] == sha256_json({"model_type": "qwen3"})
    assert found["info"]["profile"] == "vllm"
    info = await gateway.get("/server_info")
    assert info["models"][MODEL]["render_fingerprint"] == found


async def test_several_models(
    start_worker: StartWorker, start_gateway: StartGateway, waiting: Waiting,
    tmp_path: Path,
) -> None:  # fmt: skip
    """A fingerprint for each; none for one that is only served."""
    waiting.go.set()
    path = save(tmp_path / "tiny", byte_level())
    worker = await start_worker()
    gateway = await start_gateway(worker, model=(("tiny", str(path)),))
    await _known(gateway, "tiny")
    info = await gateway.get("/server_info")
    assert list(info["models"]) == [MODEL, "tiny"]
    assert info["models"][MODEL] == {"render_fingerprint": None, "info": None}
    assert (info["model"], info["render_fingerprint"]) == (MODEL, None)
    compared = info["models"]["tiny"]["render_fingerprint"]["compared"]
    assert compared == {"model_type": "tiny"}


async def _known(gateway: Any, model: str) -> None:
    async def there() -> Any:
        info = await gateway.get("/server_info")
        return info["models"][model]["render_fingerprint"]

    await until(there)


async def test_no_model(start_gateway: StartGateway) -> None:
    """Without workers and without models there is nothing to tell."""
    gateway = await start_gateway("http://127.0.0.1:1", model=(), render="never")
    info = await gateway.get("/server_info")
    assert (info["model"], info["render_fingerprint"]) == (None, None)
    assert info["models"] == {}


async def test_no_worker(start_gateway: StartGateway, waiting: Waiting) -> None:
    """A model without a name is told by where it is, until workers name it."""
    waiting.go.set()
    gateway = await start_gateway("http://127.0.0.1:1")
    info = await gateway.get("/server_info")
    (name,) = info["models"]
    assert name == info["model"]
    assert (await _fingerprint(gateway))["compared"] == {"model_type": "qwen3"}


@pytest.mark.usefixtures("never_blocks")
async def test_the_loop_does_not_wait(
    start_render_server: StartRenderServer, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The real computation: process, files and cache are a thread's business."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    path = save(tmp_path / "tiny", byte_level())
    server = await start_render_server(model=str(path))
    longest, before = 0.0, time.monotonic()
    while (await server.get("/server_info"))["render_fingerprint"] is None:
        await asyncio.sleep(0.005)
        longest, before = max(longest, time.monotonic() - before), time.monotonic()
    assert longest < 1.0
    found = await _fingerprint(server)
    assert found["digest"] == sha256_json(found["compared"])
    assert found["compared"]["model_type"] == "tiny"


async def test_a_worker_is_asked_the_same(
    start_worker: StartWorker, start_render_server: StartRenderServer
) -> None:
    """A simulated TensorRT-LLM worker of the same model has the same digest."""
    worker = await start_worker(msgspec.structs.replace(SIM, engine="trtllm"))
    server = await start_render_server()
    ours = await _fingerprint(server)
    async with server.client.get(worker.url + "/server_info") as response:
        theirs = (await response.json())["render_fingerprint"]
    assert theirs["compared"] == ours["compared"]
    assert theirs["digest"] == ours["digest"]
