"""A tier behind the GPU, as the gateway sees it while blocks come and go."""

import pytest

from tests.gateway.fed import SIZE, TURN, feeds, held, options, told, turn
from tests.running import StartGateway, StartWorker, until


@pytest.mark.parametrize("bare", [False, True])
async def test_what_the_gpu_dropped_is_held_in_the_tier(
    bare: bool, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Whether events tell its tokens or only its name: it is found, and predicted."""
    worker = await start_worker(options(blocks=40, host_blocks=400, bare_offload=bare))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    for number in range(6):
        await gateway.chat(turn(number))
    await gateway.until_events_arrive(worker)
    holdings = worker.cache.holdings()
    await until(lambda: held(gateway, worker) == len(holdings))
    off_gpu = [each for each in holdings if "GPU" not in each.media]
    assert len(off_gpu) > 40
    feed = feeds(gateway, worker)[0]
    assert feed.owner is not None
    assert feed.owner.gpu_blocks == len(holdings) - len(off_gpu)
    assert (feed.counters.rejected, feed.complete) == ({}, True)
    tokens = await told(gateway, TURN)
    assert tokens >= 8 * SIZE
    assert (await gateway.chat(TURN)).cached == tokens
    assert len(set(await gateway.hits())) == 1


async def test_a_tier_that_drops_blocks_too(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Then they are held nowhere, and not believed to be."""
    worker = await start_worker(options(blocks=40, host_blocks=20, bare_offload=True))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    for number in range(8):
        await gateway.chat(turn(number))
    await gateway.until_events_arrive(worker)
    wanted = len(worker.cache.holdings())
    await until(lambda: held(gateway, worker) == wanted)
    assert await told(gateway, TURN) == (await gateway.chat(TURN)).cached
