"""Finds the worker that made a stored response, whichever gateway had it made.

What this gateway saw being made it remembers. For anything else, such as what another
process or replica had made, or this one before it was started anew, the workers are
asked: only the one that made it has it. Where the one that made it cannot say so, now,
the request itself is what finds it: `proxy.py` notes who answers it.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any
from urllib.parse import quote_from_bytes
from weakref import WeakKeyDictionary

import msgspec

from gateway.access.credentials import OWN_CREDENTIALS, Credentials
from gateway.errors import GatewayError
from gateway.request.headers import RawHeaders, to_worker
from gateway.request.outgoing import INTERNAL, RANK_HEADER
from gateway.request.stored_responses import ID_PREFIX, StoredResponses
from gateway.upstreams.origin import Origin
from gateway.upstreams.upstream import UpstreamRequest, Upstreams
from router.pool import WorkerPool
from router.request import RouteRequest
from router.worker import CHAT, Worker, WorkerState

ASK_S = 2.0
"""Seconds in which the workers have to say so."""
AT_ONCE = 64
"""Questions under way at one worker; others wait for it, for no longer than that."""
HAS, HAS_NOT = 200, 404
Said = tuple[str, bool | None]
"""A worker's URL, and whether it has a response; None where it does not say."""

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

    async def routed(
        self,
        route: RouteRequest,
        response_id: bytes,
        headers: RawHeaders,
        request_id: bytes,
    ) -> RouteRequest:
        """The same request, to the worker that has what it is about.

        Where none says so in time, to those that have not said that they have it not;
        of these each may be tried (`sought`). The workers for its model are asked, in
        the name of the client with these `headers`.
        """
        worker = self.known(response_id)
        listed = self._pool.listing(route.model)
        keeping = [worker for worker in listed if worker.api == CHAT]
        if worker is not None or len(keeping) < 2:
            return msgspec.structs.replace(route, worker=worker)
        if not response_id.startswith(ID_PREFIX):
            return route
        target = b"/v1/responses/" + quote_from_bytes(response_id, safe="").encode()
        asked = (
            self._has(worker, self._question(worker, target, headers, request_id))
            for worker in keeping
            if worker.state is not WorkerState.down  # it may have it, but cannot say
        )
        found, without = await _answers(asked)
        if found is not None:
            self._stored.made(response_id, found)
            return msgspec.structs.replace(route, worker=found)
        left = {worker.url for worker in keeping} - without - route.exclude
        if not left:
            return route
        others = frozenset(worker.url for worker in listed) - left
        return msgspec.structs.replace(
            route, exclude=route.exclude | others, sought=response_id
        )

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

    async def _has(self, worker: Worker, question: UpstreamRequest) -> Said:
        """What the worker says: nothing that is not about the response is said of it.

        One that has no time, or that the client may not ask, may have it.
        """
        try:
            async with self._places.setdefault(worker, asyncio.Semaphore(AT_ONCE)):
                origin = Origin.parse(worker.url)
                answer = await self._upstreams.send(origin, question)
        except GatewayError:
            return worker.url, None
        answer.abort()  # it may be long, and its client has yet to ask for it
        said = {HAS: True, HAS_NOT: False}
        return worker.url, said.get(answer.status)


async def _answers(
    asked: Iterable[Coroutine[Any, Any, Said]],
) -> tuple[str | None, frozenset[str]]:
    """The first that has it, for whom no other is waited for; and those that have not.

    Who has not answered in time is neither.
    """
    tasks = [asyncio.create_task(one) for one in asked]
    without: set[str] = set()
    try:
        async with asyncio.timeout(ASK_S):
            for answered in asyncio.as_completed(tasks):
                url, has = await answered
                if has:
                    return url, frozenset()
                if has is False:
                    without.add(url)
    except TimeoutError:
        pass  # nobody has said so
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
    return None, frozenset(without)
