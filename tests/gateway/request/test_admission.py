"""Admission: what waits, what is refused, and that nothing is by default."""

import asyncio

import pytest

from gateway.errors import Overloaded
from gateway.metrics.registry import Metrics
from gateway.request.admission import Admission
from gateway.settings.config import Config
from router import Decision
from tests.router.fleet import Fleet, prompt


class Rig:
    """A fleet of two, and what admits requests to it."""

    def __init__(self, limit: int | None, **options: object) -> None:
        self.fleet = Fleet(2, policy="least_loaded")
        config = Config(max_inflight_tokens=limit, **options)  # type: ignore[arg-type]
        self.admission = Admission(config, self.fleet.pool, Metrics())

    async def send(self, seed: int, tokens: int = 1000) -> Decision:
        """Admit a request, and decide about it at once, as the proxy does."""
        request = self.fleet.request(prompt(seed, tokens))
        await self.admission.admit(request)
        return self.fleet.router.decide(request)


async def test_nothing_waits_by_default() -> None:
    """However much is in flight."""
    rig = Rig(None)
    for seed in range(50):
        await rig.send(seed, 10_000)


async def test_at_the_limit_one_waits_until_a_prefill_is_over() -> None:
    """In the order they came, one for each that has room."""
    rig = Rig(1000)
    first = [await rig.send(seed) for seed in range(2)]
    waiting = [asyncio.create_task(rig.send(seed)) for seed in range(2, 5)]
    await asyncio.sleep(0.1)
    assert rig.admission.waiting == 3
    first[0].first_token()
    await asyncio.sleep(0.1)
    assert [task.done() for task in waiting] == [True, False, False]
    first[1].failed("client")
    await asyncio.wait_for(waiting[1], 1)
    assert not waiting[2].done()
    waiting[0].result().finished(None)
    await asyncio.wait_for(waiting[2], 1)


async def test_a_prompt_over_the_limit_passes_where_nothing_is_in_flight() -> None:
    """Else it would never."""
    await Rig(1000).send(1, 50_000)


async def test_a_full_queue_is_refused_at_once() -> None:
    """With Retry-After: somebody else may have room."""
    rig = Rig(600, max_queue=1)
    await rig.send(1)
    await rig.send(2)
    waiting = asyncio.create_task(rig.send(3))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded) as refused:
        await rig.send(4)
    assert (refused.value.status, refused.value.code) == (503, "overloaded")
    assert dict(refused.value.headers) == {"Retry-After": "1"}
    waiting.cancel()
    await asyncio.wait([waiting])
    assert rig.admission.waiting == 0


async def test_nothing_waits_where_there_is_no_queue() -> None:
    """Above the limit all is refused at once; below it all passes."""
    rig = Rig(600, max_queue=0)
    first = await rig.send(1)
    await rig.send(2)
    with pytest.raises(Overloaded, match="as many requests wait as may"):
        await rig.send(3)
    assert rig.admission.waiting == 0
    first.finished(None)
    await rig.send(3)


async def test_one_that_waits_too_long_is_refused() -> None:
    """And leaves the queue."""
    rig = Rig(600, queue_timeout=0.1)
    await rig.send(1)
    await rig.send(2)
    with pytest.raises(Overloaded, match="no worker had room in time"):
        await rig.send(3)
    assert rig.admission.waiting == 0


async def test_a_model_that_is_full_holds_up_no_other() -> None:
    """Whoever fits passes those that do not."""
    rig = Rig(1000)
    rig.fleet.add("other", model="small")
    for seed in range(2):
        await rig.send(seed)
    waiting = asyncio.create_task(rig.send(2))
    await asyncio.sleep(0.05)
    small = rig.fleet.request(prompt(9, 100), model="small")
    await asyncio.wait_for(rig.admission.admit(small), 1)
    assert not waiting.done()
    waiting.cancel()


async def test_a_queue_that_a_full_model_fills_refuses_no_other() -> None:
    """What fits needs no place in it; what goes to the same workers does."""
    rig = Rig(1000, max_queue=1)
    rig.fleet.add("other", model="small")
    for seed in range(2):
        await rig.send(seed)
    waiting = asyncio.create_task(rig.send(2))
    await asyncio.sleep(0)
    small = rig.fleet.request(prompt(9, 2000), model="small")
    await rig.admission.admit(small)
    decision = rig.fleet.router.decide(small)
    for full in (small, rig.fleet.request(prompt(3, 1000))):
        with pytest.raises(Overloaded, match="as many requests wait as may"):
            await rig.admission.admit(full)
    decision.first_token()
    await rig.admission.admit(small)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert rig.admission.waiting == 0


async def test_without_workers_it_is_not_for_admission_to_say() -> None:
    """The router has the words for it."""
    rig = Rig(100)
    for worker in rig.fleet.pool.workers:
        rig.fleet.pool.remove(worker.url)
    await rig.admission.admit(rig.fleet.request([1, 2, 3]))


async def test_clients_take_turns() -> None:
    """One with a hundred requests does not keep others waiting for all of them."""
    rig = Rig(1000)
    first = [await rig.send(seed) for seed in range(2)]
    order: list[str] = []

    async def send(client: str, seed: int) -> None:
        request = rig.fleet.request(prompt(seed, 1000))
        await rig.admission.admit(request, client)
        order.append(client)
        rig.fleet.router.decide(request).first_token()

    many = [asyncio.create_task(send("many", seed)) for seed in range(10, 20)]
    await asyncio.sleep(0)
    few = [asyncio.create_task(send("few", seed)) for seed in range(20, 22)]
    await asyncio.sleep(0)
    first[0].first_token()
    await asyncio.wait_for(asyncio.gather(*many, *few), 5)
    assert order[:5] == ["many", "few", "many", "few", "many"]


async def test_a_full_queue_is_not_one_clients() -> None:
    """Whoever has most that waits gives way to who has less; not to itself."""
    rig = Rig(600, max_queue=3)
    for seed in range(2):
        await rig.send(seed)

    def send(client: str, seed: int) -> asyncio.Task[None]:
        request = rig.fleet.request(prompt(seed, 1000))
        return asyncio.create_task(rig.admission.admit(request, client))

    greedy = [send("greedy", seed) for seed in range(3)]
    await asyncio.sleep(0)
    modest = send("modest", 3)
    await asyncio.sleep(0.01)
    assert [task.done() for task in greedy] == [False, False, True]
    with pytest.raises(Overloaded, match="as many requests wait as may"):
        await greedy[2]
    with pytest.raises(Overloaded):
        await send("greedy", 4)
    assert not modest.done()
    assert rig.admission.waiting == 3
    waiting = [*greedy[:2], modest]
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert rig.admission.waiting == 0


async def test_nobody_is_admitted_beside_one_that_just_was() -> None:
    """What comes before that one is on its way waits behind it."""
    rig = Rig(500)
    first = await rig.send(1)
    waiting = asyncio.create_task(rig.send(2))
    await asyncio.sleep(0)
    first.first_token()
    late = asyncio.create_task(rig.admission.admit(rig.fleet.request(prompt(3, 1000))))
    rig.admission._look()  # admits the one that waits, whose task runs after `late`
    await asyncio.sleep(0.1)
    assert waiting.done()
    assert not late.done()
    waiting.result().first_token()
    await asyncio.wait_for(late, 1)
