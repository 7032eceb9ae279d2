"""A client's request, and what becomes of it for the worker that was chosen.

Its bytes go as they came; what is added is named here: the data-parallel rank in a
header, token ids in the body. Sending is not done here.
"""

from collections.abc import AsyncIterator

import msgspec

from gateway.request.headers import RawHeaders, first, to_worker
from gateway.request.prompt import Ids
from gateway.request.room import Share
from gateway.upstreams.upstream import UpstreamRequest
from router.decision import Decision

RANK_HEADER = b"X-data-parallel-rank"
_RANK = RANK_HEADER.lower()


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

    share: Share | None = None
    """Its part of the memory for bodies; until answered."""

    def answered(self) -> None:
        """It is not sent again: what is long need not be kept while it streams."""
        self.ids.clear()
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
        self, decision: Decision, *, client_rank: bool, with_ids: bool
    ) -> UpstreamRequest:
        """The request for the worker of a decision.

        A client's rank goes along if `client_rank`, else that of the decision; ids go
        along if `with_ids`, in the worker's own field, by its own profile.
        """
        drop, extra = frozenset[bytes](), []
        if self.clients_rank is None or not client_rank:
            drop = frozenset({_RANK})
            if decision.worker.pinned:
                extra.append((RANK_HEADER, b"%d" % decision.rank))
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
        )
