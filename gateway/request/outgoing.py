"""A client's request, and what becomes of it for the worker that was chosen.

Its bytes go as they came; what is added is named here: the data-parallel rank in a
header, token ids in the body. Sending is not done here.
"""

from collections.abc import AsyncIterator

import msgspec

from gateway.access.credentials import OWN_CREDENTIALS, Credentials
from gateway.request.headers import RawHeaders, first, to_worker
from gateway.request.prompt import Ids
from gateway.request.room import Share
from gateway.tokens.generation import Generation
from gateway.tracing.record import TRACE_HEADERS, RequestRecord
from gateway.upstreams.upstream import UpstreamRequest
from router.decision import Decision

RANK_HEADER = b"X-data-parallel-rank"
_RANK = RANK_HEADER.lower()
INTERNAL = frozenset(
    {
        b"x-data-parallel-host-port",
        b"x-encoder-hosts-ports",
        b"x-gateway-destination-endpoint",
        b"x-gateway-destination-endpoint-served",
        b"x-gateway-destination-endpoint-subset",
        b"x-gateway-destination-endpoint-scores",
        b"x-prefiller-host-port",
        b"x-prefiller-url",
        b"x-smg-parser",
        b"x-smg-target-worker",
    }
)
"""Headers by which routers tell each other where a request goes, or the cache it needs
is: from a client they would choose a worker, or a host for one to connect to."""


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request as it is to reach a worker, whichever that will be."""

    method: str
    target: bytes
    """Path and query, as the client sent them."""
    headers: RawHeaders
    request_id: bytes
    body: bytes | AsyncIterator[bytes]
    length: int | None
    endpoint: str
    """The label of metrics."""
    begun: float
    """When the client's request came, by the proxy's clock."""
    uncompared: str | None = None
    """Why its predicted hits are not compared with what the worker reports."""
    stored: bool = False
    """Whether its answer may be a response that the worker keeps."""
    ids: dict[str, Ids] = {}
    """Token ids that may go along, by the profile of the worker; until answered."""

    generation: Generation | None = None
    """What it is for a worker that takes token ids only; until answered."""

    again: bool = False
    """Whether this is not the first try."""

    share: Share | None = None
    """Its part of the memory for bodies; until answered."""

    record: RequestRecord = msgspec.field(default_factory=RequestRecord)
    """What is told of it in the access log and in traces."""

    def answered(self) -> None:
        """It is not sent again: what is long need not be kept while it streams."""
        self.ids.clear()
        msgspec.structs.force_setattr(self, "generation", None)
        if self.repeatable:
            msgspec.structs.force_setattr(self, "body", b"")
        if self.share is not None:
            self.share.release()

    @property
    def repeatable(self) -> bool:
        """Whether the body can be sent a second time."""
        return isinstance(self.body, bytes)

    @property
    def clients_rank(self) -> bytes | None:
        """The data-parallel rank the client asks for, whatever it may be."""
        return first(self.headers, _RANK)

    def for_worker(
        self,
        decision: Decision,
        *,
        client_rank: bool,
        with_ids: bool,
        credentials: Credentials = OWN_CREDENTIALS,
    ) -> UpstreamRequest:
        """The request for the worker of a decision.

        A client's rank goes along if `client_rank`, else that of the decision; ids go
        along if `with_ids`, in the worker's own field, by its own profile. It is told
        its place in the trace; where nothing is traced, what the client said of one.
        """
        drop = INTERNAL | credentials.dropped
        extra = [*credentials.shown(decision.worker)]
        if self.clients_rank is None or not client_rank:
            drop |= {_RANK}
            if decision.worker.pinned:
                extra.append((RANK_HEADER, b"%d" % decision.rank))
        trace = self.record.trace_headers()
        if trace is not None:
            drop |= TRACE_HEADERS
            extra.extend(trace)
        body = self.body
        if with_ids and isinstance(body, bytes):
            body = self.ids[decision.worker.profile].into(body)
        return UpstreamRequest(
            method=self.method,
            target=self.target,
            headers=to_worker(
                self.headers, request_id=self.request_id, drop=drop, extra=extra
            ),
            body=body,
            length=self.length,
            expected_s=decision.estimate_s,
            fresh=self.again or not self.repeatable,
        )
