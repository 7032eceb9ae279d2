"""One request through one worker, or more: decide, send, retry, relay, account.

What may be tried again, at once, at another worker: what reached nobody (no connection,
or a reused connection that was already closed), as a host may go with many workers, and
once what met a worker that says it is busy (429, 503). What any of several workers may
have is asked of the next where one has it not (404). Everything else is the client's to
know: no worker may have acted on a request that another gets.
"""

import asyncio

import msgspec
from aiohttp import web

from gateway.access.credentials import OWN_CREDENTIALS, Credentials
from gateway.errors import (
    ConnectFailed,
    GatewayError,
    NoWorker,
    StaleConnection,
)
from gateway.metrics.registry import Metrics
from gateway.request.account import Accounts, failure_kind
from gateway.request.attempt import Attempt
from gateway.request.decision_header import decision_header
from gateway.request.headers import RawHeaders
from gateway.request.outgoing import Outgoing
from gateway.request.relay import STALL_S, relay
from gateway.request.sending import Sender
from gateway.server import is_time_over
from gateway.tokens.sending import TokensSender
from gateway.upstreams.upstream import Upstreams
from router.decision import Decision
from router.pool import NoCandidate
from router.request import RouteRequest
from router.router import Router

TRIES = 8
"""Where connections are refused, which takes a moment; two where they time out."""


class Proxy:
    """Sends requests where the router says, and tells it what became of them."""

    def __init__(
        self,
        *,
        router: Router,
        upstreams: Upstreams,
        accounts: Accounts,
        metrics: Metrics,
        client_rank: bool,
        tokens: TokensSender,
        credentials: Credentials = OWN_CREDENTIALS,
        tells_decision: bool = False,
        stall_s: float = STALL_S,
    ) -> None:
        """`stall_s`: a client that takes nothing for so long is given up.

        `tells_decision`: a header tells clients where their requests went.
        """
        self._router = router
        self._sender = Sender(
            upstreams,
            metrics,
            client_rank=client_rank,
            credentials=credentials,
            tokens=tokens,
        )
        self._accounts = accounts
        self._metrics = metrics
        self._client_rank = client_rank
        self._tells_decision = tells_decision
        self._stall_s = stall_s

    async def forward(
        self,
        request: web.Request,
        outgoing: Outgoing,
        route: RouteRequest,
        told: RawHeaders = (),
    ) -> web.StreamResponse:
        """Answer the client with a worker's answer; GatewayError where none came.

        The headers `told` go along with it.
        """
        if self._client_rank:
            route = _at_clients_rank(route, outgoing)
        attempt = await self._answered(outgoing, route)
        account = attempt.account
        outgoing.answered()
        try:
            return await relay(
                request,
                attempt.response,
                request_id=outgoing.request_id,
                observer=account,
                stall_s=self._stall_s,
                extra=[*told, *self._told(attempt.decision)],
            )
        except GatewayError as error:
            account.ended(error)
            raise
        except asyncio.CancelledError as error:
            account.failed(_ender(error))
            raise
        finally:
            account.failed("client")  # only where nothing else has ended it

    def _told(self, decision: Decision) -> RawHeaders:
        return decision_header(decision) if self._tells_decision else ()

    async def _answered(self, outgoing: Outgoing, route: RouteRequest) -> Attempt:
        """The answer to relay: that of the worker first chosen, or of another."""
        decision = self._decide(outgoing, route)
        attempt, left = await self._reached(outgoing, route, decision)
        if route.sought is not None:
            attempt = await self._from_who_has_it(attempt, outgoing, left)
            if attempt.succeeded:
                url = attempt.decision.worker.url
                self._accounts.responses.made(route.sought, url)
        elif attempt.busy and outgoing.repeatable:
            return await self._instead_of(attempt, outgoing, left)
        return attempt

    async def _reached(
        self, outgoing: Outgoing, route: RouteRequest, decision: Decision
    ) -> tuple[Attempt, RouteRequest]:
        """The answer of a decision's worker, or of the next that can be reached.

        And the route to those that are left.
        """
        waited = 0
        for _ in range(TRIES - 1):
            try:
                return await self._attempt(outgoing, decision), route
            except (ConnectFailed, StaleConnection) as error:
                stale = isinstance(error, StaleConnection)
                waited += isinstance(error, ConnectFailed) and error.timed_out
                further = None
                if error.retryable and waited < 2:
                    further = self._further(outgoing, route, decision, stale=stale)
                if further is None:
                    raise
            route = _without(route, decision)
            outgoing, decision = _again(outgoing), further
        return await self._attempt(outgoing, decision), route

    def _further(
        self, outgoing: Outgoing, route: RouteRequest, failed: Decision, *, stale: bool
    ) -> Decision | None:
        """Where to send after a try that reached nobody, if anywhere.

        After a `stale` connection that may be to the same worker.
        """
        try:
            decision = self._decide(outgoing, _elsewhere(route, failed))
        except NoWorker:
            if not stale:
                return None
            decision = self._decide(outgoing, route)
        self._metrics.retries.labels("stale" if stale else "connect").inc()
        return decision

    async def _instead_of(
        self, busy: Attempt, outgoing: Outgoing, route: RouteRequest
    ) -> Attempt:
        """Another worker's answer in place of a 429 or 503, if there is one."""
        try:
            route = _elsewhere(route, busy.decision)
            decision = self._decide(outgoing, route)
        except NoWorker:
            return busy
        try:
            self._metrics.retries.labels("busy").inc()
            attempt, _ = await self._reached(_again(outgoing), route, decision)
        except GatewayError:
            return busy
        except BaseException:
            busy.abandon()
            raise
        if attempt.busy:  # nobody has time: what the first one said stands
            attempt.abandon()
            return busy
        busy.abandon()
        return attempt

    async def _from_who_has_it(
        self, attempt: Attempt, outgoing: Outgoing, route: RouteRequest
    ) -> Attempt:
        """The answer of the worker that has what the request seeks, if one says so.

        A busy one may have it: what it said stands until one does better than a 404.
        """
        for asked in range(1, TRIES + 1):
            if not (attempt.lacking or attempt.busy):
                break
            try:
                route = _without(route, attempt.decision)
                decision = self._decide(outgoing, route)
            except NoWorker:
                break
            if asked == TRIES or not outgoing.repeatable:
                decision.failed("refused")  # it is booked, and goes nowhere
                attempt.check_all_were_asked()
                break
            try:
                self._metrics.retries.labels("elsewhere").inc()
                tried = _again(outgoing)
                further, route = await self._reached(tried, route, decision)
            except BaseException as error:
                if attempt.busy and isinstance(error, GatewayError):
                    break
                attempt.abandon()
                raise
            route = _without(route, further.decision)
            worse = further if attempt.busy and further.lacking else attempt
            attempt = attempt if worse is further else further
            worse.abandon()
        return attempt

    def _decide(self, outgoing: Outgoing, route: RouteRequest) -> Decision:
        with self._metrics.decide_seconds.time(), outgoing.record.step("decide"):
            try:
                decision = self._router.decide(route)
            except NoCandidate as error:
                raise NoWorker(str(error)) from None
        return decision

    async def _attempt(self, outgoing: Outgoing, decision: Decision) -> Attempt:
        """Send to the decision's worker; the head of its answer, or what failed."""
        account = self._accounts.open(
            decision,
            outgoing.begun,
            uncompared=outgoing.uncompared,
            stored=outgoing.stored,
            record=outgoing.record,
        )
        outcome = "client"
        try:
            decision.sent()
            response = await self._sender.send(outgoing, decision)
            account.answered(response)
            attempt = Attempt(decision=decision, account=account, response=response)
            outcome = "busy" if attempt.busy else "answered"
            return attempt
        except GatewayError as error:
            outcome = failure_kind(error)
            if isinstance(error, ConnectFailed | StaleConnection):
                self._sender.drop(decision)
            account.ended(error)
            raise
        except BaseException as error:
            outcome = _ender(error)
            account.failed(outcome)
            raise
        finally:
            self._metrics.attempts.labels(decision.worker.url, outcome).inc()


def _ender(error: BaseException) -> str:
    """Who ended a request that was cancelled: the gateway as it goes, or its client."""
    over = isinstance(error, asyncio.CancelledError) and is_time_over(error)
    return "refused" if over else "client"


def _again(outgoing: Outgoing) -> Outgoing:
    """The same as a further try, which must not fail for a connection that is stale."""
    return msgspec.structs.replace(outgoing, again=True)


def _elsewhere(route: RouteRequest, tried: Decision) -> RouteRequest:
    """The route to other workers than was tried; NoWorker where none may answer.

    What only the tried one has, such as a stored response, none else may: it would
    say that there is no such thing.
    """
    if route.worker == tried.worker.url:
        raise NoWorker("no other worker has what this request is about")
    return _without(route, tried)


def _without(route: RouteRequest, tried: Decision) -> RouteRequest:
    exclude = route.exclude | {tried.worker.url}
    return msgspec.structs.replace(route, exclude=exclude)


def _at_clients_rank(route: RouteRequest, outgoing: Outgoing) -> RouteRequest:
    value = outgoing.clients_rank
    if value is None or not value.isdigit() or len(value) > 9:
        return route
    return msgspec.structs.replace(route, rank=int(value))
