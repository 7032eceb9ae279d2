"""Processes of a demo: simulated workers and gateways, started, awaited, stopped.

Each is a real process of its own, started with the command a user would type.
"""

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

START_S = 60.0
STOP_S = 10.0


class StartFailed(Exception):
    """A process ended, or said nothing, before it was ready; with its last words."""


class Fleet:
    """Processes that live as long as this one wants, and no longer."""

    def __init__(self) -> None:
        self._processes: list[asyncio.subprocess.Process] = []
        self._logs = Path(tempfile.mkdtemp(prefix="kv-gateway-demo-"))

    async def start(self, name: str, words: Sequence[str]) -> str:
        """Run `kv-gateway WORDS`; its URL once it prints `ready URL`. StartFailed."""
        log = self._logs / f"{name}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "gateway",
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=output,
                # Ctrl-C is for the demo alone; it stops the others in its order.
                start_new_session=True,
            )
        self._processes.append(process)
        try:
            async with asyncio.timeout(START_S):
                return await _ready_url(process)
        except (TimeoutError, EOFError):
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise StartFailed(f"{name}: {''.join(last) or 'did not start'}") from None

    async def start_all(self, starts: Mapping[str, Sequence[str]]) -> list[str]:
        """Run several side by side; their URLs in order. The first StartFailed."""
        tasks = [self.start(name, words) for name, words in starts.items()]
        # All are waited for: one that starts late must not outlive `stop`.
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [url for url in results if isinstance(url, str)]

    async def stop(self) -> None:
        """End every process: asked first, then made to."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for process in self._processes:
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        self._processes.clear()
        shutil.rmtree(self._logs, ignore_errors=True)


async def _ready_url(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None  # noqa: S101 - it was asked for
    while line := await process.stdout.readline():
        word, _, url = line.decode(errors="replace").strip().partition(" ")
        if word == "ready":
            return url
    raise EOFError
