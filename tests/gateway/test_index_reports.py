"""Field reports about whose blocks are whose: workers, gateways, salts and adapters.

Each test plays the report's input on whole gateways; what was predicted is what the
workers found.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from simworker.server import SimWorker
from tests.gateway.fed import ENGINES, TEXT, TURN, held, options, sim, states, turn
from tests.running import MODEL, Answer, Running, StartGateway, StartWorker, until

GROUPS, TURNS = 4, 3
LORA: dict[str, Any] = {"lora_request": {"lora_name": "adapter-1", "lora_int_id": 7}}
APART: dict[str, list[dict[str, Any]]] = {
    "vllm": [{"model": "adapter-1"}],
    "sglang": [
        {"lora_path": "adapter-1"},
        {"extra_key": "x"},
        {"extra_key": "y"},
        {"model": f"{MODEL}:adapter-1", "extra_key": "x"},
    ],
    "trtllm": [LORA, LORA | {"cache_salt": "a"}],
}
"""By engine, what keeps a chat apart from others of the same text, besides a salt."""


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
    """Salts, extra keys, adapters and none of these: the first of each is cold.

    NVIDIA/TensorRT-LLM#18156, smg-project/smg#2420, ai-dynamo/dynamo#6517
    """
    worker = await start_worker(_with_adapters(engine))
    gateway = await start_gateway(worker)
    kinds = [{}, {"cache_salt": "a"}, {"cache_salt": "b"}, *APART[engine]]
    for fields in kinds:
        first = await _compared(gateway, fields)
        assert first.cached < 16, fields
        await gateway.until_events_arrive(worker)
        second = await _compared(gateway, fields)
        assert second.cached >= 8 * 16, fields
    assert (await _compared(gateway, {})).cached >= 8 * 16
    assert states(gateway, worker) == ["live"]


@pytest.mark.parametrize(
    ("engine", "fields"), [(engine, f) for engine in ENGINES for f in APART[engine]]
)
async def test_what_is_held_of_the_base_model_is_nobody_elses(
    engine: str,
    fields: dict[str, Any],
    start_worker: StartWorker,
    start_gateway: StartGateway,
) -> None:
    """Requests of another namespace are not taken for warm, and contradict nothing.

    smg-project/smg#2420, ai-dynamo/dynamo#6517
    """
    worker = await start_worker(_with_adapters(engine))
    gateway = await start_gateway(worker)
    chats = [turn(number) for number in range(3)]
    for chat in chats:
        await gateway.chat(chat)
    await gateway.until_events_arrive(worker)
    for chat in chats:
        assert await _known(gateway, chat, **fields) == (0, 0)
        assert (await gateway.chat(chat, **fields)).cached < 16
    await gateway.until_events_arrive(worker)
    assert states(gateway, worker) == ["live"]
    for chat in chats:
        assert (await _known(gateway, chat))[0] >= 8 * 16


async def test_two_names_of_one_adapter(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """SGLang's `BASE:ADAPTER` and `lora_path` are one namespace, known by events."""
    worker = await start_worker(_with_adapters("sglang"))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN, lora_path="adapter-1")
    await gateway.until_events_arrive(worker)
    other = {"model": f"{MODEL}:adapter-1"}
    assert (await _known(gateway, TURN, **other))[0] >= 8 * 16
    assert (await gateway.chat(TURN, **other)).cached >= 8 * 16


async def test_an_adapter_goes_where_it_is_listed(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """By whatever field it is named; where none lists it, to an engine that reads it.

    vLLM answers as the base model to a `lora_path`.
    """
    bare = [await start_worker(options(engine)) for engine in ENGINES]
    listing = await start_worker(_with_adapters("sglang"))
    trtllm = bare[ENGINES.index("trtllm")]
    gateway = await start_gateway(*bare, listing)
    for number in range(4):
        for fields, worker in (
            ({"lora_path": "adapter-1"}, listing),
            ({"model": f"{MODEL}:adapter-1"}, listing),
            (LORA, trtllm),
        ):
            answer = await gateway.chat(turn(number), **fields)
            assert answer.worker == worker.url, fields
    asked = {"model": MODEL, "messages": TURN, "lora_path": "adapter-1"}
    others = (await gateway.post("/gateway/explain", asked))["not_weighed"]
    assert [other["reason"] for other in others] == ["does not know the adapter"] * 3


def _with_adapters(engine: str) -> Any:
    """Options of a worker with "adapter-1"; TensorRT-LLM's comes with the requests."""
    adapters = () if engine == "trtllm" else ("adapter-1=/loras/1",)
    return options(engine, lora_modules=adapters)


async def _known(
    gateway: Running, messages: list[dict[str, Any]], **fields: Any
) -> tuple[int, int]:
    """The tokens of a chat that index and history have for the only worker."""
    asked = {"model": MODEL, "messages": messages} | fields
    (told,) = (await gateway.post("/gateway/explain", asked))["workers"]
    return told["held_tokens"], told["history_tokens"]


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
