"""Proof of one worker, or the word for why there is none; over real sockets."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from gateway.asking import Asker
from gateway.config import Config
from gateway.models import Renderers
from gateway.prover import Prover
from gateway.threads import Threads
from render import Renderer
from render.fingerprint import Difference, Fingerprint, digest
from render.shape import FEATURES
from router.forwarding import Blocker, Proof
from router.models import ModelName
from router.pool import WorkerPool
from router.worker import Worker, WorkerSpec
from simworker.server import SimWorker
from simworker.trtllm.fingerprint import compared_fields
from tests.gateway.answering import Scripted
from tests.gateway.templates import OTHER, rendering
from tests.running import MODEL, SIM, StartWorker

UNREAD = {"reasoning_effort", "documents", "truncation", "tool_choice_none"}
"""What vLLM's /tokenize does not read."""
DAY_S = 86_400.0


class Own:
    """The fingerprint that this gateway has of its models."""

    def __init__(self, found: Fingerprint | None) -> None:
        self._found = found

    def current(self, model: str) -> Fingerprint | None:
        """The one there is."""
        return self._found

    def problem(self, model: str) -> str | None:
        """There will be none but that."""
        return None


Prove = Callable[..., Awaitable[Proof | Blocker]]


@pytest.fixture
def renderers(renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> Renderers:
    """The shared renderer as a gateway holds it."""
    found = Renderers(Config(model=((None, MODEL),)))
    with monkeypatch.context() as patched:
        patched.setattr(Renderer, "load", lambda *_, **__: renderer)
        found.load_configured()
    return found


@pytest.fixture(scope="module")
def own(renderer: Renderer) -> Fingerprint:
    """The fingerprint that simulated TensorRT-LLM workers tell of that model."""
    compared = compared_fields(renderer)
    assert compared is not None
    return Fingerprint(digest=digest(compared), compared=compared)


@pytest.fixture
async def prove(
    renderers: Renderers, client: aiohttp.ClientSession
) -> AsyncIterator[Prove]:
    """Prove a worker by its URL, as an engine; any option of `Config` by name."""
    threads = Threads(threads=1, queue=8, deadline=5.0)

    async def run(
        url: str,
        engine: str = "vllm",
        *,
        version: str | None = "0.32.0",
        own: Fingerprint | None = None,
        names: tuple[str, ...] = (MODEL,),
        within_s: float = 10.0,
        **options: Any,
    ) -> Proof | Blocker:
        worker = known(url, engine, version, names)
        prover = Prover(Config(**options), renderers, threads, Own(own))
        timeout = aiohttp.ClientTimeout(total=within_s)
        return await prover.prove(Asker(client, url, None, timeout=timeout), worker)

    yield run
    threads.close()


def known(url: str, engine: str, version: str | None, names: tuple[str, ...]) -> Worker:
    """A worker as a gateway knows it."""
    worker = WorkerPool(clock=lambda: 0.0).add(WorkerSpec(url=url))
    worker.engine = engine
    worker.profile = engine if engine != "generic" else "vllm"
    worker.version = version
    worker.names = {name: ModelName(base=name) for name in names}
    return worker


async def started(start_worker: StartWorker, **options: Any) -> SimWorker:
    """A simulated worker."""
    return await start_worker(msgspec.structs.replace(SIM, **options))


def reason(found: Proof | Blocker) -> str:
    """The word of a blocker."""
    assert isinstance(found, Blocker), found
    return found.reason


@pytest.mark.usefixtures("never_blocks")
async def test_vllm_by_tokenize(start_worker: StartWorker, prove: Prove) -> None:
    """What /tokenize reads is proven; what it ignores is not."""
    worker = await started(start_worker)
    found = await prove(worker.url)
    assert found == Proof(by="probes", shapes=FEATURES - UNREAD)
    assert worker.api.totals.requests == 0  # nothing was generated


@pytest.mark.usefixtures("never_blocks")
async def test_vllm_by_chats(start_worker: StartWorker, prove: Prove) -> None:
    """With --probe the rest is proven by chats of one token, and only the rest."""
    worker = await started(start_worker)
    assert await prove(worker.url, probe=True) == Proof(by="probes", shapes=FEATURES)
    assert 0 < worker.api.totals.requests < 10
    assert worker.api.totals.skipped_rendering == 0


@pytest.mark.usefixtures("never_blocks")
async def test_sglang(start_worker: StartWorker, prove: Prove) -> None:
    """Its /tokenize renders as its chats do, whatever is asked."""
    worker = await started(start_worker, engine="sglang")
    found = await prove(worker.url, "sglang", version="0.5.23")
    assert found == Proof(by="probes", shapes=FEATURES)


@pytest.mark.usefixtures("never_blocks")
async def test_trtllm_by_digest(
    start_worker: StartWorker, prove: Prove, own: Fingerprint
) -> None:
    """An equal digest proves every shape."""
    worker = await started(start_worker, engine="trtllm")
    assert await prove(worker.url, "trtllm", own=own) == Proof(by="digest")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("missing", "no_fingerprint"),
        ("garbage", "no_fingerprint"),
        ("incomplete", "incomplete"),
        ("error", "unreachable"),
        ("slow:9", "unreachable"),
        ("unauthorised", "unauthorised"),
        ("differs:model_type", "model_type_differs"),
        ("differs:input_processor", "own_processor"),
        ("differs:templates.server", "template_differs"),
        ("differs:tokenizer.vocab_sha256", "tokenizer_differs"),
        ("differs:tokenizer.class", "library_differs"),
    ],
)
async def test_trtllm_differs(
    start_worker: StartWorker, prove: Prove, own: Fingerprint, mode: str, expected: str
) -> None:
    """Each way not to be equal has its word."""
    worker = await started(start_worker, engine="trtllm", render_fingerprint=mode)
    within_s = 0.5 if mode.startswith("slow") else 10.0
    found = await prove(worker.url, "trtllm", own=own, within_s=within_s)
    assert reason(found) == expected
    assert isinstance(found, Blocker)
    assert ("--proof" in found.detail) == (expected == "library_differs")
    assert ("--worker-api-key" in found.detail) == (expected == "unauthorised")


async def test_trtllm_by_its_render_route(
    start_worker: StartWorker,
    prove: Prove,
    own: Fingerprint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where only the library differs, --proof digest-or-probe compares ids."""
    asked: dict[str, Any] = {"own": own, "proof": "digest-or-probe"}
    mode = "differs:tokenizer.class"
    closed = await started(start_worker, engine="trtllm", render_fingerprint=mode)
    found = await prove(closed.url, "trtllm", **asked)
    assert reason(found) == "library_differs"
    assert isinstance(found, Blocker)
    assert "no route" in found.detail
    monkeypatch.setenv("TRTLLM_ENABLE_RENDER_ENDPOINTS", "1")
    opened = await started(start_worker, engine="trtllm", render_fingerprint=mode)
    found = await prove(opened.url, "trtllm", **asked)
    assert isinstance(found, Proof)
    assert found.by == "probes"
    assert found.shapes is not None
    assert found.shapes >= {"system", "tools", "tool_turns", "template_kwargs"}
    assert not found.reads_mode
    differs = await started(
        start_worker, engine="trtllm", render_fingerprint="differs:templates.server"
    )
    assert reason(await prove(differs.url, "trtllm", **asked)) == "template_differs"


@pytest.mark.parametrize("word", ["not_in_fingerprint", "clock"])
async def test_an_own_fingerprint_that_proves_nothing(
    start_worker: StartWorker,
    prove: Prove,
    own: Fingerprint,
    monkeypatch: pytest.MonkeyPatch,
    word: Any,
) -> None:
    """Probes settle it; where they may not, the reason names the option."""
    unfit = msgspec.structs.replace(own, unfit=Difference(word, "it does otherwise"))
    monkeypatch.setenv("TRTLLM_ENABLE_RENDER_ENDPOINTS", "1")
    worker = await started(start_worker, engine="trtllm")
    for proof in ("digest", "auto"):
        found = await prove(worker.url, "trtllm", own=unfit, proof=proof)
        assert found == Blocker(
            reason=word,
            detail="it does otherwise; --proof digest-or-probe compares ids",
        )
    found = await prove(worker.url, "trtllm", own=unfit, proof="digest-or-probe")
    assert isinstance(found, Proof)
    assert found.by == "probes"
    monkeypatch.delenv("TRTLLM_ENABLE_RENDER_ENDPOINTS")
    closed = await started(start_worker, engine="trtllm")
    found = await prove(closed.url, "trtllm", own=unfit, proof="digest-or-probe")
    assert reason(found) == word


async def test_digest_only(start_worker: StartWorker, prove: Prove) -> None:
    """With --proof digest a vLLM worker, which publishes none, is not proven."""
    worker = await started(start_worker)
    assert reason(await prove(worker.url, proof="digest")) == "no_fingerprint"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_another_template(
    start_worker: StartWorker,
    prove: Prove,
    renderers: Renderers,
    renderer: Renderer,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
) -> None:
    """The probe and the first differing position are named."""
    worker = await started(start_worker, engine=engine)
    monkeypatch.setattr(renderers, "find", lambda *_: rendering(renderer, OTHER))
    found = await prove(worker.url, engine)
    assert found == Blocker(
        reason="probe_differs", detail="probe plain differs at position 0"
    )


async def test_a_template_that_differs_in_one_shape(
    start_worker: StartWorker,
    prove: Prove,
    renderers: Renderers,
    renderer: Renderer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A difference that only turns with tools show is found by their probe."""
    source = renderer.model.tokenizer_templates["default"]
    changed = source.replace("<tool_response>\\n", "<tool_response>")
    assert changed != source
    worker = await started(start_worker)
    monkeypatch.setattr(renderers, "find", lambda *_: rendering(renderer, changed))
    found = await prove(worker.url)
    assert reason(found) == "probe_differs"
    assert isinstance(found, Blocker)
    assert found.detail.startswith("probe tool_turns differs at position ")
    assert int(found.detail.rsplit(" ", 1)[1]) > 100


async def test_a_template_that_prints_the_date(
    start_worker: StartWorker,
    prove: Prove,
    renderers: Renderers,
    renderer: Renderer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is equal where the days are; a day that began meanwhile is no difference."""
    dated, today = "{{ strftime_now('%d %B %Y') }} " + OTHER, time.time()
    there = rendering(renderer, dated, clock=lambda: today)
    monkeypatch.setattr(renderer, "with_profile", lambda _: there)
    worker = await started(start_worker)
    behind = [3 * DAY_S]

    def clock() -> float:
        return today - (behind.pop() if len(behind) > 1 else behind[0])

    ours = rendering(renderer, dated, clock=clock)
    monkeypatch.setattr(renderers, "find", lambda *_: ours)
    found = await prove(worker.url)
    assert reason(found) == "probe_differs"
    behind[:] = [0.0, DAY_S]
    assert isinstance(await prove(worker.url), Proof)


@pytest.mark.parametrize(
    ("engine", "version", "expected"),
    [
        ("generic", "1.0", "no_ids"),
        ("vllm", "0.27.0", "no_ids"),
        ("vllm", "0.11.2.dev12+g1234", "no_ids"),
        ("vllm", None, "no_ids"),
        ("vllm", "abc", "no_ids"),
        ("vllm", "0.27.1", None),
        ("vllm", "0.28.0rc1", None),
        ("vllm", "1.0", None),
    ],
)
async def test_engines_that_take_no_ids(
    start_worker: StartWorker,
    prove: Prove,
    engine: str,
    version: str | None,
    expected: str | None,
) -> None:
    """Releases before vLLM 0.27.1, and engines that are not known."""
    worker = await started(start_worker)
    found = await prove(worker.url, engine, version=version)
    assert (found.reason if isinstance(found, Blocker) else None) == expected


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
    """Each model that is rendered here is compared; all must be equal."""
    worker = await started(start_worker, served_model_name=("a", "b", "c"))
    source = renderer.model.tokenizer_templates["default"]
    other = rendering(renderer, source + "!")
    by_name = {"a": renderer, "b": other}
    monkeypatch.setattr(renderers, "find", lambda name, *_: by_name.get(name))
    assert isinstance(await prove(worker.url, names=("a", "c")), Proof)
    found = await prove(worker.url, names=("a", "b"))
    assert reason(found) == "probe_differs"
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
