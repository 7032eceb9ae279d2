"""A request on its way to the worker that was chosen, with its token ids or without.

A worker that refuses the ids is asked again as the client wrote it: what it says then
is the client's. Everything else that may be tried again is the proxy's.
"""

from functools import lru_cache

from gateway.access.credentials import Credentials
from gateway.metrics.registry import Metrics
from gateway.request.outgoing import Outgoing
from gateway.tokens.generation import Generation
from gateway.tokens.sending import TokensSender
from gateway.upstreams.origin import Origin
from gateway.upstreams.upstream import UpstreamRequest, Upstreams
from gateway.upstreams.upstream_response import UpstreamResponse
from router.decision import Decision
from router.proof import IDS_REJECTED, Blocker
from router.worker import TOKENS

REFUSALS = frozenset({400, 413, 422})
"""How engines, and what stands before them, refuse a body for what is in it. A 5xx is
no refusal of ids that the worker itself would make: it says that the worker failed, and
asking again would load it twice."""
TOO_LARGE = 413
"""Tells of this one body, which ids made longer; not of ids."""
ERRORS = 400
ORIGINS = 4096
"""Workers whose origins are kept at hand."""


class Sender:
    """Sends requests; knows the workers' addresses, and whose ids were refused."""

    def __init__(
        self,
        upstreams: Upstreams,
        metrics: Metrics,
        *,
        client_rank: bool,
        credentials: Credentials,
        tokens: TokensSender,
    ) -> None:
        """`client_rank`: clients may choose a data-parallel rank.

        `tokens` sends to workers that take token ids only.
        """
        self._upstreams = upstreams
        self._metrics = metrics
        self._client_rank = client_rank
        self._credentials = credentials
        self._tokens = tokens
        self._origin = lru_cache(ORIGINS)(Origin.parse)

    async def send(self, outgoing: Outgoing, decision: Decision) -> UpstreamResponse:
        """The head of the worker's answer; GatewayError where there is none."""
        if outgoing.clients_rank is not None and not self._client_rank:
            self._metrics.client_ranks_dropped.inc()
        if decision.worker.api == TOKENS:
            if outgoing.generation is not None:
                return await self._generated(outgoing, outgoing.generation, decision)
            # Its client has written the ids, or needs none.
            return await self._send(outgoing, decision, with_ids=False)
        with_ids = decision.no_ids is None and outgoing.repeatable
        response = await self._send(outgoing, decision, with_ids=with_ids)
        if not with_ids:
            self._metrics.forwarded.labels("withheld", decision.no_ids or "body").inc()
            return response
        self._metrics.forwarded.labels("forwarded", "proven").inc()
        if response.status not in REFUSALS:
            return response
        response.abort()
        return await self._as_written(outgoing, decision, response.status)

    def drop(self, decision: Decision) -> None:
        """Close the free connections to the worker of a decision."""
        self._upstreams.drop(self._origin(decision.worker.url))

    async def _as_written(
        self, outgoing: Outgoing, decision: Decision, refusal: int
    ) -> UpstreamResponse:
        """The same to the same worker without ids; it gets none if that was it."""
        response = await self._send(outgoing, decision, with_ids=False)
        if response.status >= ERRORS:
            reason = "refused"
        elif refusal == TOO_LARGE:
            reason = "too_large"
        else:
            reason = IDS_REJECTED
            detail = f"{refusal} with token ids, {response.status} without"
            decision.worker.proof = Blocker(reason=IDS_REJECTED, detail=detail)
        self._metrics.forwarded.labels("resent", reason).inc()
        return response

    async def _generated(
        self, outgoing: Outgoing, generation: Generation, decision: Decision
    ) -> UpstreamResponse:
        """The answer of a worker that takes token ids only."""
        return await self._tokens.send(
            generation,
            decision.worker,
            self._origin(decision.worker.url),
            self._request(outgoing, decision, with_ids=False),
            outgoing.request_id.decode("ascii"),
        )

    async def _send(
        self, outgoing: Outgoing, decision: Decision, *, with_ids: bool
    ) -> UpstreamResponse:
        request = self._request(outgoing, decision, with_ids=with_ids)
        return await self._upstreams.send(self._origin(decision.worker.url), request)

    def _request(
        self, outgoing: Outgoing, decision: Decision, *, with_ids: bool
    ) -> UpstreamRequest:
        return outgoing.for_worker(
            decision,
            client_rank=self._client_rank,
            with_ids=with_ids,
            credentials=self._credentials,
        )
