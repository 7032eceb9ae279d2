"""Workers that want a key, are not ready, or fail a route: what the doctor says."""

import asyncio
import json
from collections.abc import Mapping

import pytest

from gateway.doctor.checkup import DoctorConfig, check
from gateway.doctor.diagnosis import Checkup
from gateway.doctor.hearing import FIRST
from gateway.doctor.remedies import REFUSES_KEY, ROUTE, WANTS_KEY
from gateway.doctor.trial import UNSENT
from tests.gateway.doctor.hurried import hurried
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer

Pages = Mapping[str, tuple[str, bytes]]
HANGS = ("hangs", b"")
CHAT = json.dumps(
    {
        "usage": {
            "prompt_tokens": 99,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 64},
        }
    }
).encode()


def listing(owner: str) -> bytes:
    """A /v1/models of this engine."""
    return json.dumps({"data": [{"id": "m", "owned_by": owner}]}).encode()


VLLM: Pages = {
    "/v1/models": ("200 OK", listing("vllm")),
    "/health": ("200 OK", b"{}"),
    "/version": ("200 OK", b'{"version": "0.20.0"}'),
    "/v1/chat/completions": ("200 OK", CHAT),
}
TRTLLM: Pages = {
    "/v1/models": ("200 OK", listing("tensorrt_llm")),
    "/health": ("200 OK", b"{}"),
    "/server_info": ("200 OK", b'{"tokens_per_block": 32}'),
    "/v1/chat/completions": ("200 OK", CHAT),
    "/kv_cache_events": ("200 OK", b"[]"),
}


async def found(pages: Pages, **options: object) -> Checkup:
    """What the doctor finds of a worker that has these pages."""

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            path = request.split(b" ")[1].decode()
            status, body = pages.get(path, ("404 Not Found", b"{}"))
            if status == HANGS[0]:
                await asyncio.sleep(30)
            await connection.send(json_answer(body, status=status.encode()))

    async with RawWorker(script) as worker:
        given = {"wait": 3.0, "probe": True, **options}
        asked = DoctorConfig(workers=((worker.url,),), **given)  # type: ignore[arg-type]
        with hurried():
            (checkup,) = await check(asked)
    return checkup


def remedies(checkup: Checkup) -> dict[str, str]:
    """By problem, without what is said of the rendering."""
    return {
        finding.problem: finding.remedy
        for finding in checkup.findings
        if "rendering" not in finding.problem
    }


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
@pytest.mark.parametrize(("key", "remedy"), [(None, WANTS_KEY), ("wrong", REFUSES_KEY)])
async def test_models_that_want_a_key(
    status: str, key: str | None, remedy: str
) -> None:
    """The flag is named, or that it does not hold; the address is right."""
    pages = {**VLLM, "/v1/models": (status, b"{}")}
    checkup = await found(pages, worker_api_key=key, probe=False)
    problem = f"/v1/models answers {status[:3]}"
    assert remedies(checkup) == {problem: remedy}
    assert checkup.state == "no answer"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("503 Service Unavailable", "wait until it is ready"),
        ("500 Internal Server Error", "its log says why"),
        ("404 Not Found", "what answers there does not serve models"),
    ],
)
async def test_models_that_are_not_listed(status: str, words: str) -> None:
    """Something answers there: it is up."""
    checkup = await found({**VLLM, "/v1/models": (status, b"{}")}, probe=False)
    (remedy,) = remedies(checkup).values()
    assert words in remedy
    assert "is it up?" not in remedy


async def test_numbers_that_want_a_key() -> None:
    """No flag of the worker would make it tell its load."""
    checkup = await found({**VLLM, "/metrics": ("401 Unauthorized", b"")})
    told = remedies(checkup)
    (shut,) = [problem for problem in told if "/metrics answers 401" in problem]
    assert told[shut] == WANTS_KEY
    assert "--disable-log-stats" not in str(told)


async def test_a_chat_that_wants_a_key() -> None:
    """That no events came of it is no wonder."""
    shut = ("401 Unauthorized", b"{}")
    checkup = await found({**TRTLLM, "/v1/chat/completions": shut}, worker_api_key="k")
    told = remedies(checkup)
    assert told["a small chat is answered 401"] == REFUSES_KEY
    assert not any("no events though" in problem for problem in told)


async def test_no_model_to_send_a_chat_to() -> None:
    """With --probe that is said, and not that --probe would tell."""
    pages = {**TRTLLM, "/v1/models": ("200 OK", b'{"data": []}')}
    told = remedies(await found(pages))
    assert "start it with a model" in told[UNSENT]
    assert not any("--probe" in remedy for remedy in told.values())


async def test_a_route_that_hangs() -> None:
    """The rest of the table is there, and the route is named."""
    checkup = await found({**TRTLLM, "/server_info": HANGS}, probe=False)
    assert (checkup.state, checkup.engine) == ("ready", "trtllm")
    told = remedies(checkup)
    assert told["/server_info: no answer in time"] == ROUTE
    assert not any("event_buffer_max_size" in remedy for remedy in told.values())


@pytest.mark.parametrize(
    ("answer", "problem", "words"),
    [
        (("404 Not Found", b""), "answers 404", "a release of trtllm-serve that has"),
        (("500 Internal Server Error", b""), "answers 500", "its log says why"),
        (("401 Unauthorized", b""), "answers 401", WANTS_KEY),
        (HANGS, "no answer in time", "it is up, but hangs at that route"),
    ],
)
async def test_a_drain_that_fails(
    answer: tuple[str, bytes], problem: str, words: str
) -> None:
    """It is up: what ails the route is named."""
    told = remedies(await found({**TRTLLM, "/kv_cache_events": answer}))
    expected = f"degraded: POST /kv_cache_events: {problem}"
    assert words in told[expected]
    assert FIRST.problem not in told
