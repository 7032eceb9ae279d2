"""Field reports about whose blocks are whose: workers, gateways, salts and adapters.

Each test plays the report's input on whole gateways; what was predicted is what the
workers found.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from simworker.server import SimWorker
from tests.gateway.fed import ENGINES, TEXT, TURN, held, options, sim, turn
from tests.running import Answer, Running, StartGateway, StartWorker, until

GROUPS, TURNS = 4, 3


async def test_workers_at_one_address(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Blocks belong to a URL, not to the machine: only the port differs.

    vllm-project/production-stack#1062
    """
    one, two = [await start_worker(options()) for _ in range(2)]
    gateway = await start_gateway(one, two)
    answer = await gateway.chat(TURN)
    warm, cold = (one, two) if answer.worker == one.url else (two, one)
    await until(lambda: held(gateway, warm) >= 8)
    assert held(gateway, cold) == 0
    explained = await gateway.post("/gateway/explain", {"messages": TURN})
    tokens = {each["url"]: each["held_tokens"] for each in explained["workers"]}
    assert tokens[warm.url] >= 8 * 16
    assert tokens[cold.url] == 0
    assert explained["chosen"]["url"] == warm.url


@pytest.mark.parametrize("engine", ENGINES)
async def test_each_namespace_matches_its_own_second_request(
    engine: str, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Salts "a" and "b", no salt, and an adapter: the first of each is cold.

    NVIDIA/TensorRT-LLM#18156, smg-project/smg#2420, ai-dynamo/dynamo#6517
    """
    adapters = ("adapter-1=/loras/1",) if engine == "vllm" else ()
    worker = await start_worker(options(engine, lora_modules=adapters))
    gateway = await start_gateway(worker)
    kinds: list[dict[str, Any]] = [{}, {"cache_salt": "a"}, {"cache_salt": "b"}]
    kinds += [{"model": "adapter-1"}] if adapters else []
    for fields in kinds:
        first = await _compared(gateway, fields)
        assert first.cached < 16
        await _settled(gateway, worker)
        second = await _compared(gateway, fields)
        assert second.cached >= 8 * 16


async def _settled(gateway: Running, worker: SimWorker) -> None:
    """Wait until all that was published is known."""
    if worker.publisher is not None:
        await gateway.until_events_arrive(worker)


async def _compared(gateway: Running, fields: dict[str, Any]) -> Answer:
    """The answer to the chat of all kinds; as much was found as was predicted."""
    before = await gateway.hits()
    answer = await gateway.chat(TURN, **fields)
    after = await gateway.hits()
    assert after[0] - before[0] == after[1] - before[1] == answer.cached
    return answer


async def test_three_gateways_over_the_same_workers(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Clients that go round them find as much cached as with one.

    smg-project/smg#2437
    """
    workers = [await start_worker(options(replay_port=0)) for _ in range(3)]
    rates = []
    for count in (1, 3):
        gateways = [await start_gateway(*workers) for _ in range(count)]
        rates.append(await _hit_rate(gateways, workers))
        for worker in workers:
            await sim(gateways[0], worker, "/sim/reset")
    assert rates[0] > 0.5
    assert abs(rates[0] - rates[1]) <= 0.02


async def _hit_rate(gateways: list[Running], workers: Sequence[SimWorker]) -> float:
    """Of chats that go on turn by turn, each turn at the next gateway."""
    round_robin = itertools.cycle(gateways)
    cached = prompt = 0
    chats = [turn(number) for number in range(GROUPS)]
    for number in range(TURNS):
        for chat in chats:
            answer = await next(round_robin).chat(chat)
            cached += answer.cached
            prompt += answer.body["usage"]["prompt_tokens"]
            said = {"role": "assistant", "content": answer.text}
            chat += [said, {"role": "user", "content": f"{number}, and: {TEXT[:200]}"}]
            heard = [w for w in workers if w.publisher and w.publisher.next_sequence]
            for gateway in gateways:
                await gateway.until_events_arrive(*heard)
    return cached / prompt
