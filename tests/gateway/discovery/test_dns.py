"""A name's addresses are workers; answers that fail or lack some take nobody away."""

import asyncio
import random
import socket
from collections.abc import Callable

import pytest

from gateway.background import running
from gateway.discovery import dns
from gateway.discovery.answers import EMPTY, MISSED, Answers
from gateway.discovery.dns import DnsSource, resolve
from gateway.discovery.settling import Settling
from gateway.settings.discovery_config import DnsName
from tests.gateway.discovery.found import Found
from tests.running import until

AGAIN = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
NAME = DnsName("vllm.llm.svc", 8000)


class Resolver:
    """Answers by hand."""

    def __init__(self) -> None:
        self.answer: list[str] | OSError | asyncio.Event = []
        self.asked = 0

    async def __call__(self, host: str) -> list[str]:
        assert host == NAME.host
        self.asked += 1
        if isinstance(self.answer, OSError):
            raise self.answer
        if isinstance(self.answer, asyncio.Event):
            await self.answer.wait()
            return ["10.0.0.9"]
        return self.answer

    async def times(self, count: int) -> None:
        """Until it was asked so often since now, and the answers were used."""
        wanted = self.asked + count + 1
        await until(lambda: self.asked >= wanted)


@pytest.fixture
def resolver() -> Resolver:
    """One without addresses."""
    return Resolver()


@pytest.fixture
def source(found: Found, resolver: Resolver) -> DnsSource:
    """Follows the name."""
    settling = Settling(f"dns/{NAME}", found.fleet, linger_s=0.02)
    return DnsSource(NAME, settling, rng=random.Random(1), resolve=resolver)


async def test_addresses_come_and_go(
    found: Found, resolver: Resolver, source: DnsSource
) -> None:
    """One that several answers lack is gone; IPv6 has its brackets."""
    resolver.answer = ["10.0.0.1", "10.0.0.2"]
    async with running(source.watch()):
        await until(lambda: found.ready() == ["10.0.0.1:8000", "10.0.0.2:8000"])
        resolver.answer = ["10.0.0.2", "10.0.0.3"]
        await until(lambda: found.ready() == ["10.0.0.2:8000", "10.0.0.3:8000"])
        resolver.answer = ["fd00::1"]
        await until(lambda: found.ready() == ["[fd00::1]:8000"])
    assert source.standing.failures.total() == 0


async def test_failures_take_nobody_away(
    found: Found, resolver: Resolver, source: DnsSource
) -> None:
    """However long; and the first answers that are empty do not either."""
    resolver.answer = ["10.0.0.1"]
    async with running(source.watch()):
        await until(lambda: found.ready() == ["10.0.0.1:8000"])
        worker = found.worker("10.0.0.1:8000")
        resolver.answer = AGAIN
        await until(lambda: source.standing.failures["failed"] >= 4)
        resolver.answer = []
        await resolver.times(3)
        assert found.ready() == ["10.0.0.1:8000"]
        resolver.answer = ["10.0.0.1"]
        await resolver.times(1)
        assert found.worker("10.0.0.1:8000") is worker
        resolver.answer = []
        await until(lambda: found.states == {})
    assert source.standing.failures["empty"] > EMPTY


async def test_an_answer_that_is_late(
    found: Found,
    resolver: Resolver,
    source: DnsSource,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Is waited for, and not asked for a second time meanwhile."""
    monkeypatch.setattr(dns, "ANSWER_S", 0.02)
    late = resolver.answer = asyncio.Event()
    async with running(source.watch()):
        await until(lambda: source.standing.failures["timeout"] >= 3)
        assert resolver.asked == 1
        assert found.states == {}
        late.set()
        await until(lambda: found.ready() == ["10.0.0.9:8000"])


async def test_the_systems_resolver() -> None:
    """Its answers, and a name that has none."""
    assert "127.0.0.1" in await resolve("localhost")
    assert await resolve("127.0.0.3") == ["127.0.0.3"]


@pytest.mark.parametrize("code", [socket.EAI_NONAME, socket.EAI_NODATA])
async def test_no_such_name(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is an answer without addresses, and no failure."""

    async def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(code, "no")

    class Loop:
        getaddrinfo = staticmethod(fail)

    monkeypatch.setattr(asyncio, "get_running_loop", Loop)
    assert await resolve("nobody.invalid") == []


def test_a_part_of_the_addresses_each_time() -> None:
    """As of servers that answer with eight of many: all count, as long as they come."""
    answers = Answers()
    every = [f"10.0.0.{n}" for n in range(6)]
    for turn in range(12):
        answers.take(every[turn % 3 * 2 :][:2])
    assert sorted(answers.addresses) == every
    for _ in range(MISSED):
        answers.take(every[:2])
    assert sorted(answers.addresses) == every[:2]


def test_a_host_of_both_families_is_one_worker() -> None:
    """That of IPv4; those of IPv6 count where there are no others."""
    answers = Answers()
    answers.take(["::1", "127.0.0.1", "127.0.0.1"])
    assert answers.addresses == ["127.0.0.1"]


def test_a_service_that_is_scaled_to_nothing() -> None:
    """After many empty answers all are gone, and come back at once."""
    answers = Answers()
    answers.take(["10.0.0.1"])
    for _ in range(EMPTY - 1):
        answers.take([])
    assert answers.addresses == ["10.0.0.1"]
    answers.take([])
    assert answers.addresses == []
    answers.take(["10.0.0.2"])
    assert answers.addresses == ["10.0.0.2"]


async def test_several_names_leave_no_task_behind(
    found: Found, resolver: Resolver, tasks: Callable[[], int]
) -> None:
    """When they are no longer followed, nothing is asked."""
    before = tasks()
    for _ in range(5):
        settling = Settling("dns/x", found.fleet)
        source = DnsSource(NAME, settling, rng=random.Random(1), resolve=resolver)
        async with running(source.watch()):
            await resolver.times(1)
    assert tasks() == before
