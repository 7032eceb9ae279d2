"""Requests per minute, requests at a time, and what clients are told of them."""

import random
from pathlib import Path

import pytest

from gateway.access.errors import RateLimited
from gateway.access.limits import Limits, duration
from tests.gateway.access.test_clients import FINE, KEY, keys_file
from tests.proxy.conftest import serve as gateway_for
from tests.proxy.raw import RawClient, RawWorker, answering


def limited(per_minute: int | None = None, inflight: int | None = None) -> Limits:
    """Limits like these."""
    limits = Limits()
    limits.requests_per_minute, limits.max_inflight = per_minute, inflight
    return limits


def test_without_limits_nothing_is_refused_or_told() -> None:
    """Requests are counted all the same, for a limit that may come."""
    limits = limited()
    for _ in range(1000):
        limits.take(0.0)
    assert limits.inflight == 1000
    assert limits.told(0.0) == ()


def test_a_minutes_worth_at_once_then_one_by_one() -> None:
    """60 a minute: 60 at once, then one each second."""
    limits = limited(60)
    for _ in range(60):
        limits.take(100.0)
    with pytest.raises(RateLimited) as refused:
        limits.take(100.0)
    assert refused.value.reason == "rate"
    headers = dict(refused.value.headers)
    assert headers["Retry-After"] == "1"
    assert headers["retry-after-ms"] == "1000"
    with pytest.raises(RateLimited):
        limits.take(100.9)
    limits.take(101.0)
    with pytest.raises(RateLimited):
        limits.take(101.0)


def test_refused_requests_cost_nothing() -> None:
    """A client that knocks on and on is let in as soon as one that waits."""
    limits = limited(1)
    limits.take(0.0)
    for tenth in range(1, 600):
        with pytest.raises(RateLimited):
            limits.take(tenth / 10)
    limits.take(60.0)


def test_never_more_than_twice_the_limit_in_a_minute() -> None:
    """Whatever the pattern: a full bucket, and what refills meanwhile."""
    chance = random.Random(7)
    limits, now, taken, waits = limited(30), 0.0, list[float](), list[float]()
    for _ in range(3000):
        now += chance.expovariate(2.0)
        try:
            limits.take(now)
        except RateLimited as error:
            waits.append(float(dict(error.headers)["Retry-After"]))
        else:
            taken.append(now)
    for begin in taken:
        assert sum(begin <= at < begin + 60 for at in taken) <= 60
    assert set(waits) <= {1.0, 2.0}
    assert len(taken) == pytest.approx(now / 2, rel=0.05)


def test_requests_in_flight() -> None:
    """As many as may be, until one ends; the rate is not used up by refusals."""
    limits = limited(10, 2)
    limits.take(0.0)
    limits.take(0.0)
    with pytest.raises(RateLimited, match="2 requests in flight") as refused:
        limits.take(0.0)
    assert refused.value.reason == "inflight"
    assert dict(refused.value.headers)["x-ratelimit-remaining-requests"] == "8"
    limits.release()
    limits.take(0.0)


def test_what_is_told() -> None:
    """What is left, and when all is back, as OpenAI has it."""
    limits = limited(60)
    assert limits.told(50.0) == (
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "60"),
        ("x-ratelimit-reset-requests", "0ms"),
    )
    for _ in range(45):
        limits.take(50.0)
    told = dict(limits.told(50.5))
    assert told["x-ratelimit-remaining-requests"] == "15"
    assert told["x-ratelimit-reset-requests"] == "44.5s"


def test_a_limit_that_is_lowered() -> None:
    """It holds from the next request on; nothing is left below none."""
    limits = limited(600)
    for _ in range(600):
        limits.take(0.0)
    limits.requests_per_minute = 6
    assert dict(limits.told(0.0))["x-ratelimit-remaining-requests"] == "0"
    with pytest.raises(RateLimited):
        limits.take(0.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.12, "120ms"), (1, "1s"), (1.5, "1.5s"), (59.9, "59.9s"),
     (60, "1m0s"), (360, "6m0s"), (61.25, "1m1.25s")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    """In OpenAI's form, which SDKs parse."""
    assert duration(seconds) == text


async def test_what_counts_as_a_request(tmp_path: Path) -> None:
    """What is let in, if only to be told 404 or 413; not what key or limit refuse."""
    path = keys_file(tmp_path, requests_per_minute=4)
    asked = [
        (b"/v1/none/../x", KEY, b"404"),
        (b"/v1/chat/completions", "kvg-wrong", b"401"),
        (b"/v1/chat/completions", KEY, b"413"),
        (b"/v1/embeddings", KEY, b"200"),
        (b"/v1/embeddings", KEY, b"200"),
        (b"/v1/embeddings", KEY, b"429"),
    ]
    left = []
    async with (
        RawWorker(answering(FINE)) as worker,
        gateway_for(worker, api_keys_file=path, max_body=100) as gateway,
    ):
        for target, key, status in asked:
            async with RawClient(gateway.port) as client:
                bearer = b"Authorization: Bearer " + key.encode()
                body = b"x" * 200 if status == b"413" else b"{}"
                await client.post(body, bearer, path=target)
                head, _ = await client.answer()
            assert head[9:12] == status, target
            _, found, rest = head.partition(b"x-ratelimit-remaining-requests: ")
            left.append(rest[:1] if found else None)
    assert left == [None, None, None, b"1", b"0", b"0"]
