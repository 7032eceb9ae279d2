"""Workers that are the addresses of a name, looked up every few seconds.

By the resolver of the system, so that its files and search domains count.
"""

import asyncio
import random
import socket
import time
from collections.abc import Awaitable, Callable

from gateway.discovery.answers import Answers
from gateway.discovery.roster import Present
from gateway.discovery.settling import Settling
from gateway.discovery.standing import SourceFailed, SourceStanding
from gateway.settings.discovery_config import DnsName

LOOK_S = 5.0
ANSWER_S = 5.0
FAILED, TIMEOUT, EMPTY = "failed", "timeout", "empty"
REASONS = (FAILED, TIMEOUT, EMPTY)
NO_ADDRESS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))

Resolve = Callable[[str], Awaitable[list[str]]]


async def resolve(host: str) -> list[str]:
    """The addresses of a host; empty where it has none. Raises OSError."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in NO_ADDRESS:
            return []
        raise
    # An address with a zone is of this machine's link only, and no part of a URL.
    return [str(address[0]) for *_, address in found if "%" not in str(address[0])]


class DnsSource:
    """Follows one name."""

    def __init__(
        self,
        name: DnsName,
        settling: Settling,
        *,
        rng: random.Random,
        clock: Callable[[], float] = time.time,
        resolve: Resolve = resolve,
    ) -> None:
        self.name = settling.name
        self.standing = SourceStanding(self.name, REASONS, clock=clock, rng=rng)
        self.settling = settling
        self._dns_name = name
        self._rng = rng
        self._resolve = resolve
        self._answers = Answers()
        self._asked: asyncio.Future[list[str]] | None = None

    async def watch(self) -> None:
        """Keep the fleet in line with the name, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.settling.run())
            tasks.create_task(self._ask())

    async def _ask(self) -> None:
        while True:
            wait = LOOK_S * self._rng.uniform(0.8, 1.2)
            try:
                self._take(await self._look())
            except SourceFailed as error:
                wait = min(wait, self.standing.failed(error))
            await asyncio.sleep(wait)

    def _take(self, addresses: list[str]) -> None:
        self._answers.take(addresses)
        port = self._dns_name.port
        hosts = (f"[{a}]" if ":" in a else a for a in self._answers.addresses)
        self.settling.update({f"http://{host}:{port}": Present() for host in hosts})
        if not addresses:
            raise SourceFailed(EMPTY, f"{self._dns_name.host} has no address")
        self.standing.succeeded()

    async def _look(self) -> list[str]:
        """One answer; SourceFailed. One that is late is still waited for next time."""
        if self._asked is None:
            self._asked = asyncio.ensure_future(self._resolve(self._dns_name.host))
        done, _ = await asyncio.wait({self._asked}, timeout=ANSWER_S)
        if not done:
            text = f"{self._dns_name.host} is not resolved in {ANSWER_S:g} s"
            raise SourceFailed(TIMEOUT, text)
        asked, self._asked = self._asked, None
        try:
            return asked.result()
        except OSError as error:
            text = f"{self._dns_name.host} is not resolved: {error.strerror or error}"
            raise SourceFailed(FAILED, text) from None
