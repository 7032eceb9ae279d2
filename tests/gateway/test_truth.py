"""Predicted and delivered on whole gateways: each loss is counted for what it is."""

import logging
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.gateway.fed import (
    ENGINES,
    SIZE,
    TURN,
    feeds,
    held,
    options,
    sim,
    told,
    turn,
)
from tests.running import MODEL, SIM, Running, StartGateway, StartWorker, until


async def fates(gateway: Running) -> dict[str, float]:
    """The fates that prompt tokens had so far, without those that none had."""
    found: dict[str, float] = {}
    for sample, value in (await gateway.metrics()).items():
        if sample.startswith("kv_gateway_prompt_token_fates_total{") and value:
            fate = sample.partition('fate="')[2].partition('"')[0]
            found[fate] = found.get(fate, 0) + value
    reported = await gateway.metric("reported_prompt_tokens_total")
    assert sum(found.values()) == reported
    return found


async def grown(gateway: Running, before: dict[str, float]) -> set[str]:
    """The fates that have more tokens than `before`."""
    now = await fates(gateway)
    return {fate for fate, tokens in now.items() if tokens > before.get(fate, 0)}


async def reason_of(gateway: Running, **fields: Any) -> dict[str, int]:
    """Why a chat with these fields was not compared."""
    await gateway.chat(TURN, **fields)
    (worker,) = (await gateway.get("/gateway/workers"))["workers"]
    reasons: dict[str, int] = worker["uncompared_requests"]
    for reason, count in reasons.items():
        shown = await gateway.metric("uncompared_requests_total", reason=reason)
        assert shown == count
    return reasons


@pytest.mark.parametrize("engine", ENGINES)
async def test_each_loss_has_its_name(
    engine: str, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """New, found, elsewhere, gone, not indexed, not rendered: of every engine."""
    worker, other = (
        await start_worker(options(engine)),
        await start_worker(options(engine)),
    )
    gateway = await start_gateway(worker, other, policy="round_robin")
    await gateway.chat(TURN)
    # SGLang leaves zeros out: before its first hit there is nothing to compare.
    first = {"new"} if engine != "sglang" else set()
    assert await grown(gateway, {}) == first
    await until(lambda: held(gateway, worker) + held(gateway, other) >= 8)
    before = await fates(gateway)
    await gateway.chat(TURN)
    assert await grown(gateway, before) == ({"elsewhere", "new"} if first else set())
    await until(lambda: min(held(gateway, worker), held(gateway, other)) >= 8)
    before = await fates(gateway)
    for _ in range(2):
        assert (await gateway.chat(TURN)).cached >= 8 * SIZE
    assert await grown(gateway, before) == {"found", "new"}


@pytest.mark.parametrize("engine", ENGINES)
async def test_what_a_wiped_cache_had_is_gone(
    engine: str, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The worker says nothing of it, and finds nothing: counted, and said.

    A live feed that is believed in vain is degraded, with a reason.
    """
    worker = await start_worker(options(engine))
    gateway = await start_gateway(worker)
    for number in (1, 2, 1, 2):
        await gateway.chat(turn(number))
        await until(partial(_knows, gateway, number))
    await sim(gateway, worker, "/sim/faults", mute=True)
    await sim(gateway, worker, "/sim/reset")
    before = await fates(gateway)
    for number in (1, 2):
        assert (await gateway.chat(turn(number))).cached == 0
    assert "gone" in await grown(gateway, before)
    feed = feeds(gateway, worker)[0]
    assert (feed.state, feed.reason) == (
        "degraded",
        "the worker finds less than is indexed",
    )
    assert feed.counters.found_less > 0
    reasons = await gateway.metric("feed_reason", reason=feed.reason)
    assert reasons == 1


async def _knows(gateway: Running, number: int) -> bool:
    return await told(gateway, turn(number)) >= 8 * SIZE


async def test_hits_that_nobody_knew_of(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Another gateway's requests filled the cache of a worker without events."""
    worker = await start_worker(SIM)
    first = await start_gateway(worker)
    await first.chat(TURN)
    late = await start_gateway(worker)
    answer = await late.chat(TURN)
    assert answer.cached > 0
    found = await fates(late)
    assert found["not_indexed"] == answer.cached
    assert set(found) == {"not_indexed", "new"}
    (owner,) = (await late.get("/gateway/index"))["owners"]
    assert owner["found_more"] == answer.cached // SIZE


async def test_what_is_not_rendered_is_counted_apart(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Without ids nobody can be asked what he holds."""
    worker = await start_worker(options())
    gateway = await start_gateway(worker, render="never")
    await gateway.chat(TURN)
    assert set(await fates(gateway)) == {"not_rendered"}


async def test_an_engine_that_tells_no_cached_tokens_is_said_once(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In one line with the flag, in the page of workers, and on a counter."""
    worker = await start_worker(
        msgspec.structs.replace(options(), prompt_tokens_details=False)
    )
    gateway = await start_gateway(worker)
    for _ in range(20):
        await gateway.chat(TURN)
    lines = [r for r in caplog.records if "no cached tokens" in r.getMessage()]
    assert len(lines) == 1
    assert lines[0].levelno == logging.WARNING
    assert worker.url in lines[0].getMessage()
    assert "--enable-prompt-tokens-details" in lines[0].getMessage()
    (shown,) = (await gateway.get("/gateway/workers"))["workers"]
    assert shown["reports_cached_tokens"] is False
    assert shown["uncompared_requests"] == {"no_cached_tokens": 20}


async def test_several_answers_are_not_compared(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The cached tokens of an answer of many are those of any of them."""
    gateway = await start_gateway(await start_worker(options()))
    assert await reason_of(gateway, n=2) == {"several_answers": 1}
    assert await reason_of(gateway, n=1) == {"several_answers": 1}
    assert await gateway.metric("reported_prompt_tokens_total") > 0


async def test_prompt_logprobs_are_computed_anew(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The engine skips its cache for them: nothing is predicted, nothing compared."""
    worker = await start_worker(options())
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) >= 8)
    body = {"model": MODEL, "messages": TURN, "prompt_logprobs": 1}
    explained = await gateway.post("/gateway/explain", body)
    (candidate,) = explained["workers"]
    assert candidate["uncached_tokens"] == explained["prompt_tokens"]
    assert candidate["gpu_tokens"] > 0
    assert await reason_of(gateway, prompt_logprobs=1) == {"prompt_logprobs": 1}
    assert feeds(gateway, worker)[0].state == "live"


async def test_a_stream_without_usage_is_not_compared(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The client did not ask for it; its body is not changed for our sake."""
    gateway = await start_gateway(await start_worker(options()))
    body = {"model": MODEL, "messages": TURN, "stream": True, "max_tokens": 4}
    url = gateway.url + "/v1/chat/completions"
    async with gateway.client.post(url, json=body) as response:
        assert (await response.read()).endswith(b"data: [DONE]\n\n")
    assert await gateway.metric("uncompared_requests_total", reason="no_usage") == 1


async def test_disagreement_is_said_when_it_begins_and_when_it_ends(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A cache that another client wipes again and again."""
    caplog.set_level(logging.INFO)
    worker = await start_worker(SIM)
    gateway = await start_gateway(worker)
    for number in range(12):
        # Two turns and a reset: history believes the first turn's blocks.
        await gateway.chat(turn(number))
        await sim(gateway, worker, "/sim/reset")
        await gateway.chat(turn(number))
    text = "finds less cached than predicted"
    assert len([r for r in caplog.records if text in r.getMessage()]) == 1
    (shown,) = (await gateway.get("/gateway/workers"))["workers"]
    assert shown["agreement"] == "finds_less"
    assert shown["recent_delivered_hit_tokens"] < shown["recent_predicted_hit_tokens"]
    for number in range(60):
        await gateway.chat(turn(100 + number // 20))
    (shown,) = (await gateway.get("/gateway/workers"))["workers"]
    assert shown["agreement"] == "agrees"
    found = [r for r in caplog.records if "finds what was predicted" in r.getMessage()]
    assert len(found) == 1
