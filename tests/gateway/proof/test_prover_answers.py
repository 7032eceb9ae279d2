"""What a prover makes of answers that are none, and of several models."""

import asyncio
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web

from gateway.models import Renderers
from render import Renderer
from render.fingerprint import Fingerprint
from render.shape import FEATURES
from router.forwarding import Blocker, Proof
from tests.gateway.answering import Scripted
from tests.gateway.proof.rig import UNREAD, Prove, reason, started
from tests.gateway.templates import rendering
from tests.running import MODEL, StartWorker


async def test_no_model(prove: Prove, renderers: Renderers) -> None:
    """A worker whose models are not rendered here is not asked."""
    vars(renderers)["_for_any"] = None
    found = await prove("http://127.0.0.1:9")
    assert found == Blocker(
        reason="no_model", detail="no model it lists is rendered here"
    )


async def test_unreachable(prove: Prove) -> None:
    """Nobody is there."""
    found = await prove("http://127.0.0.1:9")
    assert reason(found) == "unreachable"


async def test_a_model_type_with_its_own_renderer(
    start_worker: StartWorker, prove: Prove, renderers: Renderers, tmp_path: Path
) -> None:
    """Chats that an engine does not make by the template are not compared at all."""
    found = renderers.find(MODEL, MODEL)
    assert found is not None
    model = msgspec.structs.replace(found.model, model_type="deepseek_v4")
    vars(found)["_refusal"] = "rendered by vLLM's DeepSeek V4 encoder"
    assert model.model_type == "deepseek_v4"
    worker = await started(start_worker)
    blocker = await prove(worker.url)
    assert reason(blocker) == "own_processor"
    assert "DeepSeek V4" in str(blocker)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b"", "probe_failed"),
        (200, b"\xff\xfe", "probe_failed"),
        (200, b"[" * 100_000, "probe_failed"),
        (200, b'{"tokens": "x", "token_ids": "x"}', "probe_failed"),
        (200, b'{"tokens": null, "token_ids": {}}', "probe_failed"),
        (200, b'{"tokens": [1, -1], "token_ids": [1, true]}', "probe_failed"),
        (200, b'{"tokens": [1.5], "token_ids": [4294967296]}', "probe_failed"),
        (200, b'{"tokens": [], "token_ids": []}', "probe_differs"),
        (200, b'{"tokens": [1], "token_ids": [1]}', "probe_differs"),
        (200, b" " * 300_000, "probe_failed"),
        (400, b"{}", "probe_failed"),
        (404, b"{}", "probe_failed"),
        (401, b"{}", "unauthorised"),
        (403, b"{}", "unauthorised"),
        (429, b"{}", "probe_failed"),
        (500, b"{}", "probe_failed"),
        (503, b"{}", "probe_failed"),
        (302, b"{}", "probe_failed"),
    ],
)
async def test_hostile_answers(
    prove: Prove, scripted: Scripted, status: int, body: bytes, expected: str
) -> None:
    """Any answer is a word, never an exception."""

    async def answer(request: web.Request) -> web.Response:
        found = request.path not in ("/server_info",)
        headers = {"Location": "http://127.0.0.1:9/"} if status == 302 else {}
        return web.Response(status=status if found else 404, body=body, headers=headers)

    assert reason(await prove(await scripted(answer))) == expected


@pytest.mark.parametrize(
    "body",
    [
        b'{"render_fingerprint": 5}',
        b'{"render_fingerprint": {"compared": 5, "digest": []}}',
        b'{"render_fingerprint": {"compared": {"tokenizer": [[]]}}}',
        b'{"render_fingerprint": ' + b"[" * 60_000,
        b'{"render_fingerprint": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        b'{"render_fingerprint": "' + b"x" * 100_000 + b'"}',
        b"[]",
        b"null",
    ],
)
async def test_hostile_fingerprints(
    prove: Prove, scripted: Scripted, own: Fingerprint, body: bytes
) -> None:
    """What cannot be read proves nothing."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body)

    found = await prove(await scripted(answer), "trtllm", own=own)
    assert isinstance(found, Blocker)


async def test_an_answer_that_never_ends(prove: Prove, scripted: Scripted) -> None:
    """Nobody waits for it, nor keeps it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"[1, 2, 3, 4")
            await asyncio.sleep(0.05)

    url = await scripted(answer)
    assert reason(await prove(url, within_s=0.5)) == "unreachable"


async def test_a_refusal_proves_nothing(
    start_worker: StartWorker,
    prove: Prove,
    scripted: Scripted,
    client: aiohttp.ClientSession,
) -> None:
    """A chat that a worker refuses leaves what it would have proven unproven."""
    worker = await started(start_worker)

    async def answer(request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else {}
        if "tools" in body:
            return web.json_response({}, status=400)
        async with client.request(
            request.method, worker.url + request.path, json=body
        ) as response:
            return web.Response(status=response.status, body=await response.read())

    found = await prove(await scripted(answer))
    assert isinstance(found, Proof)
    assert found.shapes == FEATURES - UNREAD - {"tools", "strict_tools"}


async def test_several_models(
    start_worker: StartWorker,
    prove: Prove,
    renderers: Renderers,
    renderer: Renderer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each model that is rendered here is compared; one that differs is named."""
    worker = await started(start_worker, served_model_name=("a", "b", "c"))
    source = renderer.model.tokenizer_templates["default"]
    other = rendering(renderer, source + "!")
    by_name = {"a": renderer, "b": other}
    monkeypatch.setattr(renderers, "find", lambda name, *_: by_name.get(name))
    assert isinstance(await prove(worker.url, names=("a", "c")), Proof)
    found = await prove(worker.url, names=("a", "b"))
    assert reason(found) == "probe_differs"
    assert isinstance(found, Blocker)
    assert found.detail.startswith("model b: probe plain differs at position ")
    by_name = dict.fromkeys(("a", "x"), renderer)
    found = await prove(worker.url, names=("a", "x"))
    assert reason(found) == "probe_failed"  # it does not know that one
    by_name = dict.fromkeys(map(str, range(100)), renderer)
    found = await prove(worker.url, names=tuple(by_name))
    assert found == Blocker(
        reason="probe_failed", detail="it lists more than 16 models"
    )


@pytest.mark.parametrize(
    ("parser", "reads"), [("minimax_m3", True), ("qwen3", False), (None, False)]
)
async def test_parsers_that_read_the_mode(
    prove: Prove,
    scripted: Scripted,
    own: Fingerprint,
    parser: str | None,
    reads: bool,
) -> None:
    """A worker's reasoning parser may have to see the prompt."""
    published = own.published() | {"info": {"reasoning_parser": parser}}

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"render_fingerprint": published})

    found = await prove(await scripted(answer), "trtllm", own=own)
    assert found == Proof(by="digest", reads_mode=reads)
