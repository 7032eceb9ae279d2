"""Explaining on a whole gateway: what is held where, and the text where that ends."""

from typing import Any

import pytest

from tests.gateway.fed import ENGINES, SIZE, TURN, held, options, sim
from tests.running import MODEL, StartGateway, StartWorker, until

DAY = "Today is Monday, the 30th. "
DEAD = "http://127.0.0.1:1"


def asked(*texts: str) -> dict[str, Any]:
    """A chat of these user messages."""
    messages = [{"role": "user", "content": text} for text in texts]
    return {"model": MODEL, "messages": messages, "max_tokens": 4}


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_text_at_which_a_prompt_stops_being_known(
    engine: str, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """A date in the system prompt spoils what follows it: it is shown."""
    worker = await start_worker(options(engine))
    gateway = await start_gateway(worker)
    rules = "Answer in one sentence, and name the harbour. " * 20
    await gateway.chat(asked(rules + DAY + rules)["messages"])
    await until(lambda: held(gateway, worker) >= 8)
    tomorrow = DAY.replace("Monday, the 30th", "Tuesday, the 1st")
    page = await gateway.post("/gateway/explain", asked(rules + tomorrow + rules))
    found = page["unknown_from"]
    assert found["block_size"] == SIZE
    assert found["token"] == found["block"] * SIZE
    assert 0 < found["token"] < page["prompt_tokens"] // 2 + SIZE
    (weighed,) = page["workers"]
    assert weighed["hit_tokens"] == found["token"]
    assert weighed["gpu_tokens"] == weighed["held_tokens"] == found["token"]
    assert "Tuesday" in found["text_before"][-20:] + found["text_after"]
    assert (found["url"], found["rank"]) == (worker.url, 0)


async def test_the_text_is_that_of_the_profile_that_knows_most(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """In a mixed fleet each engine has a prompt of its own."""
    workers = [await start_worker(options(engine)) for engine in ENGINES]
    gateway = await start_gateway(*workers)
    rules = "Answer in one sentence, and name the harbour. " * 20
    await gateway.chat(asked(rules + DAY)["messages"])
    await until(lambda: any(held(gateway, worker) >= 8 for worker in workers))
    page = await gateway.post("/gateway/explain", asked(rules + "Never mind."))
    found = page["unknown_from"]
    warm = next(w for w in workers if w.url == found["url"])
    assert held(gateway, warm) * SIZE >= found["token"] > 0
    assert "name the harbour" in found["text_before"]


async def test_a_prompt_nobody_knows_begins_unknown(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """At block 0, with the first words after it."""
    gateway = await start_gateway(await start_worker(options()))
    page = await gateway.post("/gateway/explain", asked("Which harbour? " * 20))
    found = page["unknown_from"]
    assert (found["block"], found["token"], found["text_before"]) == (0, 0, "")
    assert found["text_after"].startswith("<|im_start|>")
    assert "Which harbour?" in found["text_after"]


async def test_tiers_and_terms_of_the_cost(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """What the index has, history's part, and what the cost is made of."""
    worker = await start_worker(options())
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) >= 8)
    body = {"model": MODEL, "messages": TURN}
    (warm,) = (await gateway.post("/gateway/explain", body))["workers"]
    assert warm["gpu_tokens"] + warm["offloaded_tokens"] == warm["held_tokens"] > 0
    assert (warm["knowledge"], warm["state"]) == ("live", "ready")
    assert warm["suspect_tokens"] == 0
    assert warm["history_tokens"] == warm["held_tokens"]
    terms = warm["wait_s"] + warm["prefill_s"] + warm["delay_s"]
    assert warm["cost_s"] == pytest.approx(terms)
    assert warm["estimate_s"] == pytest.approx(warm["wait_s"] + warm["prefill_s"])


async def test_what_is_in_doubt_is_told(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """After missed batches, by feed and by tokens."""
    worker = await start_worker(options())
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) >= 8)
    await sim(gateway, worker, "/sim/faults", drop=1)
    await gateway.chat([{"role": "user", "content": "lost " * 60}])
    await gateway.chat([{"role": "user", "content": "seen " * 60}])

    async def in_doubt() -> bool:
        body = {"model": MODEL, "messages": TURN}
        (shown,) = (await gateway.post("/gateway/explain", body))["workers"]
        return bool(shown["suspect_tokens"]) and shown["knowledge"] == "degraded"

    await until(in_doubt)


async def test_workers_that_are_not_weighed_are_named(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """With the reason: it never answered, or it has other models."""
    worker = await start_worker(options())
    other = await start_worker(options(served_model_name=("another",)))
    gateway = await start_gateway(worker, other, DEAD)
    page = await gateway.post("/gateway/explain", asked("hello"))
    assert page["chosen"]["url"] == worker.url
    why_not = {shown["url"]: shown["reason"] for shown in page["not_weighed"]}
    assert why_not[other.url] == "does not list the model"
    assert "connect" in why_not[DEAD]
