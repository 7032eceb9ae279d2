"""Missed batches are asked for again; a publisher that does not answer costs little."""

from functools import partial
from typing import Any

import pytest

from gateway.events import replay
from gateway.settings.values import EventEndpoint
from gateway.workers import monitor
from kvindex.feed import FeedSettings
from kvindex.standing import FeedState
from simworker.server import SimWorker
from tests.gateway.fed import TURN, feeds, held, options, sim, states, told, turn
from tests.running import MODEL, Answer, Running, StartGateway, StartWorker, until


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishers get a moment only."""
    monkeypatch.setattr(replay, "SILENCE_S", 0.2)
    monkeypatch.setattr(replay, "TOTAL_S", 1.0)


async def miss_some(gateway: Running, worker: SimWorker) -> None:
    """Two prompts are cached; the events of the first are lost on their way."""
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) > 0)
    await sim(gateway, worker, "/sim/faults", drop=1)
    await gateway.chat(turn(1))
    await gateway.chat(turn(2))


@pytest.mark.parametrize(
    ("engine", "changes"),
    [
        ("vllm", {}),
        ("vllm", {"legacy_replay": True}),
        ("sglang", {}),
    ],
)
async def test_missed_batches_come_after_all(
    engine: str,
    changes: dict[str, Any],
    start_worker: StartWorker,
    start_gateway: StartGateway,
) -> None:
    """The endpoint is as the worker tells; with and without a topic in the frames."""
    worker = await start_worker(options(engine, replay_port=0, **changes))
    gateway = await start_gateway(worker)
    await miss_some(gateway, worker)
    await until(lambda: states(gateway, worker) == ["live"] and _all(gateway, worker))
    feed = feeds(gateway, worker)[0]
    assert feed.complete
    assert feed.counters.replayed >= 1
    assert (feed.counters.missed_batches, feed.counters.restarts) == (0, 0)
    for messages in (TURN, turn(1), turn(2)):
        assert await told(gateway, messages) >= 8 * 16


def _all(gateway: Running, worker: SimWorker) -> bool:
    assert worker.publisher is not None
    published = worker.publisher.next_sequence - 1
    return feeds(gateway, worker)[0].last_sequence == published


async def test_a_late_gateway_learns_what_was_before(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Blocks cached before it started are known to it, without any request."""
    worker = await start_worker(options(replay_port=0))
    early = await start_gateway(worker)
    await early.chat(TURN)
    late = await start_gateway(worker)
    await until(lambda: _all(early, worker) and _all(late, worker))
    await until(lambda: held(late, worker) == held(early, worker) > 0)
    assert feeds(late, worker)[0].complete
    answer = await late.chat(TURN)
    assert await late.hits() == (answer.cached, answer.cached)


def _said(answer: Answer) -> dict[str, Any]:
    return {"role": "assistant", "content": answer.text}


async def test_a_late_gateway_without_replay(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """It finds a chat by what another gateway sent of it since, though by no event.

    The prompt of the next turn tells what those blocks are below; a guess, by which
    nothing is predicted.
    """
    fields = {"min_tokens": 64, "max_tokens": 64}
    workers = [await start_worker(options()) for _ in range(3)]
    early = await start_gateway(*workers)
    first = await early.chat(TURN, **fields)
    late = await start_gateway(*workers)
    await until(lambda: all("live" in states(late, worker) for worker in workers))
    for number in (*range(4, 10), *range(4, 10)):  # so that all tell what they find
        await late.chat(turn(number))
    so_far = [*TURN, _said(first), *turn(2)]
    second = await early.chat(so_far, **fields)
    assert second.worker == first.worker
    (worker,) = (worker for worker in workers if worker.url == second.worker)
    heard = feeds(late, worker)[0]
    await until(lambda: _all(late, worker) and heard.orphans > 0)
    so_far += [_said(second), *turn(3)]
    asked = {"model": MODEL, "messages": so_far}
    explained = await late.post("/gateway/explain", asked)
    guessed = {told["url"]: told["guessed_tokens"] for told in explained["workers"]}
    assert [url for url, tokens in guessed.items() if tokens > 30 * 16] == [worker.url]
    before = await late.hits()
    third = await late.chat(so_far)
    assert third.worker == second.worker
    assert third.cached == guessed[worker.url] > 30 * 16
    predicted, delivered = await late.hits()
    assert (predicted - before[0], delivered - before[1]) == (0, third.cached)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["hang", "refuse"])
async def test_a_replay_that_does_not_end(
    how: str,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Degraded after its time, not for ever replaying; live events go on.

    Once the publisher replays again, all is known that was missed.
    """
    soon = partial(FeedSettings, replay_pause_s=3.0)
    monkeypatch.setattr("gateway.events.ingest.FeedSettings", soon)
    worker = await start_worker(options(replay_port=0))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) > 0)
    await sim(gateway, worker, "/sim/faults", drop=1, replay=how, pause_s=5.0)
    await gateway.chat(turn(1))
    await gateway.chat(turn(2))
    await until(lambda: states(gateway, worker) == ["degraded"])
    await gateway.chat(turn(3))
    await until(lambda: _knows(gateway, turn(3)))
    feed = feeds(gateway, worker)[0]
    assert (feed.complete, await told(gateway, turn(1))) == (False, 0)
    await sim(gateway, worker, "/sim/faults", replay="")
    await until(lambda: feed.complete and feed.state is FeedState.LIVE)
    for messages in (TURN, turn(1), turn(2), turn(3)):
        assert await told(gateway, messages) >= 8 * 16
    assert feed.counters.restarts == 0


@pytest.mark.usefixtures("impatient")
async def test_a_replay_without_its_end_marker(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Old publishers may lose it; what came is used, and live batches follow on."""
    worker = await start_worker(options(replay_port=0))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) > 0)
    await sim(gateway, worker, "/sim/faults", drop=1, replay="cut")
    for number in (1, 2, 3):
        await gateway.chat(turn(number))
    await until(lambda: states(gateway, worker) == ["live"] and _all(gateway, worker))
    for messages in (TURN, turn(1), turn(2), turn(3)):
        assert await told(gateway, messages) >= 8 * 16


async def _knows(gateway: Running, messages: list[dict[str, Any]]) -> bool:
    return await told(gateway, messages) >= 8 * 16


async def test_declared_replay_endpoints(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """--kv-replay names the endpoint where the worker tells none."""
    worker = await start_worker(options(replay_port=0))
    gateway = await start_gateway(
        worker,
        kv_events=(EventEndpoint(worker.url, 0, str(worker.kv_endpoint)),),
        kv_replay=(EventEndpoint(worker.url, 0, str(worker.replay_endpoint)),),
    )
    await miss_some(gateway, worker)
    await until(lambda: feeds(gateway, worker)[0].counters.replayed >= 1)
    await until(lambda: states(gateway, worker) == ["live"])
    assert feeds(gateway, worker)[0].complete


async def test_a_restart_while_nothing_is_sent(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the new process cached before it was noticed is asked for at once."""
    monkeypatch.setattr(monitor, "REFRESH_S", 0.2)
    worker = await start_worker(options(replay_port=0))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) > 0)
    await sim(gateway, worker, "/sim/faults", mute=True)
    await sim(gateway, worker, "/sim/restart")
    await gateway.chat(turn(1))
    feed = feeds(gateway, worker)[0]
    await until(lambda: feed.counters.restarts == 1)
    await until(lambda: _knows(gateway, turn(1)))
    assert await told(gateway, TURN) == 0
    assert (feed.state, feed.complete) == ("live", True)
