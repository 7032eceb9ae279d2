"""Servers that give one answer at every path."""

from collections.abc import Awaitable, Callable

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Scripted = Callable[[Answer], Awaitable[str]]
"""Serve an answer; the URL."""


class Answering:
    """Such servers, until they are stopped."""

    def __init__(self) -> None:
        self._runners: list[web.AppRunner] = []

    async def start(self, answer: Answer) -> str:
        """Serve an answer at every path; the URL."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Close them all."""
        for runner in self._runners:
            await runner.cleanup()
