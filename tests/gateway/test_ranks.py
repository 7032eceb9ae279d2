"""Which data-parallel rank a worker is asked for."""

import json

import pytest

from tests.gateway.scripted import (
    ANSWER,
    LISTING,
    ask,
    worker,
)
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer
from tests.running import StartGateway

pytestmark = pytest.mark.usefixtures("never_blocks")


TWO_RANKS = json.dumps(
    {
        str(rank): {
            "enable_kv_cache_events": True,
            "endpoint": f"tcp://127.0.0.1:{rank}",
        }
        for rank in (1, 2)
    }
).encode()


def _with_ranks() -> RawWorker:
    """A worker with data-parallel ranks 1 and 2."""

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            path = request.split(b" ")[1]
            answers = {
                b"/v1/models": LISTING,
                b"/kv_event_sources": json_answer(TWO_RANKS),
                b"/v1/chat/completions": ANSWER,
            }
            missing = json_answer(b"{}", status=b"404 Not Found")
            await connection.send(answers.get(path, missing))

    return RawWorker(script)


def ranks_sent(worker: RawWorker) -> list[bytes]:
    """The rank headers' values of each inference request."""
    return [
        b",".join(
            line.partition(b":")[2].strip()
            for line in request.split(b"\r\n\r\n")[0].split(b"\r\n")
            if line.lower().startswith(b"x-data-parallel-rank:")
        )
        for request in worker.requests
        if request.startswith(b"POST")
    ]


async def test_the_gateway_names_the_rank(start_gateway: StartGateway) -> None:
    """Of several ranks one is chosen and named; a client's own value is dropped."""
    async with _with_ranks() as worker:
        gateway = await start_gateway(worker.url, policy="round_robin")
        for _ in range(2):
            assert (await ask(gateway))[0] == 200
        assert (await ask(gateway, **{"X-Data-Parallel-Rank": "7"}))[0] == 200
        assert sorted(ranks_sent(worker)) == [b"1", b"1", b"2"]
        assert await gateway.metric("client_ranks_dropped_total") == 1


async def test_a_clients_rank_where_it_is_let_in(start_gateway: StartGateway) -> None:
    """With --client-rank its value is sent and booked; without one ours is."""
    async with _with_ranks() as worker:
        gateway = await start_gateway(worker.url, client_rank=True)
        for value in ("2", "2", "2", "odd"):
            headers = {"X-Data-Parallel-Rank": value}
            assert (await ask(gateway, **headers))[0] == 200
        assert ranks_sent(worker) == [b"2", b"2", b"2", b"odd"]
        assert (await ask(gateway))[0] == 200
        assert ranks_sent(worker)[-1] in (b"1", b"2")
        assert await gateway.metric("client_ranks_dropped_total") == 0
        (known,) = gateway.gateway.pool.workers
        assert known.ledger(2).last_turn >= 3


async def test_one_rank_is_not_named(start_gateway: StartGateway) -> None:
    """A worker with one rank gets no header."""
    async with worker(ANSWER) as plain:
        gateway = await start_gateway(plain.url)
        assert (await ask(gateway, **{"X-Data-Parallel-Rank": "0"}))[0] == 200
        assert ranks_sent(plain) == [b""]
