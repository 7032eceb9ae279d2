"""Field reports about what nobody was shown: here it is on a page and on a metric."""

import msgspec
import pytest

from kvindex.blocks import pack_ids
from tests.gateway.fed import TURN, held, options, states, told
from tests.gateway.test_broken_events import publishing, stored, subscribed
from tests.running import SIM, StartGateway, StartWorker, until


async def test_two_missed_batches_are_shown(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The sequence is compared: 1, 2, 5 are one gap, two batches, and a doubt.

    llm-d/llm-d-router#1737
    """
    worker = await start_worker(SIM)
    async with publishing() as publisher:
        gateway = await subscribed(start_gateway, worker, publisher)
        for sequence in (1, 2, 5):
            publisher.events(sequence, stored(sequence))
        await until(lambda: held(gateway, worker) == 3)
        assert await gateway.metric("event_gaps_total") == 1
        assert await gateway.metric("missed_batches_total") == 2
        assert await gateway.metric("feed_reason", reason="missed batches") == 1
        assert await gateway.metric("suspect_blocks") == 2
        (shown,) = (await gateway.get("/gateway/index"))["owners"]
        assert (shown["missed_batches"], shown["state"]) == (2, "degraded")


async def test_spans_that_do_not_fit_are_shown_with_a_reason(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Two hashes for five blocks of tokens: left out, counted by reason.

    vllm-project/vllm#44451
    """
    worker = await start_worker(SIM)
    span = msgspec.structs.replace(
        stored(1), hashes=(1, 2), token_ids=pack_ids(range(5 * 16))
    )
    async with publishing() as publisher:
        gateway = await subscribed(start_gateway, worker, publisher)
        publisher.events(0, span, stored(7))
        await until(lambda: held(gateway, worker) == 1)
        assert await gateway.metric("rejected_events_total", reason="length") == 1
        (shown,) = (await gateway.get("/gateway/index"))["owners"]
        assert shown["rejected"] == {"length": 1}


async def test_groups_that_do_not_count_are_shown_with_a_reason(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Only full attention is a whole prefix; the rest is counted by reason.

    llm-d/llm-d-router#2363
    """
    worker = await start_worker(SIM)
    sparse = msgspec.structs.replace(stored(2), group=1, group_kind="sliding_window")
    async with publishing() as publisher:
        gateway = await subscribed(start_gateway, worker, publisher)
        publisher.events(0, stored(1), sparse)
        await until(lambda: held(gateway, worker) == 1)
        assert await gateway.metric("rejected_events_total", reason="group_kind") == 1
        assert states(gateway, worker) == ["live"]


async def test_lost_and_applied_batches_make_what_was_sent(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """No loss is silent: what is not applied is on a counter.

    ai-dynamo/dynamo#14167
    """
    worker = await start_worker(SIM)
    async with publishing() as publisher:
        gateway = await subscribed(start_gateway, worker, publisher)
        for sequence in range(100):
            if sequence % 10 != 5:
                publisher.events(sequence, stored(sequence + 1))
        await until(lambda: held(gateway, worker) == 90)
        assert await gateway.metric("kv_events_total", kind="stored") == 90
        assert await gateway.metric("missed_batches_total") == 10


async def test_blocks_without_a_root_are_shown(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """They wait, count as orphans and not as held.

    llm-d/llm-d-kv-cache#372
    """
    worker = await start_worker(SIM)
    async with publishing() as publisher:
        gateway = await subscribed(start_gateway, worker, publisher)
        publisher.events(0, stored(1), stored(8, parent=77))
        await until(lambda: held(gateway, worker) == 1)
        assert await gateway.metric("orphan_blocks_total") == 1
        assert await gateway.metric("held_blocks", medium="gpu") == 1
        (shown,) = (await gateway.get("/gateway/index"))["owners"]
        assert (shown["orphans"], shown["waiting_orphans"]) == (1, 1)


async def test_a_router_that_starts_late_says_so(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Its picture is not complete: on the page, on a gauge, with the reason.

    sgl-project/sglang#39750
    """
    worker = await start_worker(options())
    first = await start_gateway(worker)
    await first.chat(TURN)
    late = await start_gateway(worker)
    await late.chat([{"role": "user", "content": "And who else? " * 40}])
    await late.until_events_arrive(worker)
    feed = await late.feed()
    assert (feed["state"], feed["complete"]) == ("live", False)
    assert feed["reason"] == "joined after the first batch"
    assert await late.metric("feed_complete") == 0
    assert await told(late, TURN) == 0


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
async def test_a_worker_without_events_shows_by_what_it_is_routed(
    engine: str, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Not silently by load: *estimated*, or what its empty source makes of it.

    NVIDIA/TensorRT-LLM#14882
    """
    worker = await start_worker(options(engine, kv_events=False))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    (shown,) = (await gateway.get("/gateway/workers"))["workers"]
    (feed,) = shown["feeds"]
    assert feed["history_blocks"] > 0
    assert feed["blocks"] == 0
    assert (feed["state"], bool(feed["reason"])) in [
        ("estimated", True),
        ("live", True),
    ]
    assert await gateway.metric("feed_state", state=feed["state"]) == 1
    assert await gateway.metric("feed_reason", reason=feed["reason"]) == 1
