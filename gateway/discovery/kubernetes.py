"""Workers that are the endpoints of a Kubernetes service.

Listed once, and then watched: a watch that ends goes on from the last version that was
seen, one whose version is too old begins with a list again. While the API server cannot
be asked, the workers stay as they are.
"""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import aclosing

from gateway.discovery.api_server import DROPPED, REFUSED, UNREACHABLE, ApiServer
from gateway.discovery.credentials import CREDENTIALS
from gateway.discovery.settling import Settling
from gateway.discovery.slices import MALFORMED, STATUS, Expired, Slices
from gateway.discovery.standing import SourceFailed, SourceStanding
from gateway.settings.discovery_config import KubernetesService

REASONS = (UNREACHABLE, REFUSED, DROPPED, STATUS, MALFORMED, CREDENTIALS)
AGAIN_S = 0.5
"""Until a list after a version that was too old, and until a watch that was short."""


class KubernetesSource:
    """Follows one service."""

    def __init__(
        self,
        service: KubernetesService,
        api: ApiServer,
        settling: Settling,
        *,
        rng: random.Random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = settling.name
        self.standing = SourceStanding(self.name, REASONS, clock=clock, rng=rng)
        self.settling = settling
        self._api = api
        self._slices = Slices(service.port)

    async def watch(self) -> None:
        """Keep the fleet in line with the service, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.settling.run())
            tasks.create_task(self._ask())

    async def _ask(self) -> None:
        listed = False
        while True:
            try:
                if not listed:
                    await self._list()
                    listed = True
                await self._follow()
            except Expired:
                listed = False
                await asyncio.sleep(AGAIN_S)
            except SourceFailed as error:
                await asyncio.sleep(self.standing.failed(error))

    async def _list(self) -> None:
        items, version = await self._api.list()
        self.standing.succeeded()
        odd = await asyncio.to_thread(self._slices.replace, items, version)
        self._note(odd)

    async def _follow(self) -> None:
        """One watch, to its end."""
        begun = time.monotonic()
        async with aclosing(self._api.watch(self._slices.version)) as events:
            async for event in events:
                odd = await asyncio.to_thread(self._slices.apply, event)
                self.standing.succeeded()
                self._note(odd)
        self.standing.succeeded()
        if time.monotonic() - begun < AGAIN_S:
            await asyncio.sleep(AGAIN_S)

    def _note(self, odd: list[str]) -> None:
        for text in odd:
            self.standing.odd(MALFORMED, text)
        self.settling.update(self._slices.present)
