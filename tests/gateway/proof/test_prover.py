"""Proof of one worker, or the word for why there is none; over real sockets."""

import time
from typing import Any

import msgspec
import pytest

from gateway.models import Renderers
from render import Renderer
from render.fingerprint import Difference, Fingerprint
from render.shape import FEATURES
from router.forwarding import Blocker, Proof
from tests.gateway.proof.rig import UNREAD, Prove, reason, started
from tests.gateway.templates import OTHER, rendering
from tests.running import StartWorker

DAY_S = 86_400.0


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
