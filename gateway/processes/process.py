"""One process of several, as its parent sees it: started, let in, asked, ended."""

import asyncio
import contextlib
import pickle
import signal
import sys
import time
from typing import Any

import aiohttp
import msgspec

from gateway.errors import ConfigError
from gateway.processes.child import READY, REFUSED, UP
from gateway.processes.task import Task

START_S = 300.0
ASK_S = 10.0
READ_S = 5.0
"""Pages take less: who scrapes metrics waits ten seconds for all of them."""
BASE = "http://process"
"""Names no host: it is asked by a socket of this machine's own."""


class EndedEarly(Exception):
    """A process ended before it was ready; the text says how."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a process answered."""

    status: int
    body: bytes


class Process:
    """The present one of the processes that have this number, one after the other."""

    def __init__(self, task: Task) -> None:
        self.number = task.number
        self.state = "starting"
        self.reason = ""
        self.starts = 0
        self.since = time.time()
        self._task = task
        self._child: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession | None = None

    @property
    def pid(self) -> int | None:
        """Of the process that runs, if one does."""
        child = self._child
        return child.pid if child is not None and child.returncode is None else None

    @property
    def restarts(self) -> int:
        """How often another one was started."""
        return max(0, self.starts - 1)

    @property
    def answers(self) -> bool:
        """Whether it is of use to ask it."""
        return self.state in ("ready", "leaving")

    def turn(self, state: str, reason: str = "") -> None:
        """It is in another state now."""
        self.state, self.reason, self.since = state, reason, time.time()

    async def start(self) -> None:
        """Start it, and wait until it is up. Raises EndedEarly, ConfigError."""
        self.turn("starting")
        self.starts += 1
        # Ctrl-C is for the parent alone, which tells its processes.
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway.processes.child",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        await self._tell(pickle.dumps(self._task))
        await self._says(UP)

    async def admit(self) -> str:
        """Have it let clients in; the URL it is reached by. Raises EndedEarly."""
        await self._tell(b"\n")
        url = await self._says(READY)
        self.turn("ready")
        return url

    async def ended(self) -> str:
        """Wait until it has ended; how."""
        child = self._child
        if child is None:
            return "it was not started"
        status = await child.wait()
        if -status in {known.value for known in signal.Signals}:
            return signal.Signals(-status).name
        return f"status {status}"

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(number)

    async def ask(self, method: str, target: str, body: bytes = b"") -> Reply:
        """Its answer on one of its own routes; raises what aiohttp raises."""
        seconds = READ_S if method == "GET" else ASK_S
        async with self._client().request(
            method,
            BASE + target,
            data=body or None,
            timeout=aiohttp.ClientTimeout(total=seconds),
        ) as response:
            return Reply(status=response.status, body=await response.read())

    async def close(self) -> None:
        """Ask it no more."""
        if self._session is not None:
            await self._session.close()

    def page(self) -> dict[str, Any]:
        """It as a JSON-ready value."""
        return {
            "process": self.number,
            "pid": self.pid,
            "state": self.state,
            "reason": self.reason,
            "state_s": round(time.time() - self.since, 3),
            "restarts": self.restarts,
        }

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(path=self._task.path, limit=0),
                headers={"Authorization": f"Bearer {self._task.config.admin_key}"},
            )
        return self._session

    async def _tell(self, data: bytes) -> None:
        assert self._child is not None  # noqa: S101 - it was started
        assert self._child.stdin is not None  # noqa: S101 - it was asked for
        self._child.stdin.write(data)
        with contextlib.suppress(ConnectionError):  # it ended: `_says` tells
            await self._child.stdin.drain()

    async def _says(self, word: str) -> str:
        """What follows this word on a line of its own; other lines are a library's."""
        assert self._child is not None  # noqa: S101 - it was started
        assert self._child.stdout is not None  # noqa: S101 - it was asked for
        try:
            async with asyncio.timeout(START_S):
                while line := await self._child.stdout.readline():
                    said, _, rest = line.decode(errors="replace").strip().partition(" ")
                    if said == REFUSED:
                        raise ConfigError(rest)
                    if said == word:
                        return rest
        except TimeoutError:
            self.signal(signal.SIGKILL)
        raise EndedEarly(await self.ended())
