"""What happens where a worker refuses the ids."""

import logging

import pytest

from gateway import housekeeping
from render import Renderer
from router.forwarding import Blocker
from tests.gateway.forwarding_rig import (
    PROVEN,
    TICK_S,
    known,
    lines,
    prove,
)
from tests.gateway.ids_rig import BAD, BODY, REFUSED, ask, bodies, engine, with_ids
from tests.gateway.scripted import ANSWER, idle, posts, refusal, worker
from tests.proxy.raw import SSE_HEAD, WorkerConnection, chunk, event
from tests.proxy.raw import json_answer as answer
from tests.running import StartGateway

pytestmark = pytest.mark.usefixtures("never_blocks", "proofs_by_hand")
STREAM = SSE_HEAD + chunk(event(1)) + b"0\r\n\r\n"


@pytest.mark.parametrize("streams", [False, True])
async def test_a_worker_that_refuses_the_ids(
    start_gateway: StartGateway, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch, streams: bool, renderer: Renderer,
) -> None:  # fmt: skip
    """It gets the request as the client wrote it, its answer is the client's.

    From then on it gets no ids: one warning names it, and it is counted.
    """
    monkeypatch.setattr(housekeeping, "TICK_S", TICK_S)
    ok = STREAM if streams else ANSWER
    async with engine("tensorrt_llm", takes_ids=False, ok=ok) as strict:
        gateway = await start_gateway(strict.url)
        known(gateway, strict.url).profile = "trtllm"
        prove(gateway)
        caplog.set_level(logging.INFO)
        for _ in range(3):
            status, text = await ask(gateway)
            assert status == 200
            assert text == (event(1) if streams else ok.split(b"\r\n\r\n")[1])
        assert bodies(strict) == [with_ids(renderer, "trtllm"), BODY, BODY, BODY]
        proof = known(gateway, strict.url).proof
        assert isinstance(proof, Blocker)
        assert proof.reason == "ids_rejected"
        (line,) = await lines(caplog)
        assert f"{strict.url} ids_rejected" in line
        counted = {"outcome": "resent", "reason": "ids_rejected"}
        assert await gateway.metric("forwarded_total", **counted) == 1
        assert await gateway.metric("retries_total") == 0
        await idle(gateway)


@pytest.mark.parametrize(
    ("status", "blocked"),
    [
        (b"400 Bad Request", True),
        (b"413 Content Too Large", False),
        (b"422 Unprocessable Content", True),
    ],
)
async def test_refusals(
    start_gateway: StartGateway, status: bytes, blocked: bool
) -> None:
    """Each is asked again as written; a body that ids made too long tells of itself."""
    refused = answer(b'{"error": "no"}', status=status)
    async with worker(refused, ANSWER) as only:
        gateway = await start_gateway(only.url)
        prove(gateway)
        assert (await ask(gateway))[0] == 200
        assert bodies(only)[1] == BODY
        proof = known(gateway, only.url).proof
        if blocked:
            detail = f"{int(status[:3])} with token ids, 200 without"
            assert proof == Blocker(reason="ids_rejected", detail=detail)
        else:
            assert proof == PROVEN
        reason = "ids_rejected" if blocked else "too_large"
        counted = {"outcome": "resent", "reason": reason}
        assert await gateway.metric("forwarded_total", **counted) == 1
        await idle(gateway)


async def test_a_bad_request_is_not_the_ids_fault(start_gateway: StartGateway) -> None:
    """The answer to the client's own words is the client's, and nobody is blocked."""
    first = answer(b'{"error": "ids"}', status=BAD)
    second = answer(b'{"error": "max_tokens"}', status=BAD)
    async with worker(first, second) as only:
        gateway = await start_gateway(only.url)
        prove(gateway)
        assert await ask(gateway) == (400, b'{"error": "max_tokens"}')
        assert bodies(only)[1] == BODY
        assert known(gateway, only.url).proof == PROVEN
        counted = {"outcome": "resent", "reason": "refused"}
        assert await gateway.metric("forwarded_total", **counted) == 1
        await idle(gateway)


async def test_a_worker_that_then_has_no_time(start_gateway: StartGateway) -> None:
    """Whether it was the ids is not known; another worker answers, once."""
    busy = refusal(b"503 Service Unavailable", b"Retry-After: 9")
    async with worker(REFUSED, busy) as first, worker(ANSWER) as second:
        gateway = await start_gateway(first.url, second.url, policy="round_robin")
        prove(gateway)
        assert (await ask(gateway))[0] == 200
        assert (posts(first), posts(second)) == (2, 1)
        assert known(gateway, first.url).proof == PROVEN
        await idle(gateway)


async def test_a_worker_that_then_breaks(start_gateway: StartGateway) -> None:
    """What was sent and broke is never sent to another."""
    last = answer(b"{}", b"Connection: close", status=BAD)
    async with (
        worker(last, WorkerConnection.reset) as first,
        worker(ANSWER) as second,
    ):
        gateway = await start_gateway(first.url, second.url, policy="round_robin")
        prove(gateway)
        assert (await ask(gateway))[0] == 502
        assert (posts(first), posts(second)) == (2, 0)
        await idle(gateway)


async def test_other_errors_are_not_asked_again(start_gateway: StartGateway) -> None:
    """They are no refusal of ids: the client's, as they are."""
    for status in (b"401 No", b"404 Not Found", b"500 Oh", b"501 Not Implemented"):
        async with worker(refusal(status)) as only:
            gateway = await start_gateway(only.url)
            prove(gateway)
            assert (await ask(gateway))[0] == int(status[:3])
            assert posts(only) == 1
