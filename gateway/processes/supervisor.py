"""The parent of several processes: starts them, starts anew what dies, ends them all.

It has no index and answers no client; operators talk to it (`operators_routes.py`).
"""

import asyncio
import contextlib
import itertools
import logging
import secrets
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from gateway.background import running
from gateway.errors import ConfigError
from gateway.listening import close, take_ports
from gateway.processes.changes import Changes
from gateway.processes.operators_routes import application
from gateway.processes.process import EndedEarly, Process
from gateway.processes.task import Task, share_of
from gateway.serve import OPERATORS_S, Leaving, open_sockets
from gateway.server import make_runner
from gateway.settings.config import Config
from gateway.streams import say
from gateway.tls import Tls

log = logging.getLogger(__name__)

RETRY_S = 1.0
RETRY_LIMIT_S = 30.0
LASTING_S = 60.0
"""One that lived so long is started anew at once, whatever was before."""
PATIENCE_S = 15.0
"""So much longer than it may take to drain a process may take to end."""


def supervise(config: Config) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; exit status 0. Raises ConfigError."""
    close(itertools.chain(*take_ports(config)))  # are they somebody else's?
    clients, operators = take_ports(config, shared=True)
    try:
        uvloop.run(Supervisor(config, clients, operators).run())
    finally:
        for sock in (*clients, *operators):
            sock.close()
    return 0


class Supervisor:
    """The processes of one gateway."""

    def __init__(
        self,
        config: Config,
        clients: Sequence[socket.socket],
        operators: Sequence[socket.socket],
    ) -> None:
        """`clients` are bound and never opened: they keep the port for processes."""
        self._config = config
        self._clients = clients
        self._operators = operators
        self._tls = Tls.of(config)
        self._changes = Changes()
        self._url = ""

    async def run(self) -> None:
        """Serve until a signal. Raises ConfigError."""
        leaving = Leaving()
        with tempfile.TemporaryDirectory(prefix="kv-gateway-processes-") as directory:
            processes = self._processes(Path(directory))
            async with self._ended_with_us(processes), self._answering(processes):
                if not await _done_before(leaving, self._start(processes)):
                    return
                async with asyncio.TaskGroup() as tasks:
                    kept = [tasks.create_task(self._keep(p)) for p in processes]
                    await leaving.once.wait()
                    for task in kept:
                        task.cancel()
                await self._drain(processes, leaving.first or signal.SIGTERM)

    def _processes(self, directory: Path) -> list[Process]:
        key = secrets.token_urlsafe()
        port = self._clients[0].getsockname()[1]
        return [
            Process(
                Task(
                    number=number,
                    config=share_of(self._config, key),
                    port=port,
                    path=str(directory / f"{number}.sock"),
                )
            )
            for number in range(self._config.processes)
        ]

    async def _start(self, processes: Sequence[Process]) -> None:
        """Start all of them, then let clients in."""
        try:
            await asyncio.gather(*(process.start() for process in processes))
            urls = await asyncio.gather(*(process.admit() for process in processes))
        except EndedEarly as error:
            raise ConfigError(f"a process ended at its start: {error}") from None
        log.info("operators are answered at %s", self._url)
        say(f"ready {urls[0]}")

    @contextlib.asynccontextmanager
    async def _ended_with_us(self, processes: Sequence[Process]) -> AsyncIterator[None]:
        """At the end none of them is left."""
        try:
            yield
        finally:
            for process in processes:
                process.signal(signal.SIGKILL)
                await process.ended()
                await process.close()

    @contextlib.asynccontextmanager
    async def _answering(self, processes: Sequence[Process]) -> AsyncIterator[None]:
        """Operators are answered."""
        app = application(self._config, processes, self._changes)
        runner, tls = make_runner(app, shutdown_s=OPERATORS_S), self._tls
        await runner.setup()
        try:
            self._url = await open_sockets(runner, self._operators, tls.operators)
            async with running(tls.watch()):
                yield
        finally:
            await runner.cleanup()

    async def _keep(self, process: Process) -> None:
        """Start it anew whenever it ended, later each time that it does not last."""
        loop = asyncio.get_running_loop()
        delay, begun = RETRY_S, loop.time()
        how = await process.ended()
        while True:
            if loop.time() - begun > LASTING_S:
                delay = RETRY_S
            process.turn("ended", how)
            log.error(
                "process %d ended (%s): another one is started in %g s",
                process.number, how, delay,
            )  # fmt: skip
            await asyncio.sleep(delay)
            delay, begun = min(2 * delay, RETRY_LIMIT_S), loop.time()
            try:
                await process.start()
                await self._bring_in(process)
            except (ConfigError, EndedEarly, OSError) as error:
                process.signal(signal.SIGKILL)
                await process.ended()
                how = str(error)
            else:
                log.info("process %d is there again", process.number)
                how = await process.ended()

    async def _bring_in(self, process: Process) -> None:
        """Have it know what the others know, then let clients in."""
        async with self._changes.lock:
            try:
                for change in self._changes.all:
                    await process.ask(change.method, change.target, change.body)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise EndedEarly(f"{type(error).__name__} {error}") from None
            await process.admit()

    async def _drain(
        self, processes: Sequence[Process], number: signal.Signals
    ) -> None:
        """Have all of them leave, and wait until they have."""
        for process in processes:
            process.turn("leaving")
            process.signal(number)
        within = self._config.drain_delay + self._config.drain_timeout + PATIENCE_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await asyncio.gather(*(process.ended() for process in processes))


async def _done_before(leaving: Leaving, work: Coroutine[Any, Any, None]) -> bool:
    """Do it to its end, unless a signal comes before; whether it was done."""
    task = asyncio.ensure_future(work)
    told = asyncio.ensure_future(leaving.once.wait())
    await asyncio.wait({task, told}, return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
        return False
    await task
    return True
