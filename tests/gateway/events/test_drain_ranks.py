"""Fetched events: ranks that come and go, and how large their caches are."""

import pytest

from tests.gateway.drained import Scripted, created, stored
from tests.gateway.fed import feeds, held
from tests.running import StartGateway, until


async def test_each_rank_has_its_own_numbers(start_gateway: StartGateway) -> None:
    """Event ids count per attention-DP rank; ranks appear with their events."""
    events = [
        [created(0), stored(1, 1), created(0) | {"attention_dp_rank": 2}],
        [stored(1, 5, 6, rank=2), stored(2, 2)],
        [stored(3, 3), stored(3, 9, rank=-4)],
    ]
    async with Scripted(*events) as worker:
        gateway = await start_gateway(worker.url)
        await until(lambda: held(gateway, worker.url) == 5)
        found = feeds(gateway, worker.url)
        assert {rank: feed.last_sequence for rank, feed in found.items()} == {
            0: 3,
            2: 1,
        }
        assert {feed.state for feed in found.values()} == {"live"}
        assert all(feed.complete for feed in found.values())
        (known,) = gateway.gateway.pool.workers
        assert list(known.ranks) == [0, 2]
        assert not known.pinned


@pytest.mark.parametrize("left", [1, 2])
async def test_a_restart_with_fewer_ranks(
    left: int, start_gateway: StartGateway
) -> None:
    """Ranks that are no more hold nothing; those that are begin anew, complete."""
    before = [[created(0), created(0) | {"attention_dp_rank": 1}]]
    before += [[stored(1, 1, 2), stored(1, 5, 6, 7, rank=1)]]
    async with Scripted(*before) as worker:
        gateway = await start_gateway(worker.url)
        await until(lambda: held(gateway, worker.url) == 5)
        ranks = range(left)
        worker.answers += [[created(0) | {"attention_dp_rank": r} for r in ranks]]
        worker.answers += [[stored(1, 8, rank=r) for r in ranks]]
        await until(lambda: held(gateway, worker.url) == left)
        (known,) = gateway.gateway.pool.workers
        assert list(known.ranks) == list(feeds(gateway, worker.url)) == list(ranks)
        assert all(feed.complete for feed in feeds(gateway, worker.url).values())


async def test_the_cache_size_is_in_the_events(start_gateway: StartGateway) -> None:
    """All media count, and the history has as many blocks; a restart may change it."""
    first, second = created(0), created(0)
    first["data"]["num_blocks_per_cache_level"] = [500, 250]
    async with Scripted([first, stored(1, 1)]) as worker:
        gateway = await start_gateway(worker.url)
        await until(lambda: held(gateway, worker.url) == 1)
        (known,) = gateway.gateway.pool.workers
        assert known.knowledge[0].history.capacity_blocks == 750
        worker.answers += [[second, stored(1, 1, 2)]]
        await until(lambda: held(gateway, worker.url) == 2)
        assert known.knowledge[0].history.capacity_blocks == known.cache_blocks == 100
