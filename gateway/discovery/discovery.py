"""Where workers come from but by hand: options, the workers file, names, services."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiohttp
from prometheus_client.metrics_core import Metric

from gateway.background import Keeper, Work, running
from gateway.discovery.api_server import ApiServer, in_cluster
from gateway.discovery.credentials import ServiceAccount
from gateway.discovery.dns import DnsSource
from gateway.discovery.kubernetes import KubernetesSource
from gateway.discovery.settling import Settling
from gateway.metrics.source_metrics import source_metrics
from gateway.settings.config import Config, worker_specs
from gateway.workers.fleet import Fleet
from gateway.workers.namings import COMMAND_LINE, FILE, Namings
from gateway.workers.workers_file import WorkersFile, filed_workers, named_by

Source = DnsSource | KubernetesSource


def declared(config: Config) -> Namings:
    """The workers that are named at the start; ConfigError. What a file says counts."""
    filed = filed_workers(config.workers_file)
    return Namings(
        {FILE: named_by(filed), COMMAND_LINE: named_by(worker_specs(config))}
    )


class Discovery:
    """The sources of a fleet's workers that are followed while it serves."""

    def __init__(self, config: Config, fleet: Fleet) -> None:
        """ConfigError where there is no API server to ask."""
        self._config = config
        self._fleet = fleet
        self.api_url = ""
        if config.workers_k8s:
            self.api_url = config.k8s_api or in_cluster()
        self.sources: list[Source] = []

    def metrics(self) -> Iterator[Metric]:
        """Workers by source, and how it goes with those that are followed."""
        standings = [source.standing for source in self.sources]
        return source_metrics(self._fleet.namings.counts(), standings)

    @asynccontextmanager
    async def found(
        self, session: aiohttp.ClientSession, keeper: Keeper, within_s: float
    ) -> AsyncIterator[None]:
        """Follow them, from their first answers on, which take so long at most."""
        self.sources = [*self._names(), *self._services(session)]
        async with running(self._follow(keeper)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    for source in self.sources:
                        await source.settling.begun.wait()
            yield

    async def _follow(self, keeper: Keeper) -> None:
        work: dict[str, Work] = {
            f"discovery by {source.name}": source.watch for source in self.sources
        }
        path = self._config.workers_file
        if path is not None:
            work["workers file"] = WorkersFile(path, self._fleet).watch
        async with asyncio.TaskGroup() as tasks:
            for name, watch in work.items():
                tasks.create_task(keeper.keep(name, watch))

    def _names(self) -> list[DnsSource]:
        return [
            DnsSource(name, Settling(f"dns/{name}", self._fleet), rng=random.Random())
            for name in dict.fromkeys(self._config.workers_dns)
        ]

    def _services(self, session: aiohttp.ClientSession) -> list[KubernetesSource]:
        account = ServiceAccount(self._config.k8s_credentials)
        return [
            KubernetesSource(
                service,
                ApiServer(self.api_url, account, service, session, rng=random.Random()),
                Settling(f"k8s/{service}", self._fleet),
                rng=random.Random(),
            )
            for service in dict.fromkeys(self._config.workers_k8s)
        ]
