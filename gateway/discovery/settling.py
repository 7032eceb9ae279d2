"""Has a fleet follow what a source found: at once, and when one is to be let go."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

from gateway.discovery.roster import LINGER_S, Present, Roster
from gateway.workers.fleet import Fleet
from gateway.workers.namings import Named
from router.worker import WorkerSpec


class Settling:
    """One source's part in a fleet."""

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        *,
        linger_s: float = LINGER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`linger_s`: how long one that vanished is drained before it is taken out."""
        self.name = name
        self.begun = asyncio.Event()
        """Set once what the source told first is in the fleet."""
        self._fleet = fleet
        self._clock = clock
        self.roster = Roster(linger_s)
        self._changed = asyncio.Event()
        self._others: set[str] = set()
        """URLs at which another process is now: that worker is made anew."""

    def update(self, present: Mapping[str, Present]) -> None:
        """These are there now, by URL."""
        self._others |= self.roster.update(present, self._clock())
        self._changed.set()

    async def run(self) -> None:
        """Have the fleet follow, until cancelled."""
        while True:
            due = self.roster.due_s(self._clock())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(due):
                    await self._changed.wait()
            self._changed.clear()
            wanted = self.roster.wanted(self._clock())
            if self._others:
                others, self._others = self._others, set()
                await self._settle({u: d for u, d in wanted.items() if u not in others})
            await self._settle(wanted)
            self.begun.set()

    async def _settle(self, wanted: Mapping[str, bool]) -> None:
        named = {
            url: Named(spec=WorkerSpec(url=url), draining=draining)
            for url, draining in wanted.items()
        }
        await self._fleet.settle(self.name, named)
