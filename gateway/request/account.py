"""The account of one exchange: what the router and the metrics learn from it.

An `Account` watches an answer as it is relayed. Whatever happens, it ends exactly
once: finished with the usage the worker reported, or failed with a kind.
"""

import logging
import math
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

import msgspec

from gateway.admin.decisions import Decisions
from gateway.admin.recent import Recent
from gateway.errors import (
    ClientGone,
    ConnectFailed,
    GatewayError,
    StaleConnection,
    UpstreamFailed,
    UpstreamTimeout,
)
from gateway.metrics.comparison import AGREES, FINDS_LESS, Comparison
from gateway.metrics.registry import Metrics
from gateway.request.headers import RawHeaders, first
from gateway.request.relay import is_event_stream
from gateway.request.stored_responses import ResponseId, StoredResponses
from gateway.request.usage import UsageScanner, scanner_of
from gateway.tracing.record import RequestRecord
from gateway.upstreams.upstream_response import UpstreamResponse
from router import Decision, Outcome, Usage

log = logging.getLogger(__name__)

_KINDS: tuple[tuple[type[GatewayError], str], ...] = (
    (ConnectFailed, "connect"),
    (StaleConnection, "stale"),
    (UpstreamTimeout, "timeout"),
    (ClientGone, "client"),
    (UpstreamFailed, "reset"),
)

NO_USAGE = "no_usage"
"""The answer has none: streamed without `stream_options.include_usage`."""
NO_CACHED_TOKENS = "no_cached_tokens"
"""The worker tells none, or not yet: a 0 may be what it leaves out."""

NO_FAILURE = frozenset({"status", "busy", "refused"})
"""Kinds that are no failure of the worker's exchange."""


def failure_kind(error: GatewayError) -> str:
    """The router's word for what ended an exchange.

    "refused": the gateway did, for what the client sent, or as it ends itself.
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
    """Opens accounts, and compares predicted and delivered hits, worker by worker."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        remedy: Callable[[str], str] = lambda url: "",
    ) -> None:
        """`remedy` is how the worker at a URL is made to tell its cached tokens."""
        self.metrics = metrics
        self.clock = clock
        self.responses = StoredResponses()
        self.decisions = Decisions(clock=clock)
        self.recent = Recent(clock=clock)
        self._remedy = remedy
        self._comparisons: dict[str, Comparison] = {}

    def of(self, url: str) -> Comparison:
        """The comparison of a worker."""
        return self._comparisons.setdefault(url, Comparison())

    def forget(self, url: str) -> None:
        """The worker is gone."""
        self._comparisons.pop(url, None)

    def open(
        self,
        decision: Decision,
        begun: float,
        *,
        uncompared: str | None = None,
        stored: bool = False,
        record: RequestRecord | None = None,
    ) -> "Account":
        """The account of a decision about to be sent; `begun` is when it came.

        `uncompared` says in a word why the cached tokens of the answer are not those of
        the prompt that was looked up: they are taken as not reported. Where the answer
        may be `stored` by the worker, its id is noted. `record` is that of the request.
        """
        record = record or RequestRecord()
        account = Account(self, decision, begun, uncompared=uncompared, record=record)
        if stored:
            account.response_id = ResponseId(self.responses, decision.worker.url)
        return account

    def reported(self, decision: Decision, usage: Usage) -> Usage:
        """The usage of an answer with the cached tokens that it tells, or means."""
        url = decision.worker.url
        comparison = self.of(url)
        before = comparison.reports
        cached = comparison.cached_tokens(usage, decision.hit_tokens)
        if comparison.reports is not before:
            if comparison.reports:
                log.info("worker %s tells its cached tokens", url)
            else:
                text = "worker %s tells no cached tokens, so predictions go unchecked%s"
                hint = self._remedy(url)
                log.warning(text, url, f": {hint}" if hint else "")
        return msgspec.structs.replace(usage, cached_tokens=cached)

    def settle(self, url: str, outcome: Outcome, uncompared: str) -> None:
        """Count a finished request; `uncompared` is why, if it is not compared."""
        metrics, comparison = self.metrics, self.of(url)
        metrics.prompt_tokens.labels(url).inc(outcome.prompt_tokens)
        self.recent.finished(outcome)
        delivered = outcome.delivered_hit_tokens
        if delivered is None:
            comparison.skip(uncompared)
            metrics.uncompared_requests.labels(url, uncompared).inc()
            return
        predicted = outcome.predicted_hit_tokens
        metrics.reported_prompt_tokens.labels(url).inc(outcome.prompt_tokens)
        metrics.predicted_hit_tokens.labels(url).inc(predicted)
        metrics.best_hit_tokens.labels(url).inc(outcome.best_hit_tokens)
        metrics.delivered_hit_tokens.labels(url).inc(delivered)
        if not outcome.estimated:
            error = abs(predicted - delivered)
            metrics.prediction_error_tokens.labels(url).inc(error)
        before = comparison.agreement
        for fate, tokens in comparison.settle(outcome).items():
            metrics.prompt_token_fates.labels(url, fate).inc(tokens)
        if comparison.agreement != before:
            _log_agreement(url, comparison, before)


def _log_agreement(url: str, comparison: Comparison, before: str | None) -> None:
    """One line where prediction and delivery begin, or cease, to disagree."""
    agreement = comparison.agreement
    if agreement == AGREES and before is None:
        return
    means = comparison.recent_delivered, comparison.recent_predicted
    if agreement == AGREES:
        text = "worker %s finds what was predicted: %.0f of %.0f tokens a request"
        log.info(text, url, *means)
    else:
        what = "less" if agreement == FINDS_LESS else "more"
        text = (
            "worker %s finds %s cached than predicted: %.0f for %.0f tokens a request"
        )
        log.warning(text, url, what, *means)


class Account:
    """One exchange. It is the relay's observer."""

    __slots__ = (
        "_accounts",
        "_begun",
        "_decision",
        "_noted",
        "_over",
        "_pulse",
        "_recorded",
        "_response",
        "_streams",
        "_succeeded",
        "_uncompared",
        "_usage",
        "response_id",
    )

    def __init__(
        self,
        accounts: Accounts,
        decision: Decision,
        begun: float,
        *,
        uncompared: str | None,
        record: RequestRecord,
    ) -> None:
        self._accounts = accounts
        self._decision = decision
        self._pulse = decision.worker.pulse
        self._begun = begun
        self._uncompared = uncompared
        self._noted = accounts.decisions.note(decision)
        self._recorded = record.attempt(decision)
        self._usage: UsageScanner | None = None
        self.response_id: ResponseId | None = None
        self._succeeded = False
        self._response: UpstreamResponse | None = None
        self._streams = False
        self._over = False

    def answered(self, response: UpstreamResponse) -> None:
        """The worker's status is known."""
        self._succeeded = 200 <= response.status < 300
        self._response = response
        self._recorded.answered(response.status)
        wait = retry_after_s(response.headers, time.time)
        self._decision.answered(response.status, wait)

    def head(self, status: int, headers: RawHeaders) -> None:
        """The relay begins."""
        self._streams = is_event_stream(headers)

    def first_byte(self) -> None:
        """The first event of a stream tells that the prefill is over."""
        self._recorded.first_byte()
        if self._succeeded and self._streams:
            self._decision.first_token()
            took = self._accounts.clock() - self._begun
            url = self._decision.worker.url
            self._accounts.metrics.first_token_seconds.labels(url).observe(took)
            self._accounts.recent.first_token(took)
            self._noted.first_token(took)

    def data(self, data: bytes) -> None:
        """Body as it is relayed."""
        self._pulse.beats += 1
        if self._succeeded:
            if self._usage is None:
                self._usage = scanner_of(data)
            self._usage.feed(data)
            if self.response_id is not None:
                self.response_id.feed(data)

    def ended(self, error: GatewayError | None) -> None:
        """The exchange is over: complete, or ended by `error`."""
        if error is not None:
            self.failed(failure_kind(error))
        elif not self._succeeded:
            self.failed("status")
        elif not self._over:
            self._over = True
            usage, uncompared = self._reported()
            self._decision.finished(usage)
            self._recorded.finished(usage)
            self._noted.finished(self._decision.outcome)
            if self._decision.outcome is not None:
                url = self._decision.worker.url
                self._accounts.settle(url, self._decision.outcome, uncompared)

    def _reported(self) -> tuple[Usage | None, str]:
        """The usage of the answer, and why it cannot be compared, should that be so."""
        usage = self._usage.usage if self._usage is not None else None
        if usage is None and self._response is not None:
            usage = self._response.usage
        if usage is None:
            return None, self._uncompared or NO_USAGE
        if self._uncompared is not None:
            usage = msgspec.structs.replace(usage, cached_tokens=None)
            return usage, self._uncompared
        return self._accounts.reported(self._decision, usage), NO_CACHED_TOKENS

    def failed(self, kind: str) -> None:
        """The exchange brought no whole answer; after the end this changes nothing."""
        if self._over:
            return
        self._over = True
        self._decision.failed(kind)
        self._noted.failed(kind)
        self._recorded.failed(kind)
        metrics = self._accounts.metrics
        if kind == "client":
            metrics.client_disconnects.inc()
        elif kind not in NO_FAILURE:
            metrics.upstream_failures.labels(self._decision.worker.url, kind).inc()
