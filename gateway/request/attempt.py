"""One try of a request: what was decided, and the head of the worker's answer."""

import msgspec

from gateway.errors import UpstreamFailed
from gateway.request.account import Account
from gateway.upstreams.upstream_response import UpstreamResponse
from router.decision import BUSY_STATUSES, Decision

NOT_FOUND = 404


class Attempt(msgspec.Struct, kw_only=True):
    """A decision that was sent, and the head of its answer."""

    decision: Decision
    account: Account
    response: UpstreamResponse

    @property
    def busy(self) -> bool:
        """The worker has no time: another may answer."""
        return self.response.status in BUSY_STATUSES

    @property
    def lacking(self) -> bool:
        """The worker has not what the request is about."""
        return self.response.status == NOT_FOUND

    @property
    def succeeded(self) -> bool:
        """The worker did what it was asked."""
        return 200 <= self.response.status < 300

    def abandon(self) -> None:
        """Another worker answers in its place."""
        self.response.abort()
        self.account.failed("busy" if self.busy else "status")

    def check_all_were_asked(self) -> None:
        """Others may have it: raise in place of a 404, which would be for them all."""
        if self.lacking:
            self.abandon()
            raise UpstreamFailed("not every worker that may have it could be asked")
