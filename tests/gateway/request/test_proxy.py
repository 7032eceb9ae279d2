"""Which failures are tried elsewhere, how often, and what the client gets."""

import asyncio
import contextlib
import json
import time

import pytest

from router.worker import WorkerState
from tests.gateway.scripted import (
    ANSWER,
    CHAT,
    LISTING,
    ask,
    idle,
    posts,
    refusal,
    state,
    worker,
)
from tests.proxy.raw import (
    SSE_HEAD,
    RawClient,
    RawWorker,
    WorkerConnection,
    answering,
    chunk,
    event,
    json_answer,
)
from tests.running import StartGateway, until

DEAD = "http://127.0.0.1:1"

pytestmark = pytest.mark.usefixtures("never_blocks")


async def test_no_connection_is_tried_elsewhere(start_gateway: StartGateway) -> None:
    """The other worker answers; the client notices nothing, and it counts."""
    async with worker(ANSWER) as gone, worker(ANSWER) as good:
        gateway = await start_gateway(gone.url, good.url, policy="round_robin")
        await gone.__aexit__(None, None, None)
        for _ in range(20):
            status, _, _ = await ask(gateway)
            assert status == 200
        assert posts(good) == 20
        retries = await gateway.metric("retries_total", reason="connect")
        assert 1 <= retries <= 3
        attempts = "attempts_total"
        assert await gateway.metric(attempts, outcome="connect") == retries
        assert await gateway.metric(attempts, worker=good.url, outcome="answered") == 20
        assert state(gateway, gone) is WorkerState.suspect
        await idle(gateway)


async def test_a_broken_worker_is_left_alone(start_gateway: StartGateway) -> None:
    """In a hundred requests a worker that resets costs a few of them at most."""
    async with worker(WorkerConnection.reset) as broken, worker(ANSWER) as good:
        gateway = await start_gateway(broken.url, good.url, policy="round_robin")
        statuses = [(await ask(gateway))[0] for _ in range(100)]
        assert 1 <= posts(broken) <= 5
        assert statuses.count(200) == 100 - posts(broken)
        assert set(statuses) == {200, 502}  # what was sent is never sent again
        await idle(gateway)


@pytest.mark.parametrize("status", [b"503 Service Unavailable", b"429 Too Many"])
async def test_busy_is_tried_elsewhere(
    start_gateway: StartGateway, status: bytes
) -> None:
    """A worker that asks for patience gets it; the other one answers."""
    busy_answer = refusal(status, b"Retry-After: 20")
    async with worker(busy_answer) as busy, worker(ANSWER) as good:
        gateway = await start_gateway(busy.url, good.url, policy="round_robin")
        for _ in range(10):
            answered, _, _ = await ask(gateway)
            assert answered == 200
        assert (posts(busy), posts(good)) == (1, 10)
        assert await gateway.metric("retries_total", reason="busy") == 1
        assert await gateway.metric("attempts_total", outcome="busy") == 1
        assert state(gateway, busy) is WorkerState.ready
        await idle(gateway)


async def test_all_busy(start_gateway: StartGateway) -> None:
    """What the first one said comes back, byte for byte; two were asked, not more."""
    answers = [
        json_answer(b'{"from": %d}' % n, b"Retry-After: %d" % (n + 1),
                    b"X-Odd: a", b"X-Odd: b", status=b"503 Not Now")
        for n in range(3)
    ]  # fmt: skip
    async with (
        worker(answers[0]) as first,
        worker(answers[1]) as second,
        worker(answers[2]) as third,
    ):
        gateway = await start_gateway(first.url, second.url, third.url)
        status, headers, body = await ask(gateway)
        asked = [posts(w) for w in (first, second, third)]
        assert sum(asked) == 2
        assert status == 503
        assert headers["Retry-After"] == str(body["from"] + 1)
        # Ties are broken by turn: the first in the list was asked first.
        assert body == {"from": 0}
        await idle(gateway)


async def test_busy_and_alone(start_gateway: StartGateway) -> None:
    """With no other worker the answer goes back as it is, and nobody waits."""
    async with worker(refusal(b"429 Too Many", b"Retry-After: 30"), ANSWER) as only:
        gateway = await start_gateway(only.url)
        begun = time.monotonic()
        status, headers, body = await ask(gateway)
        assert (status, headers["Retry-After"]) == (429, "30")
        assert body == {"error": {"message": "later"}}
        assert (await ask(gateway))[0] == 200  # still used, as there is no better
        assert time.monotonic() - begun < 2


async def test_busy_then_a_worker_that_breaks(start_gateway: StartGateway) -> None:
    """If the second try fails, the first answer is still there."""
    async with worker(refusal(b"503 X")) as busy, worker(WorkerConnection.reset) as bad:
        gateway = await start_gateway(busy.url, bad.url)
        status, _, body = await ask(gateway)
        assert (status, body) == (503, {"error": {"message": "later"}})
        await idle(gateway)


async def test_a_reset_is_not_tried_again(start_gateway: StartGateway) -> None:
    """The worker may have acted on it: 502, from the only worker that saw it."""
    async with worker(WorkerConnection.reset) as bad, worker(ANSWER) as good:
        gateway = await start_gateway(bad.url, good.url)
        status, _, body = await ask(gateway)
        assert (status, body["error"]["code"]) == (502, "upstream_reset")
        assert (posts(bad), posts(good)) == (1, 0)
        name = "upstream_failures_total"
        assert await gateway.metric(name, worker=bad.url, kind="reset") == 1


async def test_a_broken_upload_is_no_failure_of_the_worker(
    start_gateway: StartGateway,
) -> None:
    """The client is told, and nothing is counted against the worker."""
    upload = (
        b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: g\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    )

    async def script(connection: WorkerConnection) -> None:
        with contextlib.suppress(ValueError):  # the upload has no end
            await answering(LISTING)(connection)

    async with RawWorker(script) as fine:
        gateway = await start_gateway(fine.url)
        async with RawClient(gateway.port) as client:
            await client.send(upload)
            await until(lambda: gateway.gateway.pool.workers[0].inflight_requests)
            await client.send(b"zz\r\n")
            head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 400 ")
        await idle(gateway)
        assert await gateway.metric("upstream_failures_total") == 0
        assert state(gateway, fine) is WorkerState.ready


@pytest.mark.parametrize("status", [b"400 Bad", b"404 Not Found", b"422 X", b"501 Y"])
async def test_errors_change_no_state(
    start_gateway: StartGateway, status: bytes
) -> None:
    """Thirty refusals come back as they are, and the worker stays as good as it was."""
    async with worker(refusal(status)) as picky:
        gateway = await start_gateway(picky.url)
        for _ in range(30):
            answered, _, body = await ask(gateway)
            assert answered == int(status[:3])
            assert body == {"error": {"message": "later"}}
        assert posts(picky) == 30
        assert state(gateway, picky) is WorkerState.ready
        assert await gateway.metric("upstream_failures_total") == 0
        assert await gateway.metric("uncompared_requests_total") == 0
        assert await gateway.metric("prompt_tokens_total") == 0
        await idle(gateway)


async def test_first_token_seconds_count_from_the_request(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time to the first token includes reading and rendering the request."""
    stream = SSE_HEAD + chunk(event(0)) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    async with worker(stream) as good:
        gateway = await start_gateway(good.url)
        body = json.dumps(CHAT | {"stream": True}).encode()
        async with RawClient(gateway.port) as client:
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\n"
            await client.send(head + b"Content-Length: %d\r\n\r\n" % len(body))
            await asyncio.sleep(0.2)
            await client.send(body)
            await client.answer()
        assert await gateway.metric("first_token_seconds_count") == 1
        assert await gateway.metric("first_token_seconds_sum") >= 0.2
