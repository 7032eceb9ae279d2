"""Finds the worker that made a stored response, whichever gateway had it made.

What this gateway saw being made it remembers. For anything else, such as what another
process or replica had made, or this one before it was started anew, the workers are
asked: only the one that made it has it.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any
from urllib.parse import quote_from_bytes
from weakref import WeakKeyDictionary

from gateway.access.credentials import OWN_CREDENTIALS, Credentials
from gateway.errors import GatewayError
from gateway.request.headers import RawHeaders, to_worker
from gateway.request.outgoing import INTERNAL, RANK_HEADER
from gateway.request.stored_responses import StoredResponses
from gateway.upstreams.origin import Origin
from gateway.upstreams.upstream import UpstreamRequest, Upstreams
from router.pool import WorkerPool
from router.worker import CHAT, Worker, WorkerState

ASK_S = 2.0
"""Seconds in which the workers have to say so."""
AT_ONCE = 64
"""Questions under way at one worker; others wait for it, for no longer than that."""
ID_PREFIX = b"resp"
"""Engines' ids begin so. Nobody is asked for any other."""

_DROPPED = INTERNAL | {
    RANK_HEADER.lower(),
    b"accept",
    b"content-type",
    b"content-encoding",
}
"""Headers of the client that are not about who asks."""


class ResponseMakers:
    """Response id -> URL of the worker that has it."""

    def __init__(
        self,
        stored: StoredResponses,
        pool: WorkerPool,
        upstreams: Upstreams,
        *,
        credentials: Credentials = OWN_CREDENTIALS,
    ) -> None:
        """What is found is noted in `stored`."""
        self._stored = stored
        self._pool = pool
        self._upstreams = upstreams
        self._credentials = credentials
        self._places = WeakKeyDictionary[Worker, asyncio.Semaphore]()
        """Of questions; one that hangs keeps those of its own worker only."""

    def known(self, response_id: bytes) -> str | None:
        """The worker that made it, as far as that was seen here."""
        return self._stored.maker(response_id)

    async def find(
        self,
        response_id: bytes,
        model: str | None,
        headers: RawHeaders,
        request_id: bytes,
    ) -> str | None:
        """The worker that has it; None where none says so in time.

        Those for `model` are asked, in the name of the client with these `headers`.
        """
        known = self.known(response_id)
        workers = self._askable(model)
        if known is not None or len(workers) < 2:
            return known
        if not response_id.startswith(ID_PREFIX):
            return None
        target = b"/v1/responses/" + quote_from_bytes(response_id, safe="").encode()
        asked = (
            self._has(worker, self._question(worker, target, headers, request_id))
            for worker in workers
        )
        found = await _first(asked)
        if found is not None:
            self._stored.made(response_id, found)
        return found

    def _askable(self, model: str | None) -> list[Worker]:
        return [
            worker
            for worker in self._pool.listing(model)
            if worker.api == CHAT and worker.state is not WorkerState.down
        ]

    def _question(
        self, worker: Worker, target: bytes, headers: RawHeaders, request_id: bytes
    ) -> UpstreamRequest:
        shown = to_worker(
            headers,
            request_id=request_id,
            drop=_DROPPED | self._credentials.dropped,
            extra=self._credentials.shown(worker),
        )
        return UpstreamRequest(method="GET", target=target, headers=shown, fresh=True)

    async def _has(self, worker: Worker, question: UpstreamRequest) -> str | None:
        """The worker's URL if it says that the response is there."""
        try:
            async with self._places.setdefault(worker, asyncio.Semaphore(AT_ONCE)):
                origin = Origin.parse(worker.url)
                answer = await self._upstreams.send(origin, question)
        except GatewayError:
            return None  # what it has cannot be had now, either
        answer.abort()  # it may be long, and its client has yet to ask for it
        return worker.url if answer.status == 200 else None


async def _first(asked: Iterable[Coroutine[Any, Any, str | None]]) -> str | None:
    """The first that is one; the others are not waited for."""
    tasks = [asyncio.create_task(one) for one in asked]
    try:
        async with asyncio.timeout(ASK_S):
            for answered in asyncio.as_completed(tasks):
                if (url := await answered) is not None:
                    return url
    except TimeoutError:
        pass  # nobody has said so
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return None
