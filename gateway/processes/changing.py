"""`/gateway/workers` of several processes: a change goes to each, then it is answered.

Processes that are started anew get it then (`changes.py`). Which workers there are is
the same in all of them, so they agree on what they answer, but for a moment.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence

import aiohttp
import msgspec
from aiohttp import web

from gateway import answers
from gateway.errors import Overloaded
from gateway.guard import Guard, Handler
from gateway.processes.changes import Change, Changes
from gateway.processes.process import Process, Reply
from gateway.request import body as bodies
from gateway.settings.values import worker_url
from gateway.workers.worker_routes import MOST_BYTES, PATH

log = logging.getLogger(__name__)

LOST = (aiohttp.ClientError, TimeoutError, OSError)
METHODS = ("POST", "PATCH", "DELETE")


class Changing:
    """The handlers of one path."""

    def __init__(
        self,
        processes: Sequence[Process],
        changes: Changes,
        *,
        check: Callable[[web.Request], None],
        get: Handler,
    ) -> None:
        """`check` raises where a request may not pass; `get` shows all workers."""
        self._processes = processes
        self._changes = changes
        self._check = check
        self._get = get

    def add_to(self, guard: Guard) -> None:
        """Add the routes."""
        handlers = {"GET": self._show, **dict.fromkeys(METHODS, self._change)}
        guard.add_methods(PATH, handlers, "workers")

    async def _show(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        self._check(request)
        return await self._get(request, identity)

    async def _change(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        self._check(request)
        body = await bodies.read(request, MOST_BYTES)
        query = request.rel_url.raw_query_string
        change = Change(
            method=request.method,
            url=_url(request.query.get("url"), body),
            target=PATH + (f"?{query}" if query else ""),
            body=body,
        )
        async with self._changes.lock:
            told = await self._tell_all(change)
            if not told:
                raise Overloaded("no process is ready")
            done = [(number, reply) for number, reply in told if reply.status < 300]
            if not done:
                reply = told[0][1]
                return answers.own(reply.body, identity, status=reply.status)
            self._changes.note(change)
        pages = [msgspec.json.decode(reply.body) for _, reply in done]
        page = {
            **pages[0],
            "inflight_requests": sum(one["inflight_requests"] for one in pages),
            "processes": [number for number, _ in told],
        }
        return answers.json(page, identity, status=done[0][1].status)

    async def _tell_all(self, change: Change) -> list[tuple[int, Reply]]:
        """What each process answered; one that ends just then is told again later."""
        asked = [process for process in self._processes if process.answers]
        replies = await asyncio.gather(
            *(p.ask(change.method, change.target, change.body) for p in asked),
            return_exceptions=True,
        )
        told = []
        for process, reply in zip(asked, replies, strict=True):
            if isinstance(reply, Reply):
                told.append((process.number, reply))
            elif isinstance(reply, LOST):
                # One that does not answer is of no use; the next one knows the change.
                log.error("process %d does not take a change: %r", process.number,
                          reply)  # fmt: skip
                process.signal(signal.SIGKILL)
            else:
                raise reply
        return told


def _url(named: str | None, body: bytes) -> str:
    """The worker that is meant, as far as that can be told; else the text."""
    text: object = named
    if text is None:
        try:
            told = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return ""  # which every process refuses
        text = told.get("url") if isinstance(told, dict) else told
    try:
        return worker_url(str(text))
    except ValueError:
        return ""
