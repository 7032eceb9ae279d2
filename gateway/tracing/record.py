"""The record of one request: what was decided and what became of it, step by step.

Its line of the access log and its spans are made of it. It holds numbers and names of
ours, never text of a prompt; where both are off, nobody reads it.
"""

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.logs.prompts import PromptLog
from gateway.request.headers import RawHeaders
from router.decision import Decision
from router.request import RouteRequest, Usage

if TYPE_CHECKING:  # where nothing is traced, OpenTelemetry is not loaded
    from gateway.tracing.spans import AttemptSpans, RequestSpans

TRACE_HEADERS = frozenset({b"traceparent", b"tracestate"})
METHODS = frozenset(
    {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"}
)
OTHER_METHOD = "_OTHER"
"""Any other: it is any word that a client likes."""
NO_SPAN = contextlib.nullcontext()


class AttemptRecord:
    """One attempt at one worker, from the decision to the end of its answer."""

    __slots__ = (
        "_clock",
        "best_hit_tokens",
        "end",
        "first_byte_at",
        "hit_tokens",
        "ids",
        "prompt_tokens",
        "rank",
        "spans",
        "status",
        "usage",
        "why",
        "worker",
    )

    def __init__(
        self,
        decision: Decision,
        spans: "AttemptSpans | None",
        clock: Callable[[], float],
    ) -> None:
        # The decision itself would keep the blocks of a whole prompt.
        self.worker = decision.worker.url
        self.rank = decision.rank
        self.hit_tokens = decision.hit_tokens
        self.best_hit_tokens = decision.best_hit_tokens
        self.prompt_tokens = decision.prompt_tokens
        self.why = decision.why
        self.ids = decision.no_ids or "forwarded"
        self.status: int | None = None
        self.first_byte_at: float | None = None
        self.usage: Usage | None = None
        self.end: str | None = None
        self.spans = spans
        self._clock = clock

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that were expected to be prefilled."""
        return max(0, self.prompt_tokens - self.hit_tokens)

    def answered(self, status: int) -> None:
        """The worker's status line is there."""
        self.status = status

    def first_byte(self) -> None:
        """The body of its answer begins; of a stream, with its first event."""
        if self.first_byte_at is None:
            self.first_byte_at = self._clock()
            if self.spans is not None:
                self.spans.first_byte()

    def finished(self, usage: Usage | None) -> None:
        """The answer is whole."""
        self.usage = usage
        self._ended("finished")

    def failed(self, kind: str) -> None:
        """It is not, or tells of an error; the router's word for why."""
        self._ended(kind)

    def _ended(self, end: str) -> None:
        if self.end is None:
            self.end = end
            if self.spans is not None:
                self.spans.ended(self)


class RequestRecord:
    """One request, from its head to the end of its answer."""

    __slots__ = (
        "_asked",
        "_prompts",
        "attempts",
        "begun",
        "clock",
        "endpoint",
        "key",
        "method",
        "model",
        "not_rendered",
        "prompt_tokens",
        "request_id",
        "spans",
        "stream",
    )

    def __init__(
        self,
        *,
        request_id: str = "",
        method: str = "",
        endpoint: str = "",
        spans: "RequestSpans | None" = None,
        prompts: PromptLog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.request_id = request_id
        self.method = method
        self.endpoint = endpoint
        self.begun = clock()
        self.clock = clock
        self.key: str | None = None
        """The name of the client's key, if it has one."""
        self.model: str | None = None
        """The model asked for, once a worker is known to have it; else: any text."""
        self._asked: str | None = None
        self.prompt_tokens: int | None = None
        self.not_rendered: str | None = None
        self.stream = False
        self.attempts: list[AttemptRecord] = []
        self.spans = spans
        self._prompts = prompts

    def read(self, body: bytes) -> None:
        """Its body is here. It is not kept, nor logged unless that was asked for."""
        if self._prompts is not None:
            self._prompts.write(self.request_id, body)

    def step(self, name: str) -> AbstractContextManager[object]:
        """A step of the gateway's own ("render", "decide"), for as long as it takes."""
        return NO_SPAN if self.spans is None else self.spans.step(name)

    def described(self, route: RouteRequest) -> None:
        """What the router will be told."""
        self._asked = route.model
        self.prompt_tokens = route.prompt_tokens
        self.not_rendered = route.not_rendered
        self.stream = route.stream

    def attempt(self, decision: Decision) -> AttemptRecord:
        """An attempt begins, at the worker of this decision."""
        if self._asked in decision.worker.names:
            self.model = self._asked
        spans = None if self.spans is None else self.spans.attempt(self, decision)
        attempt = AttemptRecord(decision, spans, self.clock)
        self.attempts.append(attempt)
        return attempt

    @property
    def answering(self) -> AttemptRecord | None:
        """The attempt whose answer the client got: the last one that was not busy."""
        if not self.attempts:
            return None
        told = [attempt for attempt in self.attempts if attempt.end != "busy"]
        return (told or self.attempts)[-1]

    def trace_headers(self) -> RawHeaders | None:
        """What tells the worker its place in the trace; None: as the client has it."""
        spans = self.attempts[-1].spans if self.attempts else None
        return None if spans is None else spans.headers()

    def ended(self, status: int | None) -> None:
        """The answer is over; `status` is None if its client left before."""
        if self.spans is not None:
            self.spans.ended(self, status)


def known_method(method: str) -> str:
    """A method, if it is HTTP's."""
    return method if method in METHODS else OTHER_METHOD


RECORD = web.RequestKey("record", RequestRecord)


def record_of(request: web.BaseRequest) -> RequestRecord:
    """The record of a request; one that nobody reads where none is kept."""
    record = request.get(RECORD)
    return RequestRecord() if record is None else record
