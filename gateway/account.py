"""The account of one exchange: what the router and the metrics learn from it.

An `Account` watches an answer as it is relayed. Whatever happens, it ends exactly
once: finished with the usage the worker reported, or failed with a kind.
"""

import math
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

import msgspec

from gateway.errors import (
    ClientGone,
    ConnectFailed,
    GatewayError,
    StaleConnection,
    UpstreamFailed,
    UpstreamTimeout,
)
from gateway.headers import RawHeaders, first
from gateway.metrics import Metrics
from gateway.relay import is_event_stream
from gateway.upstream_response import UpstreamResponse
from gateway.usage import UsageScanner
from router.decision import Decision, Outcome
from router.request import Usage

_KINDS: tuple[tuple[type[GatewayError], str], ...] = (
    (ConnectFailed, "connect"),
    (StaleConnection, "stale"),
    (UpstreamTimeout, "timeout"),
    (ClientGone, "client"),
    (UpstreamFailed, "reset"),
)

NO_FAILURE = frozenset({"status", "busy", "refused"})
"""Kinds that are no failure of the worker's exchange."""


def failure_kind(error: GatewayError) -> str:
    """The router's word for what ended an exchange.

    "refused": the gateway did, for what the client sent (too large, badly framed).
    """
    return next((kind for cls, kind in _KINDS if isinstance(error, cls)), "refused")


def retry_after_s(headers: RawHeaders, now: Callable[[], float]) -> float | None:
    """Seconds a `Retry-After` asks for (a number or a date), None without one."""
    value = first(headers, b"retry-after")
    if value is None:
        return None
    text = value.decode("latin-1").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - now()
        except (ValueError, OverflowError):
            return None
    return seconds if math.isfinite(seconds) else None


class Accounts:
    """Opens accounts, and sums predicted and delivered hit tokens per worker."""

    def __init__(
        self, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.metrics = metrics
        self.clock = clock
        self.predicted: dict[str, int] = {}
        self.delivered: dict[str, int] = {}

    def open(
        self, decision: Decision, begun: float, *, comparable: bool = True
    ) -> "Account":
        """The account of a decision about to be sent; `begun` is when it came.

        Not `comparable` are the cached tokens of several prompts: engines report those
        of one of them, or of all. They are taken as not reported.
        """
        return Account(self, decision, begun, comparable=comparable)

    def settle(self, url: str, outcome: Outcome) -> None:
        """Count a finished request."""
        metrics = self.metrics
        metrics.prompt_tokens.labels(url).inc(outcome.prompt_tokens)
        delivered = outcome.delivered_hit_tokens
        if delivered is None:
            metrics.unreported_requests.labels(url).inc()
            return
        predicted = outcome.predicted_hit_tokens
        metrics.reported_prompt_tokens.labels(url).inc(outcome.prompt_tokens)
        metrics.predicted_hit_tokens.labels(url).inc(predicted)
        metrics.best_hit_tokens.labels(url).inc(outcome.best_hit_tokens)
        metrics.delivered_hit_tokens.labels(url).inc(delivered)
        if not outcome.estimated:
            error = abs(predicted - delivered)
            metrics.prediction_error_tokens.labels(url).inc(error)
        self.predicted[url] = self.predicted.get(url, 0) + predicted
        self.delivered[url] = self.delivered.get(url, 0) + delivered


class Account:
    """One exchange. It is the relay's observer."""

    def __init__(
        self,
        accounts: Accounts,
        decision: Decision,
        begun: float,
        *,
        comparable: bool,
    ) -> None:
        self._accounts = accounts
        self._decision = decision
        self._begun = begun
        self._comparable = comparable
        self._usage = UsageScanner()
        self._status = 0
        self._streams = False
        self._over = False

    def answered(self, response: UpstreamResponse) -> None:
        """The worker's status is known."""
        self._status = response.status
        wait = retry_after_s(response.headers, time.time)
        self._decision.answered(response.status, wait)

    def head(self, status: int, headers: RawHeaders) -> None:
        """The relay begins."""
        self._streams = is_event_stream(headers)

    def first_byte(self) -> None:
        """The first event of a stream tells that the prefill is over."""
        if self._succeeded and self._streams:
            self._decision.first_token()
            took = self._accounts.clock() - self._begun
            url = self._decision.worker.url
            self._accounts.metrics.first_token_seconds.labels(url).observe(took)

    def data(self, data: bytes) -> None:
        """Body as it is relayed."""
        if self._succeeded:
            self._usage.feed(data)

    @property
    def _succeeded(self) -> bool:
        return 200 <= self._status < 300

    def ended(self, error: GatewayError | None) -> None:
        """The exchange is over: complete, or ended by `error`."""
        if error is not None:
            self.failed(failure_kind(error))
        elif not self._succeeded:
            self.failed("status")
        elif not self._over:
            self._over = True
            self._decision.finished(self._reported())
            if self._decision.outcome is not None:
                url = self._decision.worker.url
                self._accounts.settle(url, self._decision.outcome)

    def _reported(self) -> Usage | None:
        usage = self._usage.usage
        if usage is None or self._comparable:
            return usage
        return msgspec.structs.replace(usage, cached_tokens=None)

    def failed(self, kind: str) -> None:
        """The exchange brought no whole answer; after the end this changes nothing."""
        if self._over:
            return
        self._over = True
        self._decision.failed(kind)
        metrics = self._accounts.metrics
        if kind == "client":
            metrics.client_disconnects.inc()
        elif kind not in NO_FAILURE:
            metrics.upstream_failures.labels(self._decision.worker.url, kind).inc()
